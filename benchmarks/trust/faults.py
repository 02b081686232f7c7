"""Faults of the machine at random moments of a fit: the right result follows, or an error with a name.

    python -m benchmarks.trust.faults --runs 20

A run is a process of its own, with LIMIT seconds. The right result has the bytes of an undisturbed fit; an
error must be one of those that stand beside the fault, and its message must name what was lost. An old file
must be whole afterwards, and a fit that was cut short must go on from its checkpoint to the right result.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import random
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.trust.fuzz import mutated
from foldless import SparseClassifier
from foldless.datasets import make_class_means
from foldless.io.journal import BadJournal

LIMIT = 60.0
MODEL, JOURNAL = "model.foldless", "fit.journal"
NOBODY = 65534


class Cut(Exception):
    """A fit that ends here, as by a kill."""


class Place:
    """A folder with an old model, a table, and what an undisturbed fit of it gives."""

    folder: Path

    def __init__(self, folder: Path) -> None:
        self.data = make_class_means(60, 300, 4, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            old = make_class_means(40, 300, 4, random_state=1)
            self.old = SparseClassifier().fit(old.X, old.y).save(folder / "old").read_bytes()
            self.n_iterations = 0

            def count(*_: Any) -> None:
                self.n_iterations += 1

            model = SparseClassifier()
            model._on_iteration = count
            self.whole = model.fit(self.data.X, self.data.y).save(folder / "whole").read_bytes()
        self.coef = model.coef_

    def ready(self, folder: Path) -> None:
        self.folder = folder
        (folder / MODEL).write_bytes(self.old)

    def fit(self, act: Callable[[], None] | None = None, at: int = 0, X: Any = None, **options: Any) -> Any:
        """Something happens at an iteration."""
        model, seen = SparseClassifier(**options), [0]

        def watch(*_: Any) -> None:
            seen[0] += 1
            if seen[0] == at and act is not None:
                act()

        model._on_iteration = watch
        return model.fit(self.data.X if X is None else X, self.data.y)

    def saved(self, **options: Any) -> str:
        path = self.fit(**options).save(self.folder / MODEL)
        return "right" if path.read_bytes() == self.whole else "another result"

    def old_is_whole(self, error: BaseException, name: str) -> str:
        """Of an error that must name a file, or its folder."""
        if (self.folder / MODEL).read_bytes() != self.old:
            return "the old file was damaged"
        told = f"{error} {getattr(error, 'filename', '')}"
        return f"named {type(error).__name__}" if name in told else f"without its name: {error!r}"

    def goes_on(self, error: BaseException, name: str) -> str:
        verdict = self.old_is_whole(error, name)
        if not verdict.startswith("named"):
            return verdict
        with _file_size(resource.RLIM_INFINITY):
            after = self.saved(checkpoint=self.folder / JOURNAL)
        return verdict if after == "right" else f"{after} after going on"


@contextlib.contextmanager
def _file_size(most: int) -> Iterator[None]:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))


def full_disk_for_the_model(place: Place, rng: random.Random) -> str:
    model = place.fit()
    try:
        with _file_size(rng.randrange(len(place.whole))):
            model.save(place.folder / MODEL)
    except OSError as error:
        return place.old_is_whole(error, MODEL)
    return "no error"


def full_disk_for_the_checkpoint(place: Place, rng: random.Random) -> str:
    try:
        with _file_size(rng.randrange(1, 20_000)):
            place.fit(checkpoint=place.folder / JOURNAL)
    except OSError as error:
        return place.goes_on(error, JOURNAL)
    return "right" if place.saved() == "right" else "another result"


def input_output_error(place: Place, rng: random.Random) -> str:
    """Of what is to reach the disk, at any time."""
    sync, left = os.fsync, [rng.randrange(4)]

    def fails(descriptor: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(descriptor)

    os.fsync = fails
    try:
        return place.saved(checkpoint=place.folder / JOURNAL)
    except OSError as error:
        os.fsync = sync
        name = JOURNAL if JOURNAL in f"{error} {error.filename}" else MODEL
        return place.goes_on(error, name)
    finally:
        os.fsync = sync


def permission_lost(place: Place, rng: random.Random) -> str:
    """The folder becomes read-only while a fit goes on in it."""
    if os.getuid() == 0:
        for path in (place.folder, *place.folder.iterdir()):
            os.chown(path, NOBODY, NOBODY)
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    at = rng.randrange(1, place.n_iterations)
    try:
        place.saved(act=lambda: place.folder.chmod(0o500), at=at, checkpoint=place.folder / JOURNAL)
    except PermissionError as error:
        place.folder.chmod(0o700)
        name = JOURNAL if JOURNAL in f"{error} {error.filename}" else MODEL
        return place.goes_on(error, name)
    return "no error"


def clock_jumps(place: Place, rng: random.Random) -> str:
    """Back or ahead by years."""
    now = time.time

    def jump() -> None:
        by = rng.uniform(-1e9, 1e9)
        time.time = lambda: now() + by

    return place.saved(act=jump, at=rng.randrange(1, place.n_iterations), checkpoint=place.folder / JOURNAL)


def memory_runs_out(place: Place, rng: random.Random) -> str:
    """The process may have so much more than it has."""
    wide = make_class_means(200, 20_000, 4, random_state=0)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + rng.randrange(60 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    try:
        model = SparseClassifier(max_iter=30).fit(wide.X, wide.y)
    except MemoryError:
        return "named MemoryError"
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return "right" if np.isfinite(model.coef_).all() else "another result"


def interrupted(place: Place, rng: random.Random) -> str:
    """Ctrl-C, twice in half of the runs."""
    times = 1 + rng.randrange(2)

    def press() -> None:
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    at, options = rng.randrange(1, place.n_iterations), {"checkpoint": place.folder / JOURNAL}
    try:
        model = place.fit(act=press, at=at, **options)
        named = f"named {model.outcome_}"
    except KeyboardInterrupt:
        named = "named KeyboardInterrupt"
    after = place.saved(**options)
    return named if after == "right" else f"{after} after going on"


def damaged_checkpoint(place: Place, rng: random.Random) -> str:
    def cut() -> None:
        raise Cut

    journal = place.folder / JOURNAL
    with contextlib.suppress(Cut):
        place.fit(act=cut, at=rng.randrange(2, place.n_iterations), checkpoint=journal)
    journal.write_bytes(mutated(journal.read_bytes(), np.random.default_rng(rng.randrange(1 << 32))))
    try:
        return place.saved(checkpoint=journal)
    except BadJournal as error:
        return place.old_is_whole(error, JOURNAL)


# ------------------------------------------------------------------------------- on a cluster

CLUSTER = """
import os, sys, time
from distributed import LocalCluster
if __name__ == "__main__":
    cluster = LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, processes=sys.argv[2] == "1", protocol="tcp://"
    )
    open(sys.argv[1] + ".part", "w").write(cluster.scheduler_address)
    os.replace(sys.argv[1] + ".part", sys.argv[1])
    time.sleep(3600)
