"""Sycophancy: how often a model saves its user's face instead of answering, and what reduces it."""
