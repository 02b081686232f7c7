"""What is done with a table: `foldless check`, `fit` and `compare`."""

from __future__ import annotations

import time
from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from foldless.cli import options
from foldless.cli.terminal import ExitCode, exit_codes

# One and two columns of most journals.
FigureWidth = Enum("FigureWidth", {"89": "89", "183": "183"})


@options.reads_a_table(*options.ROLES)
def check(
    table: options.TableFile,
    asked: options.Asked,
    impute: options.Impute = options.NO_IMPUTATION,
    log_cpm: options.LogCpm = False,
) -> None:
    """Look at a table as `fit` would, without fitting: what it is, what may be wrong, and what to type.

    \b
    Example:
      foldless check expression.csv --target tissue
      foldless check expression.tsv --sample-sheet samples.csv
    """
    with exit_codes() as terminal:
        with terminal.status("Starting"):
            from foldless.io.read import read_table
            from foldless.runs.check import check_table
            from foldless.runs.printing import print_findings
        with terminal.status("Reading"):
            read = read_table(table, asked.roles, asked.reading, budget=asked.budget)
            findings = check_table(
                read, asked.roles, asked.reading, impute=impute.value, log_cpm=log_cpm, budget=asked.budget
            )
        print_findings(terminal, findings)


@options.reads_a_table(*options.ROLES)
def fit(
    table: options.LargeTableFile,
    asked: options.Asked,
    impute: options.Impute = options.NO_IMPUTATION,
    log_cpm: options.LogCpm = False,
    class_weight: Annotated[
        str | None,
        typer.Option(help="balanced, or LABEL=WEIGHT,LABEL=WEIGHT.", metavar="WEIGHTS", show_default=False),
    ] = None,
    fdr: options.Fdr = 0.1,
    model: options.Model = options.DEFAULT_MODEL,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder for results; named after the table by default.", file_okay=False),
    ] = None,
    learning_curve: Annotated[
        bool, typer.Option("--learning-curve", help="Also say what more samples would bring (seconds).")
    ] = False,
    panel: options.Panel = None,
    xlsx: Annotated[
        bool, typer.Option("--xlsx", help="Also write results.xlsx, a workbook of all tables.")
    ] = False,
    lists: Annotated[
        bool, typer.Option("--lists", help="Also write lists/ for enrichment tools: ranked .rnk, plain .txt.")
    ] = False,
    figures: Annotated[
        FigureWidth | None,
        typer.Option(
            help="Also write figures/: each picture as SVG and PDF, so many millimetres wide.",
            show_default=False,
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Classes in a file of their own, in the order of rows, for .npy and .zarr: a table of which "
            "--target names a column, or .npy.",
            dir_okay=False,
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where to record the fit, so that the same command resumes it if it is killed.",
            dir_okay=False,
        ),
    ] = None,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream", help="Leave rows on disk even if they fit into memory (.npy, .parquet, .zarr, .h5ad)."
        ),
    ] = False,
    seed: options.Seed = 0,
    threads: options.Threads = 1,
    dask: options.Dask = None,
    force: options.Force = False,
) -> None:
    """Find the features that tell classes apart, and learn to classify with them.

    Writes model.safetensors, features.tsv, predictions.tsv (leave-one-out), report.html and run.json; with
    --panel also panel.safetensors (a model of the panel's columns alone), panel.tsv (its members, and what
    could stand in), panel_sizes.tsv and panel.png (errors against sizes); to take along, with --xlsx, --lists
    and --figures, a workbook, lists of names and figures. A table that does not fit into memory stays on
    disk, if its format allows.

    \b
    Example:
      foldless fit expression.csv --target tissue --covariates batch --out results
      foldless fit expression.tsv --sample-sheet samples.csv --target "tissue type"
      foldless fit expression.csv --target tissue --panel 5,10,20
      foldless fit big.parquet --target tissue --dask tcp://scheduler:8786
    """
    if labels is None:
        options.check_target(table, asked.roles.target)
    if dask is not None:
        _check_for_cluster(learning_curve=learning_curve, panel=panel, labels=labels, stream=stream)
    sizes = options.panel_sizes(panel)
    with exit_codes() as terminal, ExitStack() as until_done:
        with terminal.status("Starting"):
            from threadpoolctl import threadpool_limits

            from foldless.runs import printing, results
            from foldless.runs.check import look_before_fit
            from foldless.runs.cluster import connected, read_on_workers
            from foldless.runs.fit import check_curve_is_known, fit_table, learning_curve_of, with_panel
            from foldless.runs.output_paths import default_folder, free_folder
            from foldless.runs.report import to_remember
            from foldless.runs.streaming import read_or_stream
            from foldless.runs.take_along import TakeAlong
        take_along = TakeAlong(xlsx, lists, None if figures is None else float(figures.value))
        of_panel = () if sizes is None else results.PANEL_RESULTS
        names = (*results.RESULTS, *of_panel, *take_along.names)
        folder = free_folder(out or default_folder(table), names, force=force)
        start = time.perf_counter()
        with terminal.status("Reading"):
            if dask is not None:
                until_done.enter_context(connected(dask))
                read = read_on_workers(table, asked.roles)
            else:
                read = read_or_stream(
                    table,
                    asked.roles,
                    asked.reading,
                    budget=asked.budget,
                    stream=stream,
                    labels=labels,
                    missing=impute is not options.NO_IMPUTATION,
                )
            take_along.check(read, model.value)
            if learning_curve:
                check_curve_is_known(read, model.value)
            cautions = look_before_fit(read, log_cpm=log_cpm)
        printing.print_cautions(terminal, cautions)
        read_seconds = time.perf_counter() - start
        with threadpool_limits(threads), terminal.status("Fitting") as status:
            run = fit_table(
                read,
                model=model.value,
                fdr=fdr,
                seed=seed,
                class_weight=class_weight,
                impute=impute.value,
                log_cpm=log_cpm,
                average=asked.reading.average,
                checkpoint=checkpoint,
                watch=printing.Progress(status),
            )
            if sizes is not None:
                status.update("Looking for a panel")
                run = with_panel(run, sizes)
        curve = None
        if learning_curve:
            with terminal.status("Extrapolating"):
                curve = learning_curve_of(run)
        with terminal.status("Writing"):
            facts = {"seed": seed, "threads": threads, "read_seconds": read_seconds, "cautions": cautions}
            facts[results.ASKED] = to_remember(table, asked.roles, asked.reading, labels)
            results.write_results(folder, run, facts, curve, take_along)
        printing.print_fit(terminal, run, folder, names)
        if not run.converged:
            raise typer.Exit(ExitCode.NOT_CONVERGED)


def _check_for_cluster(*, learning_curve: bool, panel: str | None, labels: Path | None, stream: bool) -> None:
    """Options that need the table here, or say where else it is."""
    given = {
        "--learning-curve": learning_curve,
        "--panel": panel is not None,
        "--labels": labels is not None,
        "--stream": stream,
    }
    for option, is_given in given.items():
        if is_given:
            raise typer.BadParameter(f"{option} needs the table on this machine; do without it, or --dask.")


@options.reads_a_table(*options.ROLES)
def compare(
    table: options.TableFile,
    asked: options.Asked,
    impute: options.Impute = options.NO_IMPUTATION,
    log_cpm: options.LogCpm = False,
    fdr: options.Fdr = 0.1,
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
                fdr=fdr,
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
