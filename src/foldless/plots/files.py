"""Pictures as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from foldless.io import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save(figure: Figure, path: Path, *, dpi: int = 150) -> None:
    """Write a picture whole or not at all: an old one stays until the new one is complete."""
    with replacing(path) as unfinished, open(unfinished, "xb") as file:
        figure.savefig(file, format=path.suffix.lstrip(".") or "png", dpi=dpi)
