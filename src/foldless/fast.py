"""Loops compiled by numba, if it is installed (pip install 'foldless[fast]'), and the threads they may use.

Everything works without. FOLDLESS_COMPILED=0 in the environment leaves numba alone where it is installed, and
NUMBA_NUM_THREADS bounds the threads, as joblib sets it in its workers.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

# Products with sparse matrices are bound by memory, which more threads than these do not make faster.
MOST_THREADS = 4


@cache
def loops(module: str) -> Any:
    """A module of compiled loops; None if there is no numba, or it is not wanted, or does not work."""
    # Asked for at the first fit and not at import: numba alone takes longer to load than all the rest.
    if os.environ.get("FOLDLESS_COMPILED") == "0" or importlib.util.find_spec("numba") is None:
        return None
    try:
        return importlib.import_module(module)
    # A numba that does not fit the NumPy beside it, or that finds no folder to keep compiled code in.
    except (ImportError, RuntimeError) as error:
        warnings.warn(
            f"numba is installed but cannot be used ({error}). foldless goes on in NumPy, slower, with the "
            "same results. Mend the installation, or set FOLDLESS_COMPILED=0 to silence this.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


_bound: ContextVar[int] = ContextVar("foldless_threads", default=MOST_THREADS)


def n_threads() -> int:
    """How many threads compiled loops may use: what numba would, no more than help or are allowed."""
    settings: Any = importlib.import_module("numba.core.config")
    return min(int(settings.NUMBA_NUM_THREADS), MOST_THREADS, _bound.get())


@contextmanager
def at_most(n_threads: int) -> Iterator[None]:
    """A context in which compiled loops use no more threads."""
    token = _bound.set(n_threads)
    try:
        yield
    finally:
        _bound.reset(token)


_whole: ContextVar[int] = ContextVar("foldless_whole", default=0)


@contextmanager
def part_of(n_numbers: int) -> Iterator[None]:
    """A context in which arrays are parts of one of so many numbers, and loops are worth it if it is."""
    token = _whole.set(n_numbers)
    try:
        yield
    finally:
        _whole.reset(token)


def whole(n_numbers: int) -> int:
    """How many numbers there are to go through, for one who sees so many of them."""
    return max(n_numbers, _whole.get())


def n_cores() -> int:
    """Of the machine, as far as this process may use them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(function: Callable[..., None], tasks: Sequence[tuple[Any, ...]]) -> None:
    """Call a function that gives the interpreter free, once for each tuple of arguments; wait for all.

    Tasks must not write to the same place. What they compute does not depend on how many threads there are.
    """
    width = min(n_threads(), len(tasks))

    def every(first: int) -> None:
        for task in tasks[first::width]:
            function(*task)

    # The caller's thread is one of them. numba's own threads are not used, since two callers at once crash
    # the one layer of theirs that is always there.
    others = [_pool(os.getpid()).submit(every, first) for first in range(1, width)]
    if tasks:
        every(0)
    for other in others:
        other.result()


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """The threads of this process: a forked one has none of its parent's."""
    return ThreadPoolExecutor(MOST_THREADS - 1, thread_name_prefix="foldless-loops")
