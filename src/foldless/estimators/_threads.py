"""How many threads a fit may use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from numbers import Integral
from typing import Any

from threadpoolctl import ThreadpoolController

from foldless import kernels


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
    with _controller().limit(limits=width, user_api="blas"), kernels.at_most(width):
        yield


def checked_n_jobs(n_jobs: int) -> int:
    """The number of threads; -1 means all cores, as elsewhere in scikit-learn."""
    if not isinstance(n_jobs, Integral) or isinstance(n_jobs, bool) or n_jobs == 0 or n_jobs < -1:
        raise ValueError(f"n_jobs must be None, a number of threads, or -1 for all cores; got {n_jobs!r}.")
    return kernels.n_cores() if n_jobs == -1 else int(n_jobs)


@cache
def _controller() -> ThreadpoolController:
    # Looking for the libraries takes longer than a small fit; they do not change once SciPy is loaded.
    return ThreadpoolController()
