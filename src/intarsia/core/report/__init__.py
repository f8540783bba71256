"""A report drawn: HTML, Markdown, JSON, JUnit XML, a data frame, and the terminal."""
