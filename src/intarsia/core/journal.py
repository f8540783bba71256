"""Crash-safe, resumable record of a long run."""
