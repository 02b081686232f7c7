"""The command line: each command reads its options and calls one function; failures become exit codes.

What takes long to import is imported inside the command that needs it, so that --help is quick.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

import foldless
from foldless.cli.demo import demo
from foldless.cli.plan import plan
from foldless.cli.saved import export, inspect, predict, report
from foldless.cli.tables import check, compare, fit

app = typer.Typer(
    name="foldless",
    no_args_is_help=True,
    add_completion=False,
    # Framed help and tracebacks would import rich for every --help, and show data in tracebacks.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"foldless {foldless.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Find the few features that decide a class, and classify with them: one fit, no folds."""


# In the order in which they are wanted, each in a line that fits beside its name.
COMMANDS: dict[Callable[..., None], str] = {
    check: "What a table is, what may be wrong with it, and what to type.",
    fit: "A model of a table, with all results, in a folder.",
    predict: "Classes of new samples.",
    report: "The page again, from the folder of a fit.",
    compare: "foldless beside L1, ridge and SVM, on the same splits.",
    export: "A model as ONNX, or its coefficients as a table.",
    inspect: "What a model file holds.",
    plan: "How many samples a study needs.",
    demo: "A simulated study with known truth.",
}
for command, line in COMMANDS.items():
    app.command(short_help=line)(command)
