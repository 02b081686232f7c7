"""The only compiled code: arrays in, arrays out. numba compiles it, if it is installed (`foldless[fast]`).

Everything works without. FOLDLESS_COMPILED=0 in the environment leaves numba alone where it is installed, and
NUMBA_NUM_THREADS bounds the threads, as joblib sets it in its workers.

A kernel is a plain function marked by `kernel`. Importing its module imports no numba: `compiled` makes a
second copy of the module, in which every kernel is compiled when it is first called. What is compiled is kept
beside the source or in the user's cache folder, so that only the first fit of an installation waits.

A body written in array expressions serves both copies. Where NumPy needs another form for its speed, the two
stand side by side under one signature: the plain one has the name, and `kernel(instead_of=name)` marks the
loops that take its place in the compiled copy.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from numbers import Integral
from types import FunctionType, SimpleNamespace
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

# Products with sparse matrices are bound by memory, which more threads than these do not make faster.
MOST_THREADS = 4
OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy"}

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(instead_of: Callable[..., Any] | None = None, **options: Any) -> Callable[[Function], Function]:
    """Mark a function for numba, with further options of `numba.njit`; here it stays as it is."""

    def mark(function: Function) -> Function:
        function.kernel = (instead_of or function).__name__, OPTIONS | options  # type: ignore[attr-defined]
        return function

    return mark


@cache
def compiled(name: str) -> Any:
    """The kernels of `foldless.kernels.<name>`; None if there is no numba, or it is unwanted or broken."""
    # Called at the first fit and not at import: numba alone takes longer to load than all the rest.
    if os.environ.get("FOLDLESS_COMPILED") == "0" or importlib.util.find_spec("numba") is None:
        return None
    try:
        numba: Any = importlib.import_module("numba")
        plain = vars(importlib.import_module(f"{__name__}.{name}"))
        copy = dict(plain)
        for function in plain.values():
            if hasattr(function, "kernel"):
                shown_as, options = function.kernel
                # The same code, for which other names of the module are those of the copy.
                copy[shown_as] = numba.njit(**options)(
                    FunctionType(function.__code__, copy, function.__name__, function.__defaults__)
                )
        return SimpleNamespace(**copy)
    # A numba that does not fit the NumPy beside it, whose library cannot be loaded, as where memory is short,
    # or that finds no folder to keep compiled code in.
    except (ImportError, OSError, RuntimeError) as error:
        warnings.warn(
            f"numba is installed but cannot be used ({error}). foldless goes on in NumPy, slower, with the "
            "same results. Mend the installation, or set FOLDLESS_COMPILED=0 to silence this.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


def fastest(name: str, worth: bool = True) -> Any:
    """The compiled kernels of that name if there are any and they are worth it, else the plain ones."""
    return (compiled(name) if worth else None) or importlib.import_module(f"{__name__}.{name}")


_bound: ContextVar[int] = ContextVar("foldless_threads", default=MOST_THREADS)
_whole: ContextVar[int] = ContextVar("foldless_whole", default=0)


def n_threads() -> int:
    """How many threads compiled loops may use: what numba would, no more than help or are allowed."""
    settings: Any = importlib.import_module("numba.core.config")
    return min(int(settings.NUMBA_NUM_THREADS), MOST_THREADS, _bound.get())


def at_most(n_threads: int) -> AbstractContextManager[None]:
    """A context in which compiled loops use no more threads."""
    return _within(_bound, n_threads)


def part_of(n_numbers: int) -> AbstractContextManager[None]:
    """A context in which arrays are parts of one of so many numbers, and loops are worth it if it is."""
    return _within(_whole, n_numbers)


@contextmanager
def _within(variable: ContextVar[int], value: int) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def whole(n_numbers: int) -> int:
    """How many numbers there are to go through, where so many of them are at hand."""
    return max(n_numbers, _whole.get())


def n_cores() -> int:
    """Of the machine, as far as this process may use them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(function: Callable[..., None], tasks: Sequence[tuple[Any, ...]]) -> None:
    """Call a kernel once for each tuple of arguments, in threads if it is compiled; wait for all.

    Tasks must not write to the same place. What they compute does not depend on how many threads there are.
    """
    # A plain function holds the interpreter: threads would only wait for each other.
    is_compiled = hasattr(function, "py_func")
    width = min(n_threads(), len(tasks)) if is_compiled and len(tasks) > 1 else 1

    def every(first: int) -> None:
        for task in tasks[first::width]:
            function(*task)

    # The caller's thread is one of them. numba's own threads are not used, since two callers at once crash
    # the one layer of theirs that is always there.
    others = [_pool(os.getpid()).submit(every, first) for first in range(1, width)]
    every(0)
    for other in others:
        other.result()


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """The threads of this process: a forked one has none of its parent's."""
    return ThreadPoolExecutor(MOST_THREADS - 1, thread_name_prefix="foldless-loops")


# ---------------------------------------------------------------------- how many threads a fit may use


def one_blas_thread() -> AbstractContextManager[Any]:
    """A context in which BLAS runs on one thread.

    A sweep is thousands of products of one matrix block with one vector, bound by memory, where a second
    thread gains 15 % on an idle machine. On a busy one, threads that wait for each other at the end of every
    product made the same fit ten times slower. One thread also makes results the same to the last bit.
    """
    return _controller().limit(limits=1, user_api="blas")


@contextmanager
def bounded_threads(n_jobs: int | None) -> Iterator[None]:
    """A context in which no more threads are used, for those who know their machine to be idle.

    None is one thread for BLAS, for the reasons above, and what numba is set to for compiled loops, which do
    not wait for each other more than once in a block. -1 is every core.
    """
    if n_jobs is None:
        with one_blas_thread():
            yield
        return
    width = checked_n_jobs(n_jobs)
    with _controller().limit(limits=width, user_api="blas"), at_most(width):
        yield


def checked_n_jobs(n_jobs: int) -> int:
    """The number of threads; -1 means all cores, as elsewhere in scikit-learn."""
    if not isinstance(n_jobs, Integral) or isinstance(n_jobs, bool) or n_jobs == 0 or n_jobs < -1:
        raise ValueError(f"n_jobs must be None, a number of threads, or -1 for all cores; got {n_jobs!r}.")
    return n_cores() if n_jobs == -1 else int(n_jobs)


@cache
def _controller() -> ThreadpoolController:
    # Looking for the libraries takes longer than a small fit; they do not change once SciPy is loaded.
    return ThreadpoolController()
