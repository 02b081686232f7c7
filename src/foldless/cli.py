"""The command line: each command reads its options and calls one function; failures become exit codes.

What takes long to import is imported inside the command that needs it, so that --help is quick.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import foldless

if TYPE_CHECKING:
    from rich.console import Console


class ExitCode(IntEnum):
    """What the shell is told. A wrong option is 2, given by Typer itself."""

    FAILED = 1
    BAD_DATA = 3
    NOT_CONVERGED = 4  # results are written, and marked
    INTERRUPTED = 130


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


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option(help="The folder for the picture.", file_okay=False, writable=True)
    ] = Path("foldless-demo"),
    seed: Annotated[int, typer.Option(help="Another seed is another study.", min=0)] = 0,
    fdr: Annotated[
        float, typer.Option(help="The false discovery rate of the selection.", min=0, max=1)
    ] = 0.1,
) -> None:
    """Fit a simulated study of which the truth is known, and show how near the answer comes."""
    with _exit_codes():
        console = _console()
        with console.status("Starting"):
            from foldless.demo import run
        study = run(console, out, seed=seed, fdr=fdr)
        if not study.model.outcome_.trustworthy:
            raise typer.Exit(ExitCode.NOT_CONVERGED)


def _console() -> Console:
    """A terminal in which names are shown as they are: no markup, no emoji, no guessed colours."""
    from rich.console import Console

    return Console(markup=False, emoji=False, highlight=False)


@contextmanager
def _exit_codes() -> Iterator[None]:
    """One line and an exit code for what can go wrong outside the program; a traceback for the rest."""
    try:
        yield
    except KeyboardInterrupt:
        _fail("interrupted.", ExitCode.INTERRUPTED)
    except BrokenPipeError:
        raise  # the reader of a pipe has seen enough, which Typer ends quietly
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        _fail(f"{error.strerror or error}{where}", ExitCode.FAILED)
    except ValueError as error:
        _fail(str(error), ExitCode.BAD_DATA)


def _fail(message: str, code: ExitCode) -> None:
    from foldless.plots import printable

    typer.echo(f"foldless: {printable(message, longest=2000)}", err=True)
    raise typer.Exit(code)


if __name__ == "__main__":
    app()
