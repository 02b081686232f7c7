"""`foldless demo`: a simulated study, fitted and told."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foldless.cli import options
from foldless.cli.terminal import ExitCode, exit_codes


def demo(
    out: Annotated[
        Path, typer.Option(help="The folder for the picture and the report.", file_okay=False, writable=True)
    ] = Path("foldless-demo"),
    seed: Annotated[int, typer.Option(help="Another seed is another study.", min=0)] = 0,
    fdr: options.Fdr = 0.1,
) -> None:
    """Fit a simulated study of which the truth is known, and show how near the answer comes.

    \b
    Example:
      foldless demo --out demo --seed 1
    """
    with exit_codes() as terminal:
        with terminal.status("Starting"):
            from foldless.demo import run
        study = run(terminal, out, seed=seed, fdr=fdr)
        if not study.model.outcome_.trustworthy:
            raise typer.Exit(ExitCode.NOT_CONVERGED)
