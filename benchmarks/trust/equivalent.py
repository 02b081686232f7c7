"""Mutants that nobody could tell from the original: what was changed, and why nothing changes."""

EQUIVALENT: dict[str, str] = {}
