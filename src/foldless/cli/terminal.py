"""What every command shares: its terminal, failures as exit codes, and interrupts that are answered."""

from __future__ import annotations

import io
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console

# Python answers Ctrl-C between two of its own steps, usually at once. A long product or a reader written in C
# keeps it waiting; after this many seconds the program ends without it.
PATIENCE = 0.7


class ExitCode(IntEnum):
    """What the shell is told. A wrong option is 2, given by Typer itself."""

    FAILED = 1
    USAGE = 2
    BAD_DATA = 3
    NOT_CONVERGED = 4  # results are written, and marked
    OUT_OF_MEMORY = 5  # or of what may be used of it
    INTERRUPTED = 130


@contextmanager
def exit_codes() -> Iterator[Console]:
    """The terminal; one line and an exit code for what can go wrong outside the program, a traceback for
    the rest.
    """
    from rich.console import Console

    for stream in (sys.stdout, sys.stderr):
        # Written to a file on Windows, text is in the code page of the country, which has no Greek letters.
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")
    try:
        with answered_interrupts():
            # Names are shown as they are: no markup, no emoji, no guessed colours.
            yield Console(markup=False, emoji=False, highlight=False)
    except KeyboardInterrupt:
        _fail("interrupted.", ExitCode.INTERRUPTED)
    except BrokenPipeError:
        raise  # the reader of a pipe has seen enough, which Typer ends quietly
    except FileExistsError as error:
        _fail(str(error), ExitCode.USAGE)
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        _fail(f"{error.strerror or error}{where}", ExitCode.FAILED)
    except ModuleNotFoundError as error:
        _fail(str(error), ExitCode.FAILED)
    except MemoryError as error:
        advice = "Use a machine with more memory, or keep fewer columns."
        _fail(str(error) or f"out of memory. {advice}", ExitCode.OUT_OF_MEMORY)
    except ValueError as error:
        _fail(str(error), ExitCode.BAD_DATA)


def _fail(message: str, code: ExitCode) -> NoReturn:
    from foldless.io import printable

    typer.echo(f"foldless: {printable(message, longest=2000)}", err=True)
    raise typer.Exit(code)


@contextmanager
def answered_interrupts() -> Iterator[None]:
    """While this lasts, SIGINT ends the program within a second: by KeyboardInterrupt, or at once."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals come to the main thread only
        return
    listener, teller = socket.socketpair()
    teller.setblocking(False)
    ended = threading.Event()
    guard = threading.Thread(target=_guard, args=(listener, ended), daemon=True)
    before = signal.set_wakeup_fd(teller.fileno(), warn_on_full_buffer=False)
    guard.start()
    try:
        yield
    finally:
        ended.set()
        signal.set_wakeup_fd(before)
        teller.close()
        guard.join()
        listener.close()


def _guard(listener: socket.socket, ended: threading.Event) -> None:
    while received := listener.recv(64):
        if signal.SIGINT in received and not ended.wait(PATIENCE):
            from foldless.io.files import remove_unfinished

            remove_unfinished()
            sys.stderr.write("foldless: interrupted.\n")
            sys.stderr.flush()
            os._exit(ExitCode.INTERRUPTED)