"""


@contextlib.contextmanager
def _cluster(place: Place, processes: bool = False) -> Iterator[Any]:
    """Of a scheduler and workers that are programs of their own, and its client."""
    from distributed import Client

    script, address = place.folder / "cluster.py", place.folder / "address"
    script.write_text(CLUSTER)
    address.unlink(missing_ok=True)
    with subprocess.Popen(
        [sys.executable, str(script), str(address), str(int(processes))],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    ) as program:  # fmt: skip
        try:
            while not address.exists():
                if program.poll() is not None:
                    raise RuntimeError("the cluster did not start")
                time.sleep(0.05)
            client = Client(address.read_text())
            yield program, client
            with contextlib.suppress(Exception):
                client.close(timeout=1)
        finally:
            os.killpg(program.pid, signal.SIGKILL)


def _on_dask(place: Place, **options: Any) -> str:
    import dask.array as da

    X = options.pop("X", None)
    X = da.from_array(place.data.X, chunks=(20, -1)) if X is None else X
    model = place.fit(X=X, **options)
    close = np.allclose(model.coef_, place.coef, rtol=1e-9, atol=1e-10 * np.abs(place.coef).max())
    return "right" if close else "another result"


def _lost(place: Place, error: BaseException) -> str:
    """A message that names the checkpoint; and going on without the cluster gives the right result."""
    from foldless.operators import ClusterLost

    if not isinstance(error, ClusterLost) or "checkpoint" not in str(error):
        return f"without its name: {error!r}"
    after = _on_dask(place, checkpoint=place.folder / JOURNAL)
    return f"named {type(error).__name__}" if after == "right" else f"{after} after going on"


def worker_killed(place: Place, rng: random.Random) -> str:
    with _cluster(place, processes=True) as (_, client):
        workers = list(client.run(os.getpid).values())

        def kill() -> None:
            for victim in workers[: rng.randrange(1, 3)]:
                os.kill(victim, signal.SIGKILL)

        return _on_dask(place, act=kill, at=rng.randrange(1, place.n_iterations))


def scheduler_killed(place: Place, rng: random.Random) -> str:
    with _cluster(place) as (program, client):
        try:
            return _on_dask(
                place, act=program.kill, at=rng.randrange(1, place.n_iterations),
                checkpoint=place.folder / JOURNAL,
            )  # fmt: skip
        except ConnectionError as error:
            client.close(timeout=1)
            return _lost(place, error)


def network_cut(place: Place, rng: random.Random) -> str:
    """The connection is gone, the scheduler is not."""
    with _cluster(place) as (_, client):
        try:
            return _on_dask(
                place, act=lambda: client.loop.add_callback(client.scheduler_comm.comm.abort),
                at=rng.randrange(1, place.n_iterations), checkpoint=place.folder / JOURNAL,
            )  # fmt: skip
        except ConnectionError as error:
            client.close(timeout=1)
            return _lost(place, error)


def slow_worker(place: Place, rng: random.Random) -> str:
    import dask.array as da

    slow, delay = rng.randrange(3), rng.uniform(0.1, 1.0)

    def delayed(part: Any, block_info: Any = None) -> Any:
        if block_info and block_info[0]["chunk-location"][0] == slow:
            time.sleep(delay)
        return part

    with _cluster(place):
        X = da.from_array(place.data.X, chunks=(20, -1)).map_blocks(delayed, meta=np.empty((0, 0)))
        return _on_dask(place, X=X)


def task_that_raises(place: Place, rng: random.Random) -> str:
    import dask.array as da

    name = f"shard-{rng.randrange(1000)}.npy"

    def gone(part: Any) -> Any:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)

    X = da.from_array(place.data.X, chunks=(20, -1)).map_blocks(gone, meta=np.empty((0, 0)))
    with _cluster(place):
        try:
            return _on_dask(place, X=X)
        except FileNotFoundError as error:
            return f"named {type(error).__name__}" if name in str(error) else f"without its name: {error!r}"


FAULTS: dict[str, Callable[[Place, random.Random], str]] = {
    function.__name__.replace("_", " "): function
    for function in (
        full_disk_for_the_model, full_disk_for_the_checkpoint, input_output_error, permission_lost,
        clock_jumps, memory_runs_out, interrupted, damaged_checkpoint, worker_killed, scheduler_killed,
        network_cut, slow_worker, task_that_raises,
    )
}  # fmt: skip


def _in_a_child(
    fault: Callable[[Place, random.Random], str], place: Place, folder: Path, rng: random.Random
) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        verdict, nowhere = "ended by itself", os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):  # what a cluster says of its loss
            os.dup2(nowhere, stream)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                place.ready(folder)
                verdict = fault(place, rng)
        except BaseException as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            verdict = f"{type(error).__name__} at {Path(at.filename).name}:{at.lineno}: {str(error)[:150]}"
        finally:
            os.write(writing, verdict.encode()[:2000])
            os._exit(0)
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], LIMIT)
        return (os.read(reading, 2000).decode() or "the process crashed") if ready else "hung"
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)


def run(name: str, runs: int = 20, seed: int = 0) -> dict[str, Any]:
    counts, slowest = Counter[str](), 0.0
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder))
    for number in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            begin = time.monotonic()
            counts[_in_a_child(FAULTS[name], place, Path(folder), random.Random(f"{seed} {number}"))] += 1
            slowest = max(slowest, time.monotonic() - begin)
            Path(folder).chmod(0o700)
    good = sum(n for verdict, n in counts.items() if verdict == "right" or verdict.startswith("named "))
    return {"runs": runs, "good": good, "slowest": round(slowest, 1), "ended": dict(counts)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--faults", nargs="*", default=list(FAULTS))
    options = parser.parse_args()
    for name in options.faults:
        print(name, run(name, options.runs), flush=True)
