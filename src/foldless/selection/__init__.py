"""Selection that says how sure it is: features at a false discovery rate."""

from foldless.selection.fdr import select

__all__ = ["select"]
