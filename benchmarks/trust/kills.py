"""SIGKILL at random moments of a fit, of writing its model, and of writing its report.

    python -m benchmarks.trust.kills --kills 200

A process fits with a checkpoint, saves the model over an older one, writes a report over an older one and a
table of results, and is killed at a moment drawn from the time all that takes. Then every file with a final
name must be whole, old or new, and going on must give the bytes of the run that nobody killed.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import foldless
from foldless import SparseClassifier
from foldless.datasets import make_class_means
from foldless.export.coefficients import write_coefficients
from foldless.report import write

MODEL, REPORT, TABLE, JOURNAL = "model.safetensors", "report.html", "coefficients.tsv", "fit.journal"


def work(folder: Path, data: Any) -> None:
    """What is killed, in whole."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SparseClassifier(checkpoint=folder / JOURNAL).fit(data.X, data.y)
        model.save(folder / MODEL)
        write_coefficients(model, folder / TABLE)
        write(model, folder / REPORT)


def killed(folder: Path, data: Any, after: float) -> bool:
    """Whether the child was still at work when the signal came."""
    child = os.fork()
    if child == 0:
        try:
            work(folder, data)
        finally:
            os._exit(0)
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def truncated(folder: Path, whole: dict[str, bytes], old: dict[str, bytes]) -> list[str]:
    """Names of files that are neither the old nor the new one."""
    found = []
    for name in (MODEL, TABLE, REPORT):
        content = (folder / name).read_bytes()
        # A report names the hour it was made at; its end is what a cut would take.
        good = (
            content.rstrip().endswith(b"</html>") if name == REPORT else content in (whole[name], old[name])
        )
        if not good:
            found.append(name)
    foldless.load(folder / MODEL)
    return found


def run(n_kills: int = 200, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    data, other = (make_class_means(60, 300, 4, random_state=k) for k in (0, 1))
    damaged: list[str] = []
    different = at_work = 0
    with tempfile.TemporaryDirectory() as place:
        clean, folder = Path(place) / "clean", Path(place) / "killed"
        for each in (clean, folder):
            each.mkdir()
            work(each, other)
        old = {name: (clean / name).read_bytes() for name in (MODEL, TABLE)}
        start = time.monotonic()
        work(clean, data)
        duration = time.monotonic() - start
        whole = {name: (clean / name).read_bytes() for name in (MODEL, TABLE)}
        for _ in range(n_kills):
            at_work += killed(folder, data, float(rng.uniform(0, 1.1 * duration)))
            damaged += truncated(folder, whole, old)
            if rng.random() < 0.2:  # go on from whatever is there, then begin with the old files again
                work(folder, data)
                different += any((folder / name).read_bytes() != whole[name] for name in (MODEL, TABLE))
                work(folder, other)
    return {
        "kills": n_kills,
        "at work": int(at_work),
        "truncated": damaged,
        "different after resuming": different,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200)
    print(run(parser.parse_args().kills))
