"""What is done with a saved model: `foldless predict`, `report`, `inspect` and `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foldless.cli import options
from foldless.cli.terminal import exit_codes


@options.reads_a_table("target", "samples")
def predict(
    model: options.ModelFile,
    table: options.LargeTableFile,
    asked: options.Asked,
    out: Annotated[
        Path | None,
        typer.Option(help="The file for predictions; named after the table by default.", dir_okay=False),
    ] = None,
    force: options.Force = False,
) -> None:
    """Predict the classes of a table's samples; columns are found by their names.

    With --target, the true classes as far as they are known, errors are counted.

    \b
    Example:
      foldless predict results new-samples.csv --out new.tsv
    """
    with exit_codes() as terminal:
        with terminal.status("Starting"):
            import foldless
            from foldless.runs.output_paths import default_name, free_file
            from foldless.runs.predict import predict_table, read_for
            from foldless.runs.printing import print_prediction
        if table.suffix.lower() == ".safetensors":
            raise typer.BadParameter(
                f"{options.shown(table)} is a model: it comes first, then the table of new samples."
            )
        path = free_file(out or Path(f"{default_name(table)}-predictions.tsv"), force=force)
        with terminal.status("Reading"):
            loaded = foldless.load(model)
            read = read_for(loaded, table, asked.roles, asked.reading, budget=asked.budget)
        with terminal.status("Predicting"):
            prediction = predict_table(loaded, read)
        prediction.write(path)
        print_prediction(terminal, prediction, path)


@options.reads_a_table("target", "groups", "samples")
def report(
    model: options.ModelFile,
    asked: options.Asked,
    table: Annotated[
        Path | None,
        typer.Argument(
            metavar="[TABLE]",
            help="The table it was fitted to, if it is no longer where it was.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The file for the page.", dir_okay=False)] = Path("report.html"),
    force: options.Force = False,
) -> None:
    """Write the report of a model again: one page that needs no network and loads nothing.

    Where the table is, and how it was read, is in the run.json of the fit; options overrule that.

    \b
    Example:
      foldless report results --out page.html
      foldless report results/model.safetensors moved/expression.csv --out page.html
    """
    with exit_codes() as terminal:
        with terminal.status("Starting"):
            from foldless.runs.output_paths import free_file
            from foldless.runs.report import read_again, write_again
        path = free_file(out, force=force)
        with terminal.status("Reading"):
            again = read_again(model, table, asked.roles, asked.reading, budget=asked.budget)
        with terminal.status("Writing"):
            write_again(path, again)
        typer.echo(f"Report: {options.shown(path)}")


def inspect(model: options.ModelFile) -> None:
    """Say what a model file holds: who made it, of what, and how well it does. Nothing in it is run.

    \b
    Example:
      foldless inspect results/model.safetensors
    """
    with exit_codes() as terminal:
        with terminal.status("Starting"):
            import foldless
            from foldless.io.archive import read_archive
            from foldless.runs.printing import print_model
        archive = read_archive(model, with_arrays=False)
        print_model(terminal, archive.metadata, foldless.load(model))


def export(
    model: options.ModelFile,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="What to write: .onnx for other runtimes, .csv or .tsv for coefficients.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The same as FILE.", dir_okay=False, show_default=False)
    ] = None,
    force: options.Force = False,
) -> None:
    """Write a model as ONNX, or its coefficients as a table.

    \b
    Example:
      foldless export results model.onnx
      foldless export results --out weights.csv
    """
    if (file is None) == (out is None):
        raise typer.BadParameter("name one file to write: .onnx, .csv or .tsv.")
    out = file or out
    assert out is not None
    with exit_codes():
        import foldless
        from foldless.export import write_coefficients, write_onnx
        from foldless.runs.output_paths import free_file

        writers = {".onnx": write_onnx, ".csv": write_coefficients, ".tsv": write_coefficients}
        if out.suffix.lower() not in writers:
            raise typer.BadParameter(f"the suffix of {options.shown(out)} is none of .onnx, .csv, .tsv.")
        path = free_file(out, force=force)
        writers[out.suffix.lower()](foldless.load(model), path)
        typer.echo(f"Written: {options.shown(path)}")
