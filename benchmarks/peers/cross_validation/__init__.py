"""Time of a tuned fit beside cross-validated L1 and ridge on tables of every shape."""
