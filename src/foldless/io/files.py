"""Files that are replaced whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name to write under; it becomes `path` when the block ends well, and is removed when it does not.

    Open it with mode "x", which refuses to follow a link laid there.
    """
    # Beside the target, so that renaming stays on one disk.
    unfinished = path.with_name(f".{path.stem}-{secrets.token_hex(4)}{path.suffix}")
    try:
        yield unfinished
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
