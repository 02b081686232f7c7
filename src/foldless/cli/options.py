"""Options that several commands have, said once."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foldless.runs.models import DEFAULT, model_names

if TYPE_CHECKING:
    from foldless.io import Roles

GIGA = 1e9

ModelName = Enum("ModelName", {name: name for name in model_names()})  # type: ignore[misc]
DEFAULT_MODEL = ModelName(DEFAULT)
READ = ".csv, .tsv (also .gz), .parquet, .h5ad, .svmlight, .npz"


def _table(suffixes: str) -> Any:
    return typer.Argument(metavar="TABLE", help=f"Samples in rows: {suffixes}.", show_default=False)


def _column(help: str) -> Any:
    return typer.Option(metavar="COLUMN", help=help, show_default=False)


TableFile = Annotated[Path, _table(READ)]
LargeTableFile = Annotated[Path, _table(f"{READ}, .npy, .zarr")]
ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A file made by `foldless fit`.", show_default=False)
]
Target = Annotated[str | None, _column("The column with the class of each sample.")]
Covariates = Annotated[
    list[str] | None, _column("A column to keep whatever the data say (age, batch); may be repeated.")
]
Groups = Annotated[str | None, _column("Samples alike here (one patient, one run) are left out together.")]
Samples = Annotated[str | None, _column("The column with names of samples, if it is not the first.")]
Ignore = Annotated[list[str] | None, _column("A column to leave out; may be repeated.")]
Fdr = Annotated[
    float, typer.Option(help="The share of false features to expect among those selected.", min=0, max=1)
]
Model = Annotated[ModelName, typer.Option(help="Which model to fit.")]
Seed = Annotated[
    int, typer.Option(help="For what is drawn at random: splits, and models that sample.", min=0)
]
Threads = Annotated[
    int, typer.Option(help="Threads to use. A fit needs one; more help where models are compared.", min=1)
]
Panel = Annotated[
    str | None,
    typer.Option(
        metavar="SIZES",
        help="Also look for the few features that would do: sizes to try, such as 5,10,20, or 'auto'.",
        show_default=False,
    ),
]
Dask = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Fit on the Dask cluster whose scheduler is at tcp://host:port; the table must be Parquet that "
        "its workers can read.",
        show_default=False,
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite results that are there already.")]
Delimiter = Annotated[
    str | None, typer.Option(help="Between columns of text, if the suffix does not say it.", metavar="SIGN")
]
MaxMemory = Annotated[
    float | None,
    typer.Option(help="Gigabytes that may be used; most of what is free by default.", min=0, metavar="GB"),
]


def panel_sizes(panel: str | None) -> list[int] | str | None:
    """As `PanelClassifier` takes them."""
    if panel is None or panel == "auto":
        return panel
    sizes = [part.strip() for part in panel.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in sizes):
        raise typer.BadParameter(
            f"--panel is {panel!r}; it needs 'auto', or sizes from 1 on such as 5,10,20."
        )
    return [int(part) for part in sizes]


def roles(
    target: str | None = None,
    covariates: list[str] | None = None,
    groups: str | None = None,
    samples: str | None = None,
    ignore: list[str] | None = None,
) -> Roles:
    from foldless.io import Roles

    return Roles(
        target=target,
        groups=groups,
        samples=samples,
        covariates=tuple(covariates or ()),
        ignore=tuple(ignore or ()),
    )


def check_target(table: Path, target: str | None) -> None:
    """A column with classes must be named, but for formats that say themselves which it is."""
    says_itself = (".svmlight", ".libsvm", ".svmlight.gz", ".libsvm.gz", ".npz")
    if target is None and table.suffix.lower() == ".npy":
        raise typer.BadParameter(
            "a .npy file holds no classes: give them in a file of their own, --labels FILE."
        )
    if target is None and not table.name.lower().endswith(says_itself):
        raise typer.BadParameter("name the column with the class of each sample: --target COLUMN.")


def in_bytes(gigabytes: float | None) -> float | None:
    return None if gigabytes is None else GIGA * gigabytes


def shown(path: Path) -> str:
    """A path on one line however long, so that it can be copied, and unable to steer the terminal."""
    from foldless.io import printable

    return printable(path, longest=4096)
