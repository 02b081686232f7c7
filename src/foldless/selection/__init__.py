"""Selection that says how sure it is: single features at a rate of false ones, and credible sets of twins."""

from foldless.selection.credible_sets import CredibleSet, CredibleSets, credible_sets
from foldless.selection.fdr import select

__all__ = ["CredibleSet", "CredibleSets", "credible_sets", "select"]
