"""Selection that says how sure it is: single features at a rate of false ones, and groups of features."""

from foldless.selection.fdr import select
from foldless.selection.groups import CredibleSets, Group, credible_sets

# Sets of twins were there before groups at any resolution.
CredibleSet = Group

__all__ = ["CredibleSets", "Group", "credible_sets", "select"]
