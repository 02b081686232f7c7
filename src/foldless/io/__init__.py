"""What comes from files and goes into them, whole or not at all, and never executed."""

from foldless.io.files import replacing
from foldless.io.names import printable
from foldless.io.table import BadTable, OverBudget, Reading, Roles, Table

__all__ = ["BadTable", "OverBudget", "Reading", "Roles", "Table", "printable", "replacing"]
