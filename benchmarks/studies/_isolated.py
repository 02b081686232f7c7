"""One measurement in a process of its own: it can be given up, its memory is its own, one thread is all."""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from benchmarks.studies import _common as common

# Threads are counted when the libraries are loaded, so a child must find this in its environment.
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Clocked(NamedTuple):
    """A result and what it cost."""

    result: Any
    seconds: float
    cpu_seconds: float  # of one thread: what the wall clock would say if nobody else were at work
    warned: str

    @property
    def cost(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "cpu_seconds": self.cpu_seconds, "warned": self.warned}


def clocked(call: Callable[[], Any]) -> Clocked:
    """Call, with both clocks."""
    start = time.process_time()
    result, seconds, warned = common.timed(call)
    return Clocked(result, seconds, time.process_time() - start, warned)


def peak_bytes() -> int:
    """The most memory this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def isolated(
    measure: Callable[..., dict[str, Any]],
    *arguments: Any,
    patience: float | None = None,
    memory: int | None = None,
) -> dict[str, Any]:
    """``measure(*arguments)`` in a fresh process, whose row gains the peak of its memory.

    Whatever takes longer than `patience` seconds or asks for more than `memory` bytes beyond what the
    libraries take is given up, and ``{"stopped": why}`` is the row.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        child = context.Process(target=_child, args=(there, measure, arguments, memory))
        child.start()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    there.close()
    try:
        if not here.poll(patience):
            return {"stopped": f"over {patience:.0f} s"}
        row, error = here.recv()
    except EOFError:
        child.join()
        return {"stopped": f"ended with code {child.exitcode}"}
    finally:
        child.kill()
        child.join()
    if error:
        raise RuntimeError(f"{measure.__name__} failed in its process:\n{error}")
    return dict(row)


def _child(
    there: Connection,
    measure: Callable[..., dict[str, Any]],
    arguments: tuple[Any, ...],
    memory: int | None,
) -> None:
    try:
        if memory is not None:
            # Address space is what can be limited; libraries reserve some that they never touch.
            resource.setrlimit(resource.RLIMIT_AS, (_address_space() + memory,) * 2)
        row = measure(*arguments)
        there.send((row | {"peak_mb": peak_bytes() / 2**20}, ""))
    except MemoryError:
        there.send(({"stopped": f"over {(memory or 0) / 2**30:.1f} GB"}, ""))
    except BaseException:
        there.send(({}, traceback.format_exc()))


def _address_space() -> int:
    """Bytes of address space in use; only Linux tells, and elsewhere none is counted."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0
