"""`foldless check`: a dry run."""

from __future__ import annotations

from foldless.cli import options
from foldless.cli.terminal import exit_codes


def check(
    table: options.TableFile,
    target: options.Target = None,
    covariates: options.Covariates = None,
    groups: options.Groups = None,
    samples: options.Samples = None,
    ignore: options.Ignore = None,
    delimiter: options.Delimiter = None,
    max_memory: options.MaxMemory = None,
) -> None:
    """Look at a table as `fit` would, without fitting: shapes, memory needed, problems found.

    \b
    Example:
      foldless check expression.csv --target tissue
    """
    options.check_target(table, target)
    with exit_codes() as terminal:
        with terminal.status("Starting"):
            from foldless.io.read import read_table
            from foldless.runs.check import check_table
            from foldless.runs.printing import print_findings
        with terminal.status("Reading"):
            asked = options.roles(target, covariates, groups, samples, ignore)
            budget = options.in_bytes(max_memory)
            read = read_table(table, asked, delimiter=delimiter, budget=budget)
            findings = check_table(read, budget=budget)
        print_findings(terminal, findings)
