"""Models and laws whose every answer's probability is known, so that an estimate can be held against the truth."""
