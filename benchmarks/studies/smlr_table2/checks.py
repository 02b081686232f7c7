"""Is SMLR exact and honest? Objectives beside rivals, leave-one-out beside refits and folds, bounds.

python -m benchmarks.studies.smlr_table2.checks --data DIR [--part exact loo folds bounds]
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import ShuffleSplit

from benchmarks.studies import _common as common
from benchmarks.studies.smlr_table2.run import checked_source
from foldless import SMLRClassifier
from foldless.kernels import compiled as foldless_compiled
from foldless.operators import Dense, Standardized
from foldless.plots import BoundDisplay
from foldless.solvers.smlr import L1, Labels, Regression, Stop, largest_rate, nothing, path
from foldless.solvers.smlr.newton_loo import NewtonLOO, scored
from foldless.theory import bound
from foldless.theory.bounds import pac_bayes

STUDY = Path(__file__).parent
COLUMNS = ["part", "data", "what", "at", "ours", "theirs", "difference", "seconds"]
PARTS = ("exact", "loo", "folds", "bounds")


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=100)
    parser.add_argument("--data", type=Path, default=os.environ.get("FOLDLESS_DATA"))
    parser.add_argument("--part", nargs="*", choices=PARTS, default=list(PARTS))
    args = parser.parse_args(argv)
    source = checked_source(args.data)
    folder = common.output_folder(args.out, STUDY, args.quick)
    for part in args.part:
        rows = []
        for row in {"exact": exact, "loo": loo, "folds": folds, "bounds": bounds}[part](
            source, args.quick, args.trials, folder
        ):
            rows.append({"part": part} | row)
            print({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in rows[-1].items()}, flush=True)
        pd.DataFrame(rows, columns=COLUMNS).to_csv(folder / f"check_{part}.csv", index=False)
    return folder


def regression(source: Path, name: str, intercept: bool) -> Regression:
    stored = np.load(source / f"{name}.npz")
    return dense_regression(stored["X"].astype(np.float64), stored["y"], intercept)


def dense_regression(X: Any, y: Any, intercept: bool) -> Regression:
    code = np.unique(y, return_inverse=True)[1]
    scaled = np.asfortranarray((X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0))
    labels = Labels.of(code, int(code.max()) + 1, np.ones(code.size))
    return Regression(Dense(scaled), labels, intercept)


def path_rates(problem: Regression, n_rates: int) -> Any:
    return largest_rate(L1, nothing(problem)) * np.geomspace(1.0, 0.01, n_rates + 1)[1:]


# ---------------------------------------------------------------------- exactness


def exact(source: Path, quick: bool, trials: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Objectives at ten rates beside a long run of celer (two classes, no intercept) or saga."""
    for name in ("colon", "leukemia", "fgl"):
        problem = regression(source, name, intercept=name == "fgl")
        rates = path_rates(problem, 10)[: 2 if quick else 10]
        for fitted in path(problem, L1, rates, stop=Stop(1e-11)):
            weights, level = _long_run(problem, fitted.rate)
            labels = problem.labels
            theirs = labels.at(problem.operator.scores(weights) + level).loss + L1(fitted.rate).value(weights)
            what = f"objective; KKT residual {fitted.kkt_residual:.1e}"
            yield {
                "data": name,
                "what": what,
                "at": fitted.rate,
                "ours": fitted.objective,
                "theirs": theirs,
                "difference": fitted.objective / theirs - 1.0,
            }


def _long_run(problem: Regression, rate: float) -> tuple[Any, Any]:
    X, code = problem.operator.X, problem.labels.code  # type: ignore[attr-defined]
    if problem.labels.n_scores == 1:
        from celer import celer_path

        y = np.where(code == problem.labels.free[0], 1.0, -1.0)
        _, weights, _ = celer_path(
            X, y, pb="logreg", alphas=[rate], tol=1e-14, max_iter=1000, max_epochs=1_000_000
        )
        return weights[:, :1], 0.0
    model = LogisticRegression(
        C=1 / rate, l1_ratio=1.0, solver="saga", tol=1e-14, max_iter=30_000, random_state=0
    )
    model.fit(X, code)
    return model.coef_.T, model.intercept_


