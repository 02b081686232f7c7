"""How many threads numerical libraries may use."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from threadpoolctl import threadpool_limits


def limited_threads(n_threads: int) -> AbstractContextManager[Any]:
    return threadpool_limits(limits=n_threads)
