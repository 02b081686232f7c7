"""Every method of the five papers on every data set, one protocol: error, log loss, features kept, time.

python -m benchmarks.studies.all_methods.run --data DIR --trials 2     # two splits; what is there stays
python -m benchmarks.studies.all_methods.run --data DIR                # in full
python -m benchmarks.studies.all_methods.run --data DIR --at-most 1    # in full where fits took 1 s so far
python -m benchmarks.studies.all_methods.run --data DIR --methods pruned --again

Splits outermost, then tables, small ones first, then methods, cheap ones first: whenever it is stopped, what
is there can be compared. A fit that takes more than --patience seconds of its own time is given up, and its
method is not tried again on that table.
"""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.studies import _common as common
from benchmarks.studies._isolated import ONE_THREAD, clocked
from benchmarks.studies._real_data import add_data_option, data_folder
from benchmarks.studies._resumable import Key, complete
from benchmarks.studies.all_methods.data import NAMES, SPLITS_OF_FEW, load
from benchmarks.studies.all_methods.methods import METHODS
from benchmarks.studies.all_methods.plot import REFERENCE, draw, report, results_of

STUDY = Path(__file__).parent
KEY = ("data", "split", "method")
COLUMNS = [*KEY, "error", "log_loss", "kept", "features", "cpu_seconds", "stopped", "warned"]
OVER = "over"  # how a row begins whose fit was given up


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=SPLITS_OF_FEW)
    add_data_option(parser, [f"{name}.npz" for name in NAMES])
    parser.add_argument("--tables", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--methods", nargs="+", choices=tuple(METHODS), default=tuple(METHODS))
    parser.add_argument("--again", action="store_true", help="measure anew what is there")
    parser.add_argument(
        "--at-most", type=float, metavar="SECONDS", help="only cells whose fits took no longer"
    )
    parser.add_argument("--patience", type=float, default=60.0, help="CPU seconds of a fit (default 60)")
    args = parser.parse_args(argv)
    source = None if args.quick else data_folder(args.data, [f"{name}.npz" for name in args.tables])
    folder = common.output_folder(args.out, STUDY, args.quick)
    cells = [(name, method) for name in args.tables for method in args.methods]
    if args.at_most is not None:
        within = quick_cells(folder, args.at_most)
        cells = [cell for cell in cells if cell in within]
    n_splits = {name: 1 if args.quick else load(source, name).n_splits for name, _ in cells}
    asked = (
        (name, str(split), method)
        for split in range(args.trials)
        for name, method in cells
        if split < n_splits[name]
    )
    worker = Worker(source, args.patience)

    def measure(key: Key, rows: dict[Key, dict[str, Any]]) -> dict[str, Any] | None:
        name, split, method = key
        earlier = (rows.get((name, str(s), method)) for s in range(int(split)))
        if any(row and row["stopped"] for row in earlier):
            return None
        row = worker.measured(key)
        shown = row["stopped"] or f"{row['error']:.3f} {row['cpu_seconds']:7.2f} s"
        print(f"{split:>2s} {name:24s} {method:40s} {shown}", flush=True)
        return row

    try:
        settings = {"patience": args.patience, "at_most": args.at_most}
        complete(folder, COLUMNS, KEY, asked, measure, again=args.again, **settings)
    finally:
        worker.end()
    print(report(folder))
    draw(folder)
    return folder


def quick_cells(folder: Path, seconds: float) -> set[tuple[str, str]]:
    """Tables and methods whose fits so far took no longer in the median.

    Splits that ridge lacks could be compared with nothing, so its table is left out where ridge takes longer.
    """
    results = results_of(folder)
    took = results[results.stopped == ""].groupby(["data", "method"]).cpu_seconds.median()
    quick = set(took[took <= seconds].index)
    return {(name, method) for name, method in quick if (name, REFERENCE) in quick}


class Worker:
    """A process that measures fits one by one, and is replaced if one takes too long."""

    def __init__(self, source: Path | None, patience: float) -> None:
        self._source, self._patience = source, patience
        self._process: Any = None

    def measured(self, key: Key) -> dict[str, Any]:
        if self._process is None:
            self._begin()
        self._pipe.send(key)
        before = self._cpu_seconds()
        # CPU time, since a busy machine is no fault of the method; wall time where the system does not tell.
        while not self._pipe.poll(0.2):
            if self._cpu_seconds() - before > self._patience:
                self.end()
                return {"stopped": f"{OVER} {self._patience:g} s"}
        try:
            return dict(self._pipe.recv())
        except EOFError:
            self.end()
            return {"stopped": "ended by the system"}

    def _begin(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, there = context.Pipe()
        os.environ.update(ONE_THREAD)
        self._process = context.Process(target=_work, args=(there, self._source), daemon=True)
        self._process.start()
        there.close()

    def _cpu_seconds(self) -> float:
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except OSError:
            return time.monotonic()

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


def _work(pipe: Connection, source: Path | None) -> None:
    while True:
        try:
            key = pipe.recv()
        except EOFError:
            return
        pipe.send(measured(source, *key))


# Methods of one table follow each other.
_loaded = lru_cache(maxsize=1)(load)


def measured(source: Path | None, name: str, split: str, method: str) -> dict[str, Any]:
    """One row; what a method refuses, it says in the first line of its error."""
    data, chosen = _loaded(source, name), METHODS[method]
    if chosen.binary and np.unique(data.y).size > 2:
        return {"stopped": "two classes only"}
    train, test = next(islice(data.splits(), int(split), None))
    try:
        fitted = clocked(lambda: chosen.make().fit(data.X[train], data.y[train]))
        model = getattr(fitted.result, "best_estimator_", fitted.result)
        wrong = model.predict(data.X[test]) != data.y[test]
        loss = log_loss(model, data.X[test], data.y[test])
    except (ValueError, TypeError, MemoryError, np.linalg.LinAlgError) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        text = next(iter(str(error).strip().splitlines()), type(error).__name__)
        return {"stopped": f"refused: {text[:120]} ({Path(last.filename).name})"}
    return {
        "error": float(np.mean(wrong)),
        "log_loss": loss,
        "kept": kept(model),
        "features": data.X.shape[1],
        "cpu_seconds": fitted.cpu_seconds,
        "stopped": "",
        "warned": fitted.warned,
    }


def log_loss(model: Any, X: Any, y: Any) -> float | str:
    if not getattr(model, "has_proba", hasattr(model, "predict_proba")):
        return ""
    proba = np.asarray(model.predict_proba(X), dtype=np.float64)
    of_label = proba[np.arange(len(y)), np.searchsorted(model.classes_, y)]
    # As scikit-learn does: a certainty that was wrong does not cost infinity.
    return float(-np.mean(np.log(np.clip(of_label, np.finfo(np.float64).eps, 1.0))))


def kept(model: Any) -> int | str:
    """Features that take part: those selected at the false discovery rate, else weights that are not zero."""
    if getattr(model, "kernel", None) is not None:
        return ""  # all of them, in basis functions
    if hasattr(model, "inclusion_probability_"):
        return int(np.count_nonzero(model.get_support()))
    if hasattr(model, "coef_"):
        return int(np.count_nonzero(np.any(np.atleast_2d(model.coef_) != 0, axis=0)))
    return ""


if __name__ == "__main__":
    main()