# ---------------------------------------------------------------------- leave-one-out


def loo(source: Path, quick: bool, trials: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Approximate leave-one-out log loss beside refits without each sample."""
    for name in ("colon",) if quick else ("colon", "leukemia", "fgl"):
        problem = regression(source, name, intercept=True)
        rates = path_rates(problem, 10)[: 3 if quick else 10]
        ones = np.ones(problem.labels.code.size)
        fits = list(path(problem, L1, rates))
        refits, refit_seconds, _ = common.timed(lambda p=problem, r=rates: _refits(p, r))
        for fitted, exact_log_proba in zip(fits, refits, strict=True):
            approximate, seconds, _ = common.timed(
                lambda p=problem, f=fitted, o=ones: NewtonLOO(p, o).of(L1(f.rate), f)
            )
            true = scored(exact_log_proba, problem.labels.code, ones)
            what = (
                f"error {approximate.error:.3f}, refits {true.error:.3f}, {refit_seconds / rates.size:.1f} s"
            )
            yield {
                "data": name,
                "what": what,
                "at": fitted.rate,
                "ours": approximate.log_loss,
                "theirs": true.log_loss,
                "difference": approximate.log_loss / true.log_loss - 1.0,
                "seconds": seconds,
            }


def _refits(problem: Regression, rates: Any) -> list[Any]:
    labels = problem.labels
    out = [np.empty((labels.code.size, labels.n_classes)) for _ in rates]
    for m in range(labels.code.size):
        weight = np.ones(labels.code.size)
        weight[m] = 0.0
        without = Labels(labels.code, labels.n_classes, weight, labels.reference)
        for i, fitted in enumerate(path(Regression(problem.operator, without), L1, rates)):
            eta = labels.full(fitted.scores[m : m + 1])[0]
            out[i][m] = eta - np.logaddexp.reduce(eta)
    return out


# ---------------------------------------------------------------------- leave-one-out beside folds


def folds(source: Path, quick: bool, trials: int, folder: Path) -> Iterator[dict[str, Any]]:
    """The rate by leave-one-out and by 10-fold cross-validation: errors and CPU seconds, paired."""
    stored = np.load(source / "colon.npz")
    X, y = stored["X"].astype(np.float64), stored["y"]
    compiled = foldless_compiled("smlr") is not None
    SMLRClassifier().fit(X, y)  # whatever is compiled at first use, is
    for train, test in ShuffleSplit(3 if quick else 30, test_size=12, random_state=0).split(y):
        wrong, seconds = {}, {}
        for tuning in ("alo", "cv"):
            # The machine is shared: seconds of the processor, not of the clock.
            start = time.process_time()
            model = SMLRClassifier(tuning=tuning).fit(X[train], y[train])
            seconds[tuning] = time.process_time() - start
            wrong[tuning] = int(np.sum(model.predict(X[test]) != y[test]))
        yield {
            "data": "colon",
            "what": f"wrong; seconds {seconds['alo']:.3f}, {seconds['cv']:.3f}; compiled {compiled}",
            "ours": float(wrong["alo"]),
            "theirs": float(wrong["cv"]),
            "difference": float(wrong["alo"] - wrong["cv"]),
            "seconds": seconds["alo"] / seconds["cv"],
        }


# ---------------------------------------------------------------------- bounds


def bounds(source: Path, quick: bool, trials: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Coverage in simulations, the published 26/34, and the figure with 11 000 samples."""
    delta = 0.05
    held = {"gibbs": 0, "voting": 0, "rademacher": 0}
    largest = 0.0
    n_trials = 5 if quick else trials
    for seed in range(n_trials):
        data, model = _simulated(400, 15, seed, rate=5.0)
        found = bound(model, data.X, data.y, delta)
        fresh, _ = _simulated(20_000, 15, seed + 10_000, rate=None, truth=seed)
        error = float(np.mean(model.predict(fresh.X) != fresh.y))
        # Of the Gibbs classifier: its risk on the fresh sample, by the same formula.
        gibbs = bound(model, fresh.X, fresh.y, delta).gibbs_risk
        held["gibbs"] += gibbs <= found.gibbs
        held["voting"] += error <= found.voting
        held["rademacher"] += error <= found.rademacher
        largest = max(largest, found.gibbs)
    for name, count in held.items():
        yield {"data": "400 x 15 simulated", "what": f"{name} held of {n_trials}", "ours": float(count)}
    yield {"data": "400 x 15 simulated", "what": "largest Gibbs bound", "ours": largest}

    stored = np.load(source / "leukemia.npz")
    train = stored["split"] == "train"
    X, y = stored["X"].astype(np.float64), stored["y"]
    for share in (0.5,) if quick else (0.7, 0.5, 0.3, 0.1, 0.03):
        top = _largest(X[train], y[train])
        model = SMLRClassifier(rate=share * top, fit_intercept=False).fit(X[train], y[train])
        found = bound(model, X[train], y[train], delta)
        wrong = int(np.sum(model.predict(X[~train]) != y[~train]))
        yield {
            "data": "leukemia",
            "what": f"Gibbs bound x 34; {wrong} wrong; Gibbs risk {found.gibbs_risk:.3f}",
            "at": model.rate_,
            "ours": 34 * found.gibbs,
            "theirs": 26.0,
        }
    yield {"data": "leukemia", "what": "x 34 at risk 1/2, KL 0", "ours": 34 * pac_bayes(0.5, 0.0, 38, delta)}
    yield from _figure(600 if quick else 11_000, delta, folder)


def _largest(X: Any, y: Any) -> float:
    code = np.unique(y, return_inverse=True)[1]
    labels = Labels.of(code, 2, np.ones(code.size))
    return largest_rate(L1, nothing(Regression(Standardized.fit(Dense(X)), labels, False)))


class _Sample:
    def __init__(self, X: Any, y: Any) -> None:
        self.X, self.y = X, y


def _simulated(
    n_samples: int, n_features: int, seed: int, rate: float | None, truth: int | None = None
) -> tuple[_Sample, Any]:
    """Logistic labels from a few weights; `truth` is the seed that the weights come from."""
    weights = np.random.default_rng([7, seed if truth is None else truth]).normal(size=n_features)
    weights[5:] = 0.0
    rng = np.random.default_rng([8, seed])
    X = rng.normal(size=(n_samples, n_features))
    y = np.where(X @ weights + 0.5 * rng.logistic(size=n_samples) > 0, 1, -1)
    model = None
    if rate is not None:
        model = SMLRClassifier(rate=rate, fit_intercept=False).fit(X, y)
    return _Sample(X, y), model


def _figure(n_samples: int, delta: float, folder: Path) -> Iterator[dict[str, Any]]:
    import matplotlib

    matplotlib.use("Agg")
    data, _ = _simulated(n_samples, 106, 1, rate=None)
    fresh, _ = _simulated(n_samples, 106, 2, rate=None, truth=1)
    top = _largest(data.X, data.y)
    rates = top * np.geomspace(1.0, 1e-3, 16)[1:]
    rows = []
    for rate in rates:
        model = SMLRClassifier(rate=float(rate), fit_intercept=False).fit(data.X, data.y)
        found = bound(model, data.X, data.y, delta / rates.size)
        error = float(np.mean(model.predict(fresh.X) != fresh.y))
        rows.append((found.gibbs, error, found.gibbs_risk))
        yield {
            "data": f"{n_samples} x 106 simulated",
            "what": "Gibbs bound, test error",
            "at": float(rate),
            "ours": found.gibbs,
            "theirs": error,
        }
    gibbs, errors, risks = np.array(rows).T
    chosen = float(rates[np.argmin(gibbs)])
    display = BoundDisplay(rates, gibbs, errors, sample_risk=risks, chosen=chosen).plot()
    display.figure_.savefig(folder / "bounds.png", dpi=110)


if __name__ == "__main__":
    main()
