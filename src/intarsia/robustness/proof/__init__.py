"""Targets small enough that what an attack must find on them is known, or quickly measured."""
