"""Could another convention for scales, bias or classes explain the paper's counts? The kindest reading.

For each convention, the fewest test errors over all rates and widths, summed over folds: chosen on the test
parts, so no classifier could be expected to do as well. What does not reach the paper's count here does not
reach it under any rule for rate and width.

python -m benchmarks.studies.smlr_table2.conventions --data DIR
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics.pairwise import rbf_kernel

from benchmarks.studies import _common as common
from benchmarks.studies.smlr_table2.plot import PAPER
from benchmarks.studies.smlr_table2.run import KERNELS, Split, checked_source, splits
from foldless.operators import Dense
from foldless.solvers.smlr import L1, Labels, Regression, Stop, largest_rate, nothing, path

STUDY = Path(__file__).parent
Array = NDArray[np.float64]
SETS = ("crabs", "iris", "yeast")
SCALES = ("unit variance", "as published", "-1 to 1")
# PyMVPA appends a column of ones under the same penalty; the paper's (1) has none.
BIASES = ("none", "penalised", "free")
CLASSES = ("one without weights", "all with weights")
GAMMAS = (0.001, 0.01, 0.1, 1.0)
SHARES = np.geomspace(1.0, 1e-3, 20)
COLUMNS = ["data", "scale", "bias", "classes", "gamma", "share", "wrong", "kept"]


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=0)
    parser.add_argument("--data", type=Path, default=os.environ.get("FOLDLESS_DATA"))
    parser.add_argument("--only", nargs="*", default=list(SETS), choices=SETS)
    args = parser.parse_args(argv)
    source = checked_source(args.data)
    folder = common.output_folder(args.out, STUDY, args.quick)
    rows: list[dict[str, Any]] = []
    for name in args.only:
        for row in measured(source, name, args.quick):
            rows.append(row)
            print({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()}, flush=True)
        pd.DataFrame(rows, columns=COLUMNS).to_csv(folder / "conventions.csv", index=False)
    text = report(folder)
    common.refresh_readme(folder, text, "conventions.csv")
    print("\n" + text)
    return folder


def measured(source: Path, name: str, quick: bool) -> Iterator[dict[str, Any]]:
    """The most favourable width and rate of every convention."""
    every = [as_published(source, split) for split in splits(source, name, 0)][: 2 if quick else None]
    gammas: tuple[float | None, ...] = GAMMAS if KERNELS[name] == "rbf" else (None,)
    for scale in SCALES[: 1 if quick else None]:
        for bias in BIASES:
            for classes in CLASSES:
                best: dict[str, Any] | None = None
                for gamma in gammas[: 1 if quick else None]:
                    found = [along_path(split, scale, bias, classes, gamma) for split in every]
                    wrong, kept = (
                        np.sum([f[0] for f in found], axis=0),
                        np.mean([f[1] for f in found], axis=0),
                    )
                    at = int(np.argmin(wrong))
                    if best is None or wrong[at] < best["wrong"]:
                        best = {
                            "gamma": gamma,
                            "share": SHARES[at],
                            "wrong": int(wrong[at]),
                            "kept": kept[at],
                        }
                assert best is not None
                yield {"data": name, "scale": scale, "bias": bias, "classes": classes} | best


def as_published(source: Path, split: Split) -> Split:
    """The same split with values as they are stored; what is not trained on is tested."""
    with np.load(source / f"{split.data}.npz") as stored:
        X, y = stored["X"].astype(np.float64), stored["y"]
    test = np.setdiff1d(np.arange(y.size), split.train)
    return split._replace(X=X[split.train], y=y[split.train], X_test=X[test], y_test=y[test])


def along_path(
    split: Split, scale: str, bias: str, classes: str, gamma: float | None
) -> tuple[NDArray[np.intp], Array]:
    """Test errors and weights kept at every rate."""
    center, spread = {
        "unit variance": (split.X.mean(axis=0), split.X.std(axis=0)),
        "as published": (np.zeros(split.X.shape[1]), np.ones(split.X.shape[1])),
        "-1 to 1": ((split.X.max(axis=0) + split.X.min(axis=0)) / 2, np.ptp(split.X, axis=0) / 2),
    }[scale]
    spread = np.where(spread > 0, spread, 1.0)
    inside, outside = ((X - center) / spread for X in (split.X, split.X_test))
    if gamma is not None:
        inside, outside = rbf_kernel(inside, inside, gamma), rbf_kernel(outside, inside, gamma)
    if bias == "penalised":
        inside, outside = (np.column_stack([X, np.ones(len(X))]) for X in (inside, outside))
    names, code = np.unique(split.y, return_inverse=True)
    last = names.size - 1
    reference = last if classes == CLASSES[0] or names.size == 2 else None
    labels = Labels.of(code, names.size, np.ones(code.size), reference)
    problem = Regression(Dense(np.ascontiguousarray(inside)), labels, bias == "free")
    top = largest_rate(L1, nothing(problem))
    wrong, kept = [], []
    for fitted in path(problem, L1, top * SHARES, stop=Stop(1e-4, 500)):
        scores = np.zeros((len(outside), names.size))
        scores[:, labels.free] = outside @ fitted.coef(inside.shape[1]) + fitted.intercept
        wrong.append(int(np.sum(names[np.argmax(scores, axis=1)] != split.y_test)))
        kept.append(np.count_nonzero(fitted.weights))
    return np.array(wrong), np.array(kept, dtype=np.float64)


def report(folder: Path) -> str:
    results = pd.read_csv(folder / "conventions.csv")
    rows = []
    for name, own in results.groupby("data", sort=False):
        paper = PAPER["SMLR"][name]
        for (scale, bias), group in own.groupby(["scale", "bias"], sort=False):
            at = group.set_index("classes")
            cells = [f"{at.wrong[c]} ({at.kept[c]:.0f})" if c in at.index else "" for c in CLASSES]
            rows.append([name, scale, bias, *cells, paper])
    return common.markdown(["fewest wrong (kept)", "scale", "bias", *CLASSES, "paper"], rows)


if __name__ == "__main__":
    main()
