"""Packages that not everybody needs: what to do when one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs(package: str, extra: str, purpose: str) -> Iterator[None]:
    """Imports inside say how to install what they lack."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise ModuleNotFoundError(
            f"{package} is needed {purpose}. Install it: pip install 'foldless[{extra}]'", name=package
        ) from None
