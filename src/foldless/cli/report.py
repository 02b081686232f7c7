"""`foldless report`: the page of a saved model and its table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foldless.cli import options
from foldless.cli.terminal import exit_codes


@options.reads_a_table("target", "groups", "samples")
def report(
    model: options.ModelFile,
    table: Annotated[
        Path, typer.Argument(metavar="TABLE", help="The table it was fitted to.", show_default=False)
    ],
    asked: options.Asked,
    out: Annotated[Path, typer.Option(help="The file for the page.", dir_okay=False)] = Path("report.html"),
    force: options.Force = False,
) -> None:
    """Write the report of a model again: one page that needs no network and runs no scripts.

    \b
    Example:
      foldless report results/model.safetensors expression.csv --target tissue --out page.html
    """
    with exit_codes() as terminal:
        with terminal.status("Starting"):
            import foldless
            from foldless.runs.output_paths import free_file
            from foldless.runs.predict import read_for
            from foldless.runs.results import report_again
        path = free_file(out, force=force)
        with terminal.status("Reading"):
            loaded = foldless.load(model)
            read = read_for(loaded, table, asked.roles, asked.reading, budget=asked.budget)
        with terminal.status("Writing"):
            report_again(path, loaded, read)
        typer.echo(f"Report: {options.shown(path)}")
