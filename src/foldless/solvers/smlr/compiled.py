"""Where SMLR's compiled loops come from, if numba is installed: pip install 'foldless[fast]'."""

from __future__ import annotations

from typing import Any

from foldless import fast


def compiled() -> Any:
    """The module of compiled loops; None if there is no numba, or it is not wanted, or does not work."""
    return fast.loops("foldless.solvers.smlr.loops")
