"""Runs: a table in, a folder of results out. The command line is the terminal's face of this room."""
