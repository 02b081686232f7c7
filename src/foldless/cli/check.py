"""`foldless check`: a dry run."""

from __future__ import annotations

from foldless.cli import options
from foldless.cli.terminal import exit_codes


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
