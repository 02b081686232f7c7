"""`foldless export`: a model for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foldless.cli import options
from foldless.cli.terminal import exit_codes


def export(
    model: options.ModelFile,
    out: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="What to write: .onnx for other runtimes, .csv or .tsv for coefficients.",
            show_default=False,
        ),
    ],
    force: options.Force = False,
) -> None:
    """Write a model as ONNX, or its coefficients as a table.

    \b
    Example:
      foldless export results/model.safetensors model.onnx
    """
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
