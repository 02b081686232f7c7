"""Several classes and a few more samples than features: how wide should the background be?

python -m benchmarks.studies.background.several_classes [--trials 9] [--backgrounds 0 1 3 10 20]

Tables of 3 to 8 classes whose samples outnumber their 80 to 180 features by 2 to 90 %, of four designs; a
third of them has a dense effect of all features beside the 3 to 8 that matter. All are fitted by default,
with other score variances of the background in the place of the plan's. Prints a table: CPU seconds,
iterations, the share of fits that fell back, errors and log losses on 1500 new samples, true and false
features among those selected at a rate of 0.1, how many are given 0.9 or more,
and how many of these are true.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from foldless import SparseClassifier
from foldless.tuning import plan

DESIGNS = ("ten factors", "Toeplitz 0.5", "Toeplitz 0.9", "blocks at 0.8")
N_NEW, FDR = 1500, 0.1
SURE = 0.9
COLUMNS = ("CPU", "iterations", "fell back", "error", "log loss", "true", "false", "sure", "of these true")


def main(argv: Sequence[str] | None = None) -> NDArray[np.float64]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trials", type=int, default=9, help="of each design")
    parser.add_argument("--backgrounds", type=float, nargs="+", default=[0.0, 1.0, 3.0, 10.0, 20.0])
    args = parser.parse_args(argv)
    names = [(design, trial) for trial in range(args.trials) for design in DESIGNS]
    table = np.empty((len(args.backgrounds), len(COLUMNS)))
    print(("{:>14s}" * (1 + len(COLUMNS))).format("background", *COLUMNS))
    for n, background in enumerate(args.backgrounds):
        with patch.object(plan, "NARROW_BACKGROUND", background), threadpool_limits(1):
            rows = np.array([measured(*name) for name in names])
        table[n] = np.concatenate([rows[:, :5].mean(axis=0), rows[:, 5:].sum(axis=0)])
        print(f"{background:14g}" + "".join(f"{value:14.4g}" for value in table[n]), flush=True)
    return table


def drawn(design: str, trial: int) -> tuple[NDArray[np.float64], NDArray[np.int_], NDArray[np.bool_], int]:
    """Samples, of which the first so many are for training, their classes, and which features matter."""
    rng = np.random.default_rng([trial, DESIGNS.index(design)])
    p, n_classes, n_true = int(rng.integers(80, 180)), int(rng.integers(3, 9)), int(rng.integers(3, 9))
    n = int(p * rng.uniform(1.02, 1.9))
    X = rng.standard_normal((n + N_NEW, p))
    if design == "ten factors":
        X += rng.standard_normal((n + N_NEW, 10)) @ rng.standard_normal((10, p)) / np.sqrt(10)
    elif design.startswith("Toeplitz"):
        rho = float(design.split()[1])
        for j in range(1, p):
            X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho**2) * X[:, j]
    else:
        blocks = rng.standard_normal((n + N_NEW, p // 10 + 1)).repeat(10, axis=1)[:, :p]
        X = np.sqrt(0.8) * blocks + np.sqrt(0.2) * X
    weights, matters = np.zeros((p, n_classes)), np.zeros(p, dtype=bool)
    matters[rng.choice(p, n_true, replace=False)] = True
    weights[matters] = rng.standard_normal((n_true, n_classes))
    scores = X @ weights
    scores *= rng.uniform(2.0, 4.0) / scores.std()
    if trial % 3 == 2:
        dense = X @ rng.standard_normal((p, n_classes))
        scores += 1.5 * dense / dense.std()
    return X, np.argmax(scores + rng.gumbel(size=scores.shape), axis=1), matters, n


def measured(design: str, trial: int) -> list[float]:
    """A row of the table, for one fit."""
    X, y, matters, n = drawn(design, trial)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SparseClassifier().fit(X[:n], y[:n])
    seconds = time.process_time() - start
    known = np.isin(y[n:], model.classes_)
    log_proba, codes = model.predict_log_proba(X[n:][known]), np.searchsorted(model.classes_, y[n:][known])
    selected, sure = model.get_support(fdr=FDR), model.inclusion_probability_ >= SURE
    return [
        seconds,
        model.n_iter_,
        any(run.purpose == "fallback" for run in model.record_.runs),
        float(np.mean(np.argmax(log_proba, axis=1) != codes)),
        -float(np.mean(log_proba[np.arange(codes.size), codes])),
        int(np.sum(selected & matters)),
        int(np.sum(selected & ~matters)),
        int(sure.sum()),
        int(np.sum(sure & matters)),
    ]


if __name__ == "__main__":
    main()
