"""What every command shares: how it speaks to the terminal, and how failures become exit codes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console


class ExitCode(IntEnum):
    """What the shell is told. A wrong option is 2, given by Typer itself."""

    FAILED = 1
    BAD_DATA = 3
    NOT_CONVERGED = 4  # results are written, and marked
    INTERRUPTED = 130


def console() -> Console:
    """A terminal in which names are shown as they are: no markup, no emoji, no guessed colours."""
    from rich.console import Console

    return Console(markup=False, emoji=False, highlight=False)


@contextmanager
def exit_codes() -> Iterator[None]:
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
    from foldless.io import printable

    typer.echo(f"foldless: {printable(message, longest=2000)}", err=True)
    raise typer.Exit(code)
