"""The command line: each command reads its options and calls one function; failures become exit codes.

What takes long to import is imported inside the command that needs it, so that --help is quick.
"""

from __future__ import annotations

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


for command in (demo, check, fit, predict, report, inspect, export, compare, plan):
    app.command()(command)
