"""`foldless predict`: classes of new samples, by a saved model."""

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
      foldless predict results/model.safetensors new-samples.csv --out new.tsv
    """
    with exit_codes() as terminal:
        with terminal.status("Starting"):
            import foldless
            from foldless.runs.output_paths import default_name, free_file
            from foldless.runs.predict import predict_table, read_for
            from foldless.runs.printing import print_prediction
        path = free_file(out or Path(f"{default_name(table)}-predictions.tsv"), force=force)
        with terminal.status("Reading"):
            loaded = foldless.load(model)
            read = read_for(loaded, table, asked.roles, asked.reading, budget=asked.budget)
        with terminal.status("Predicting"):
            prediction = predict_table(loaded, read)
        prediction.write(path)
        print_prediction(terminal, prediction, path)
