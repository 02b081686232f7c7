"""Tables that stay where they are: rows are read when they are needed, a block at a time."""

from foldless.io.rows.base import BLOCK_BYTES, ReadRows, RowSource
from foldless.io.rows.opening import row_source

__all__ = ["BLOCK_BYTES", "ReadRows", "RowSource", "row_source"]
