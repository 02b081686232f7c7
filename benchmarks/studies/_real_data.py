"""The folder of real data: an option of a study, and an end that says how to name it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

VARIABLE = "FOLDLESS_DATA"


def add_data_option(parser: argparse.ArgumentParser, files: Sequence[str]) -> None:
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get(VARIABLE),
        help=f"folder with {', '.join(files)} (default: environment variable {VARIABLE})",
    )


def data_folder(
    given: Path | None, files: Sequence[str], *, who: str = "This study needs", instead: str = ""
) -> Path:
    """The folder with all the files, or an end that says what is missing and what could be done `instead`."""
    if given is None:
        came = "no folder was given"
    elif missing := [name for name in files if not (Path(given) / name).exists()]:
        came = f"{given} has no {' and no '.join(missing)}"
    else:
        return Path(given)
    sys.exit(
        f"{who} a folder with {', '.join(files)}; {came}.\n"
        f"Name it with --data DIR or in the environment variable {VARIABLE}"
        + (f"; {instead}." if instead else ".")
    )
