"""What a new process costs: imports, the first fit, the command line, and where nothing can be written.

python -m benchmarks.scale.cold_start
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.studies import _common as common

HERE = Path(__file__).parent
COLUMNS = ("what", "seconds")
TWO_FITS = """
import time, numpy as np
from foldless import SparseClassifier
rng = np.random.default_rng(0)
X = rng.standard_normal((100, 2000)); y = np.arange(100) % 2; X[:, :5] += y[:, None]
for _ in range(2):
    start = time.perf_counter(); SparseClassifier().fit(X, y); print(time.perf_counter() - start)
"""


def main(argv: Sequence[str] | None = None) -> Path:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--out", type=Path, default=HERE)
    arguments = parser.parse_args(argv)
    rounds = 1 if arguments.quick else arguments.rounds
    arguments.out.mkdir(parents=True, exist_ok=True)
    with common.Results(arguments.out, COLUMNS, "cold_start.csv") as results:
        # What a classifier of scikit-learn makes a process load anyway.
        rival = least(["-c", "from sklearn.linear_model import LogisticRegressionCV"], rounds)
        ours = least(["-c", "from foldless import SparseClassifier"], rounds)
        both = least(["-c", "from sklearn.linear_model import LogisticRegressionCV; import foldless"], rounds)
        first, second = fits(rounds)
        rows = {
            "import of LogisticRegressionCV": rival,
            "import of SparseClassifier": ours,
            "import of foldless beyond scikit-learn": both - rival,
            "first fit, 100 x 2000": first,
            "second fit": second,
            "foldless --help": least(["--help"], rounds, program=Path(sys.executable).parent / "foldless"),
            "first fit, nothing can be written": fits(1, unwritable=True)[0],
        }
        for what, seconds in rows.items():
            results.add(what=what, seconds=seconds)
            print(f"{what}: {seconds:.3f} s")
        print(f"first over second fit: {first / second:.2f}")
    return arguments.out


def least(arguments: list[str], rounds: int, program: str | Path = sys.executable) -> float:
    """The least time of a new process, the first one apart, which fills the caches of the system."""
    seconds = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        subprocess.run([program, *arguments], check=True, capture_output=True)
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])


def fits(rounds: int, unwritable: bool = False) -> tuple[float, float]:
    """Seconds of the first and the second fit of a process, the least of each over processes."""
    environment = dict(os.environ)
    if unwritable:
        # No byte code is written, and neither home nor the temporary folder exist.
        nowhere = "/nonexistent"
        environment |= {"PYTHONDONTWRITEBYTECODE": "1", "HOME": nowhere, "NUMBA_CACHE_DIR": nowhere}
    found = []
    for _ in range(rounds):
        done = subprocess.run(
            [sys.executable, "-c", TWO_FITS], check=True, capture_output=True, text=True, env=environment
        )
        found.append([float(line) for line in done.stdout.split()])
    return min(first for first, _ in found), min(second for _, second in found)


if __name__ == "__main__":
    main()
