"""How many threads BLAS may use."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


def one_blas_thread() -> AbstractContextManager[Any]:
    """A context in which BLAS runs on one thread.

    A sweep is thousands of products of one matrix block with one vector, bound by memory, where a second
    thread gains 15 % on an idle machine. On a busy one, threads that wait for each other at the end of every
    product made the same fit ten times slower. One thread also makes results the same to the last bit.
    """
    return _controller().limit(limits=1, user_api="blas")


@cache
def _controller() -> ThreadpoolController:
    # Looking for the libraries takes longer than a small fit; they do not change once SciPy is loaded.
    return ThreadpoolController()
