"""The figures of the knapsack paper's text: the outlier (1c), the posterior (1a), marginals (1e-g), time.

python -m benchmarks.studies.bayes_point_table1.checks outlier posterior marginals time --data DIR
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr

from benchmarks.studies import _common as common
from benchmarks.studies._real_data import add_data_option
from benchmarks.studies.bayes_point_table1.run import FILES, STUDY, Split, random_split, tuned_svm
from foldless import BayesPointClassifier, EPBayesPointClassifier
from foldless.solvers.knapsack import Machine

Values = NDArray[np.float64]
OUTLIER = (10.0, 0.0)
BETAS = (5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 50.0)


def main(argv: Sequence[str] | None = None) -> Path:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", nargs="+", choices=["outlier", "posterior", "marginals", "time"])
    add_data_option(parser, FILES)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that everything runs")
    parser.add_argument("--draws", type=int, default=20, help="of the toy data (default 20)")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(argv)
    folder = common.output_folder(args.out, STUDY, args.quick)
    if "outlier" in args.what:
        table = outlier(1 if args.quick else args.draws, quick=args.quick)
        table.to_csv(folder / "check_outlier.csv", index=False, float_format="%.6g")
        print(outlier_report(table))
    if "posterior" in args.what:
        draw_posterior(folder / "posterior.png", 41 if args.quick else 181)
    if "marginals" in args.what:
        draw_marginals(args.data, folder / "marginals.png", 16 if args.quick else 128)
    if "time" in args.what:
        table = times(args.data, quick=args.quick)
        table.to_csv(folder / "check_time.csv", index=False, float_format="%.4g")
        print(table.to_string(index=False))
    return folder


# ---------------------------------------------------------------------- the outlier of figure 1c


def two_clouds(seed: int) -> tuple[Values, Values]:
    """50 points each of unit Gaussians around (1, 1) and (-1, -1)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(100, 2)) + np.repeat([[1.0], [-1.0]], 50, axis=0)
    return X, np.repeat([1.0, -1.0], 50)


def true_error(coef: Values, level: float) -> float:
    """Of a linear classifier on the two clouds, in per cent; 7.865 at best."""
    margins = (coef.sum() + np.array([1.0, -1.0]) * level) / np.linalg.norm(coef)
    return 100 * float(np.mean(ndtr(-margins)))


def outlier(n_draws: int, quick: bool) -> pd.DataFrame:
    """Errors with and without the point (10, 0) among the class around (-1, -1)."""
    settings: dict[str, Any] = {"violation_cost": 3.0, "n_sweeps": 5, "beta": 1.0} if quick else {}

    def knapsack(standardize: Any) -> Callable[[Values, Values], tuple[Values, float]]:
        model = BayesPointClassifier(n_bins=64, standardize=standardize, **settings)
        return lambda X, y: _boundary(model.fit(X, y))

    # As the clouds are, as in the paper's figure; then with columns scaled, outlier and all.
    models = {
        "SVM": lambda X, y: svm_boundary(X, y, scaled=False),
        "EP": lambda X, y: _boundary(EPBayesPointClassifier(standardize=False).fit(X, y)),
        "knapsack": knapsack(False),
        "knapsack, quartiles scaled": knapsack("robust"),
        "SVM, variance scaled": lambda X, y: svm_boundary(X, y, scaled=True),
        "EP, variance scaled": lambda X, y: _boundary(EPBayesPointClassifier().fit(X, y)),
        "knapsack, variance scaled": knapsack(True),
    }
    rows = []
    for draw in range(n_draws):
        X, y = two_clouds(draw)
        for method, boundary in models.items():
            before = true_error(*boundary(X, y))
            after = true_error(*boundary(np.vstack([X, OUTLIER]), np.append(y, -1.0)))
            rows.append({"draw": draw, "method": method, "without": before, "with": after})
    return pd.DataFrame(rows)


def svm_boundary(X: Values, y: Values, scaled: bool) -> tuple[Values, float]:
    center, scale = (X.mean(axis=0), X.std(axis=0)) if scaled else (np.zeros(2), np.ones(2))
    Z = (X - center) / scale
    svm = tuned_svm(Split(Z, y, Z, y)).best_estimator_
    coef = svm.coef_[0] / scale
    return coef, float(svm.intercept_[0] - center @ coef)


def _boundary(model: BayesPointClassifier | EPBayesPointClassifier) -> tuple[Values, float]:
    return model.coef_[0], float(model.intercept_[0])


def outlier_report(table: pd.DataFrame) -> str:
    table = table.assign(change=table["with"] - table["without"])
    rows = [
        [m, *(common.mean_and_error(g[c], 3) for c in ("without", "with", "change"))]
        for m, g in table.groupby("method", sort=False)
    ]
    return common.markdown(["error % (s.e.)", "without", "with (10, 0)", "change"], rows)


# ---------------------------------------------------------------------- the posterior of figure 1a


def posterior_surface(
    X: Values, y: Values, cost: float, n_steps: int
) -> tuple[Values, Values, Values, float]:
    """log P(w | Z) over angle θ and offset ρ of the boundary, at the margin width that is best, |w| fixed."""
    angles, offsets = np.linspace(-np.pi / 4, 3 * np.pi / 4, n_steps), np.linspace(-2.0, 2.0, n_steps)
    directions = np.column_stack([np.cos(angles), np.sin(angles)])
    distance = y * (X @ directions.T).T  # (angles, samples)
    best, found = -np.inf, (np.zeros(0), 0.0)
    for length in np.geomspace(0.3, 10.0, 25):
        margins = length * (distance[:, np.newaxis] + offsets[:, np.newaxis] * y)
        prior = -0.5 * length**2 * (1 + offsets**2)
        surface = prior - cost * np.sum(margins < 1.0, axis=2)
        if surface.max() > best:
            best, found = float(surface.max()), (surface, float(length))
    return angles, offsets, found[0], found[1]


