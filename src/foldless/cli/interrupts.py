"""Ctrl-C, answered within a second whatever a library is busy with."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Python answers between two of its own steps, usually at once. A long product or a reader written in C keeps
# it waiting; after this many seconds the program ends without it.
PATIENCE = 0.7
INTERRUPTED = 130


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
            os._exit(INTERRUPTED)
