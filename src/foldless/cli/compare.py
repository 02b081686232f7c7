"""`foldless compare`: foldless beside scikit-learn's usual choices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foldless.cli import options
from foldless.cli.terminal import exit_codes


@options.reads_a_table(*options.ROLES)
def compare(
    table: options.TableFile,
    asked: options.Asked,
    impute: options.Impute = options.NO_IMPUTATION,
    log_cpm: options.LogCpm = False,
    model: options.Model = options.DEFAULT_MODEL,
    splits: Annotated[int, typer.Option(help="Parts that take turns as the test part.", min=2)] = 5,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A folder for comparison.tsv and run.json; nothing is written without.", file_okay=False
        ),
    ] = None,
    seed: options.Seed = 0,
    threads: options.Threads = 1,
    force: options.Force = False,
) -> None:
    """Compare with L1 and ridge logistic regression and a linear SVM, all on the same splits.

    Rivals are scikit-learn's, tuned by cross-validation inside each training part.

    \b
    Example:
      foldless compare expression.csv --target tissue --splits 5
    """
    options.check_target(table, asked.roles.target)
    with exit_codes() as terminal:
        with terminal.status("Starting"):
            from threadpoolctl import threadpool_limits

            from foldless.io.read import read_table
            from foldless.runs import results
            from foldless.runs.compare import compare_table
            from foldless.runs.output_paths import free_folder
            from foldless.runs.printing import print_comparison
        folder = None if out is None else free_folder(out, results.COMPARISON_RESULTS, force=force)
        with terminal.status("Reading"):
            read = read_table(table, asked.roles, asked.reading, budget=asked.budget)
        with threadpool_limits(threads), terminal.status("Comparing") as status:
            scores = compare_table(
                read,
                model=model.value,
                n_splits=splits,
                seed=seed,
                threads=threads,
                impute=impute.value,
                log_cpm=log_cpm,
                watch=status.update,
            )
        if folder is not None:
            results.write_comparison(folder, read, scores, {"seed": seed, "threads": threads})
        print_comparison(terminal, read, scores, folder)
