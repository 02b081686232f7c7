"""Where results go, known to be free before any work."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from foldless.io.read import FORMATS

SUFFIXES = (".gz", *(f".{kind}" for kind in FORMATS), ".npy", ".zarr")


def default_name(table: Path) -> str:
    """What results are called after: colon for colon.csv.gz."""
    name = table.name
    for suffix in SUFFIXES:
        if name.lower().endswith(suffix) and len(name) > len(suffix):
            name = name[: -len(suffix)]
    return name


def default_folder(table: Path) -> Path:
    """In the working directory, which need not be where the table is."""
    return Path(f"{default_name(table)}-foldless")


def free_folder(folder: Path, names: Iterable[str], *, force: bool) -> Path:
    """A folder that can be written to and holds none of these files yet, unless they may be overwritten."""
    there = [name for name in names if (folder / name).exists()]
    if there and not force:
        raise FileExistsError(
            f"{folder} holds results already ({', '.join(there)}). Name another folder with --out, or "
            "overwrite them with --force."
        )
    _check_writable(folder)
    return folder


def free_file(path: Path, *, force: bool) -> Path:
    if path.exists() and not force:
        raise FileExistsError(f"{path} is there already. Name another file, or overwrite it with --force.")
    _check_writable(path.parent)
    return path


def _check_writable(folder: Path) -> None:
    """That the folder is, or can be made; it is not made before there is something to put into it."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise NotADirectoryError(20, os.strerror(20), str(existing))
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionError(13, os.strerror(13), str(existing))