def as_angle(weights: Values) -> tuple[float, float]:
    """Angle and offset of the boundary w·x + b = 0."""
    return float(np.arctan2(weights[1], weights[0])), float(weights[2] / np.hypot(weights[0], weights[1]))


def draw_posterior(path: Path, n_steps: int, cost: float = 1.0) -> None:
    """posterior.png: the surface, its maximum, the best boundary, and the knapsack's path in β."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    X, y = two_clouds(0)
    angles, offsets, surface, length = posterior_surface(X, y, cost, n_steps)
    rows = y[:, np.newaxis] * np.column_stack([X, np.ones(y.size)])
    for sweep in Machine(n_bins=128).sweeps(rows, np.ones(y.size), cost):
        if sweep.number == 20:
            break
    points = np.array([as_angle(sweep.marginals.at(beta).mean) for beta in BETAS])
    mode = np.unravel_index(int(np.argmax(surface)), surface.shape)
    figure, axes = plt.subplots(figsize=(6, 4.5), layout="constrained")
    shown = axes.pcolormesh(angles, offsets, np.maximum(surface - surface.max(), -15.0).T, cmap="gray")
    figure.colorbar(shown, label="log posterior, from its maximum")
    axes.plot(np.pi / 4, 0.0, "o", color="C2", label="best possible")
    axes.plot(angles[mode[0]], offsets[mode[1]], "x", color="C3", label="maximum a posteriori")
    axes.plot(
        points[:, 0], points[:, 1], ".-", color="C0", label=f"knapsack, β = {BETAS[0]:g} to {BETAS[-1]:g}"
    )
    axes.set(xlabel="angle θ", ylabel="offset ρ", title=f"|w| = {length:.2f}, c = {cost:g}")
    axes.legend(fontsize=8, loc="upper right")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_marginals(source: Path, path: Path, n_bins: int) -> None:
    """marginals.png: the most skewed max-marginals of heart and liver, with their means and maxima."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(9, 2.8), layout="constrained")
    panels_left = iter(panels)
    for name, n_shown in (("heart", 2), ("liver", 1)):
        split = random_split(source, name, 0)
        rows = split.y[:, np.newaxis] * np.column_stack([split.X, np.ones(split.y.size)])
        for sweep in Machine(n_bins=n_bins).sweeps(rows, np.ones(split.y.size), 3.0):
            if sweep.number == 20:
                break
        histograms = sweep.marginals.at(1.0)
        for i in np.argsort(-np.abs(histograms.skew))[:n_shown]:
            axes = next(panels_left)
            axes.plot(histograms.points[i], histograms.probability[i], color="C0")
            axes.axvline(histograms.mean[i], color="C0", linestyle=":", label="mean")
            axes.axvline(sweep.marginals.at(np.inf).mean[i], color="C3", linestyle="--", label="maximum")
            axes.set_title(f"{name}, weight {i}: skew {histograms.skew[i]:.2f}", fontsize=9)
    panels[0].legend(fontsize=7)
    figure.savefig(path, dpi=110)
    plt.close(figure)


# ---------------------------------------------------------------------- time


def times(source: Path, quick: bool) -> pd.DataFrame:
    """CPU seconds of one training, 50 sweeps at 128 bins, and slopes in bins and in samples.

    CPU time, because a busy machine says nothing about the method. Compilation is not counted.
    """
    n_sweeps = 2 if quick else 50
    liver, contraceptive = (random_split(source, name, 0) for name in ("liver", "contraceptive"))
    _train(liver, 8, 1)
    rows = []
    for name, split in (("liver", liver), ("contraceptive", contraceptive)):
        rows.append({"what": f"{name}, 128 bins", "seconds": _train(split, 16 if quick else 128, n_sweeps)})
    bins = (8, 16) if quick else (32, 64, 128, 256)
    by_bins = [_train(liver, n, n_sweeps) for n in bins]
    rows += [{"what": f"liver, {n} bins", "seconds": s} for n, s in zip(bins, by_bins, strict=True)]
    rows.append({"what": "slope in bins (log-log)", "seconds": _slope(bins, by_bins)})
    counts = (100, 200) if quick else (147, 294, 589, 1178)
    by_count = [
        _train(Split(contraceptive.X[:n], contraceptive.y[:n], liver.X, liver.y), 32, n_sweeps)
        for n in counts
    ]
    rows += [
        {"what": f"contraceptive, {n} samples", "seconds": s} for n, s in zip(counts, by_count, strict=True)
    ]
    rows.append({"what": "slope in samples (log-log)", "seconds": _slope(counts, by_count)})
    return pd.DataFrame(rows)


def _train(split: Split, n_bins: int, n_sweeps: int) -> float:
    model = BayesPointClassifier(n_bins=n_bins, n_sweeps=n_sweeps, violation_cost=3.0, beta=1.0, tol=0.0)
    start = time.process_time()
    model.fit(split.X, split.y)
    return time.process_time() - start


def _slope(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


if __name__ == "__main__":
    main()
