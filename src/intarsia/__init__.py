"""Intarsia: a workshop for open-weight models."""
