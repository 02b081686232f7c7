"""What comes from files and goes into them, whole or not at all, and never executed."""

from foldless.io.files import replacing
from foldless.io.names import printable

__all__ = ["printable", "replacing"]
