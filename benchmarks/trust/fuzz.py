"""Mutations of model files and of tables, read as a user would.

    python -m benchmarks.trust.fuzz --models 100000 --tables 2000

A model file that was changed must be refused by a ValueError that names it; one that is accepted is written
down, with what was changed. A table that was changed may still be a table; if not, the error must be a
BadTable that names it. Nothing may be executed, so an import of `pickle` loaders, a new process or a file
written elsewhere is a failure as well. HDF5 can bring a process down, so batches are read by children.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import multiprocessing
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import foldless
from foldless.io.read import read_table
from foldless.io.table import BadTable, Roles

SUFFIXES = (".csv", ".tsv", ".xlsx", ".parquet", ".h5ad", ".npz", ".svmlight")
# Seconds of processor time for a file of libraries that can go on without end, and of any time for those that
# can wait: a busy machine is no hang.
PATIENCE, LONGEST = 10.0, 600.0
# What a loader has no business with.
FORBIDDEN = ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "pickle.find_class")


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """Changed in one of seven ways, and never the same; half of the changes begin in the first kilobyte."""
    data = bytearray(content)
    while bytes(data) == content:
        at = int(rng.integers(len(data) if rng.random() < 0.5 else min(len(data), 1024)))
        length = int(rng.integers(1, 64))
        match rng.integers(7):
            case 0:
                data[at] ^= 1 << int(rng.integers(8))
            case 1:
                data[at] = int(rng.integers(256))
            case 2:
                data[at : at + length] = b""
            case 3:
                data[at:at] = rng.bytes(length)
            case 4:
                data[at : at + length] = bytes(length)
            case 5:
                other = int(rng.integers(len(data)))
                data[at : at + length], data[other : other + length] = (
                    data[other : other + length],
                    data[at : at + length],
                )
            case 6:
                data = data[:at] or bytearray(b"\0")
    return bytes(data)


class Watch:
    """Notes what an audit hook sees while it is on; hooks cannot be taken off again."""

    def __init__(self) -> None:
        self.on, self.seen = False, Counter[str]()
        sys.addaudithook(self._hook)

    def _hook(self, event: str, _: Any) -> None:
        if self.on and event.startswith(FORBIDDEN):
            self.seen[event] += 1


def differences(before: bytes, after: bytes) -> str:
    """Where two files begin and end to differ, and what is there in both."""
    first = next((k for k, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before))
    from_end = zip(reversed(before[first:]), reversed(after[first:]), strict=False)
    same = next((k for k, (a, b) in enumerate(from_end) if a != b), 0)
    there = [content[first : len(content) - same][:100] for content in (before, after)]
    return f"at {first}: {there[0]!r} -> {there[1]!r}"


def fuzzed(
    files: list[Path], read: Callable[[Path], Any], expected: type[Exception], n: int, seed: int
) -> dict[str, Any]:
    rng, watch = np.random.default_rng(seed), Watch()
    contents = [(path.suffix, path.read_bytes()) for path in files]
    accepted, refused, wrong = list[str](), 0, Counter[str]()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path in files:
            read(path)  # what is imported on the way is imported before anybody watches
        for k in range(n):
            suffix, content = contents[k % len(contents)]
            path = Path(folder) / f"file{suffix}"
            changed = mutated(content, rng)
            path.write_bytes(changed)
            watch.on = True
            try:
                read(path)
                accepted.append(differences(content, changed))
            except expected as error:
                refused += 1
                wrong["does not name the file"] += path.name not in str(error)
            except Exception as error:  # whatever it is, it is the finding
                wrong[f"{type(error).__name__}: {str(error)[:80]}"] += 1
            finally:
                watch.on = False
    return {
        "mutations": n,
        "accepted": len(accepted),
        "accepted changes": accepted[:3] if expected is ValueError else [],
        "refused": refused,
        "wrong": {what: count for what, count in wrong.items() if count},
        "executed": dict(watch.seen),
    }


def models(n: int, seed: int = 0) -> dict[str, Any]:
    """Of a fresh model of every estimator."""
    with tempfile.TemporaryDirectory() as folder:
        files = _fresh_models(Path(folder))
        return {"files": len(files), **fuzzed(files, foldless.load, ValueError, n, seed)}


def _fresh_models(folder: Path) -> list[Path]:
    from benchmarks.trust.estimators import every_estimator

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 6)), np.arange(20) % 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            model.fit(X, y).save(folder / f"{name}.foldless") for name, model in every_estimator().items()
        ]


def _h5ad(path: Path) -> Any:
    """The process ends where a file takes longer than it may, on systems that have such clocks."""
    clocks = []
    if hasattr(signal, "setitimer"):
        clocks = [
            (signal.SIGPROF, signal.ITIMER_PROF, PATIENCE),
            (signal.SIGALRM, signal.ITIMER_REAL, LONGEST),
        ]
    for sign, clock, seconds in clocks:
        signal.signal(sign, signal.SIG_DFL)
        signal.setitimer(clock, seconds)
    try:
        return read_table(path, roles=Roles(target="label"))
    finally:
        for _, clock, _ in clocks:
            signal.setitimer(clock, 0)


def in_children(path: Path, n: int, seed: int, batch: int = 25) -> dict[str, Any]:
    """Of batches of mutations; a child that dies or hangs is a finding, and the end of its batch."""
    found: dict[str, Any] = {"mutations": 0, "accepted": 0, "refused": 0, "wrong": {}, "executed": {}}
    for k in range(max(n // batch, 1)):
        # A fork would inherit locks of libraries.
        with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            try:
                one = pool.submit(fuzzed, [path], _h5ad, BadTable, min(batch, n), seed + 1000 * k).result()
            except concurrent.futures.process.BrokenProcessPool:
                one = {"wrong": {"the process crashed or hung": 1}, "executed": {}}
        for name in ("mutations", "accepted", "refused"):
            found[name] += one.get(name, 0)
        for name in ("wrong", "executed"):
            found[name] = dict(Counter(found[name]) + Counter(one[name]))
    return found


def _table(path: Path) -> None:
    """A small one, in the format of the suffix."""
    from scipy import sparse

    values = np.random.default_rng(1).standard_normal((12, 5)).round(3)
    names, labels = [f"gene {j}" for j in range(5)], ["a", "b"] * 6
    frame = pd.DataFrame(values, columns=names, index=[f"s{i}" for i in range(12)]).assign(label=labels)
    match path.suffix:
        case ".csv":
            frame.to_csv(path, index_label="id")
        case ".tsv":
            frame.to_csv(path, index_label="id", sep="\t")
        case ".xlsx":
            frame.to_excel(path, index_label="id")
        case ".parquet":
            frame.reset_index(drop=True).to_parquet(path)
        case ".h5ad":
            import anndata

            obs = frame[["label"]].astype("category")
            anndata.AnnData(values, obs=obs, var=pd.DataFrame(index=names)).write_h5ad(path)
        case ".npz":
            sparse.save_npz(path, sparse.csr_matrix(values))
        case ".svmlight":
            rows = [" ".join(f"{j + 1}:{v}" for j, v in enumerate(row)) for row in values]
            path.write_text("".join(f"{i % 2} {row}\n" for i, row in enumerate(rows)))


def tables(suffix: str, n: int, seed: int = 0) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t{suffix}"
        _table(path)
        read = partial(read_table, roles=None if suffix in (".npz", ".svmlight") else Roles(target="label"))
        if suffix == ".h5ad":
            return in_children(path, n, seed)
        return fuzzed([path], read, BadTable, n, seed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, default=100_000)
    parser.add_argument("--tables", type=int, default=2000)
    options = parser.parse_args()
    print(models(options.models))
    for suffix in SUFFIXES:
        print(suffix, tables(suffix, options.tables))
