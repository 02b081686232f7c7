"""Options that several commands have, said once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from foldless.runs.models import DEFAULT, model_names

if TYPE_CHECKING:
    from foldless.io import Reading, Roles

GIGA = 1e9

ModelName = Enum("ModelName", {name: name for name in model_names()})  # type: ignore[misc]
DEFAULT_MODEL = ModelName(DEFAULT)
# Options that may be repeated, and that are there or not.
MANY, FLAGS = ("covariates", "categories", "ignore"), ("average", "tidy_labels")
Imputation = Enum("Imputation", {name: name for name in ("none", "median", "knn")})  # type: ignore[misc]
NO_IMPUTATION = Imputation("none")
READ = ".csv, .tsv (also .gz), .xlsx, .parquet, .h5ad, .svmlight, .npz"


def _table(suffixes: str) -> Any:
    return typer.Argument(metavar="TABLE", help=f"A table: {suffixes}.", show_default=False)


TableFile = Annotated[Path, _table(READ)]
LargeTableFile = Annotated[Path, _table(f"{READ}, .npy, .zarr")]
ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A file or folder made by `foldless fit`.", show_default=False)
]


def _number(value: float) -> float:
    # Older versions of Typer let NaN pass as a number between any two others.
    if value != value:
        raise typer.BadParameter("nan is no number.")
    return value


Fdr = Annotated[
    float,
    typer.Option(
        help="The share of false features to expect among those selected.", min=0, max=1, callback=_number
    ),
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
MaxMemory = Annotated[
    float | None,
    typer.Option(help="Gigabytes that may be used; most of what is free by default.", min=0, metavar="GB"),
]
Impute = Annotated[
    Imputation,
    typer.Option(
        help="Fill in missing values, in new samples too: by the median of the feature, or similar samples."
    ),
]
LogCpm = Annotated[
    bool, typer.Option("--log-cpm", help="Turn counts into log2(1 + counts per million), in new samples too.")
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


def _said(help: str, metavar: str = "COLUMN", kind: Any = str) -> Any:
    """An option that has no value unless it is given one."""
    return Annotated[kind | None, typer.Option(metavar=metavar, help=help, show_default=False)]


def _flag(help: str, *names: str) -> Any:
    return Annotated[bool, typer.Option(*names, help=help)]


# Options of every command that reads a table, by the names of what they become.
ROLES: dict[str, Any] = {
    "target": _said("The column with the class of each sample."),
    "covariates": _said(
        "A column to keep whatever the data say (age, batch), of numbers or words; may be repeated.",
        kind=list[str],
    ),
    "categories": _said("A covariate whose numbers are codes of categories.", kind=list[str]),
    "groups": _said("Samples alike here (one patient, one run) are left out together."),
    "samples": _said("The column with names of samples, if it is not the first."),
    "ignore": _said("A column to leave out; may be repeated.", kind=list[str]),
}
READING: dict[str, Any] = {
    "sample_sheet": _said(
        "A table with what belongs to samples: classes, groups, covariates; also the workbook itself, for "
        "its other sheet.",
        "FILE",
        kind=Path,
    ),
    "id": _said("The column of the sample sheet with names of samples."),
    "transpose": Annotated[
        bool | None,
        typer.Option(
            "--transpose/--no-transpose",
            help="Samples are in columns; recognised by default.",
            show_default=False,
        ),
    ],
    "sheet": _said("Of a spreadsheet; the first by default.", "NAME"),
    "layer": _said("Of an .h5ad, instead of X; raw for .raw.", "NAME"),
    "average": _flag("Average features of one name instead of numbering them.", "--average"),
    "tidy_labels": _flag("Join labels that differ by case or spaces only.", "--tidy-labels"),
    "delimiter": _said("Between columns of text; recognised by default.", "SIGN"),
    "decimal": _said("Of numbers in text; recognised by default.", "SIGN"),
    "encoding": _said("Of text; recognised by default.", "NAME"),
}


class Asked(NamedTuple):
    """What is to be read, and how."""

    roles: Roles
    reading: Reading
    budget: float | None


def reads_a_table(*roles: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command options for how its table is read, and these of its roles; it gets them as `asked`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters
        shared = {name: ROLES[name] for name in roles} | READING | {"max_memory": MaxMemory}

        def run(**given: Any) -> None:
            from foldless.io import Reading, Roles

            purposes = {name: given.pop(name) for name in roles}
            purposes |= {name: tuple(purposes[name] or ()) for name in MANY if name in purposes}
            read = {name: given.pop(name) for name in READING}
            gigabytes = given.pop("max_memory")
            budget = None if gigabytes is None else GIGA * gigabytes
            command(**given, asked=Asked(Roles(**purposes), Reading(**read), budget))

        keyword = inspect.Parameter.KEYWORD_ONLY
        added = [
            inspect.Parameter(name, keyword, default=False if name in FLAGS else None, annotation=kind)
            for name, kind in shared.items()
        ]
        first = [p for p in own.values() if p.default is p.empty and p.name != "asked"]
        rest = [p for p in own.values() if p.default is not p.empty]
        # Without a table to begin with, what is asked comes before how a table is read.
        ordered = (*first, *added, *rest) if first else (*rest, *added)
        parameters = [p.replace(kind=keyword) for p in ordered]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        return run

    return decorate


def check_target(table: Path, target: str | None) -> None:
    """A column with classes must be named, but for formats that have their own place for it."""
    says_itself = (".svmlight", ".libsvm", ".svmlight.gz", ".libsvm.gz", ".npz")
    if target is None and table.suffix.lower() == ".npy":
        raise typer.BadParameter(
            "a .npy file holds no classes: give them in a file of their own, --labels FILE."
        )
    if target is None and not table.name.lower().endswith(says_itself):
        raise typer.BadParameter(
            "name the column with the class of each sample: --target COLUMN. `foldless check` lists "
            "those that could be."
        )


def shown(path: Path) -> str:
    """A path on one line however long, so that it can be copied, and unable to steer the terminal."""
    from foldless.io import printable

    return printable(path, longest=4096)
