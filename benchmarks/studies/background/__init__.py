"""Inclusion probabilities where columns are correlated: real matrices and designs, a sparse truth."""
