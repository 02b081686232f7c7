"""How far foldless can be trusted, measured: `make trust` runs the long forms and writes docs/trust.md."""
