"""Mutants that nobody could tell from the original: what was changed, and why nothing changes."""

EQUIVALENT: dict[str, str] = {
    "io/archive.py _checksum: 1 -> 2": "how many bytes are read at a time",
    "io/files.py checksum: 1 -> 2": "NumPy takes every negative length for the one that is not known",
    "io/h5ad.py _check_texts_end: 9 -> 10": "what begins with a 2 is not below 2",
    "solvers/smlr/block.py _Update.__call__: False -> True": "a check of numbers that are finite",
    "solvers/smlr/block.py _Update.__init__: False -> True": "a check of numbers that are finite",
    "solvers/smlr/component_wise.py component_wise: 1.0 -> 2.0": "a share of 1 or more is all",
}
