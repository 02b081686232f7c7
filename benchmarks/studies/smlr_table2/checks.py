"""Is SMLR exact, fast, and honest? Objectives and seconds beside rivals, leave-one-out beside refits, bounds.

python -m benchmarks.studies.smlr_table2.checks --data DIR [--part exact speed loo bounds]
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

from benchmarks.studies import _common as common
from benchmarks.studies.smlr_table2.run import checked_source
from foldless import SMLRClassifier
from foldless.datasets import make_class_means
from foldless.operators import Dense, Standardized
from foldless.plots import BoundDisplay
from foldless.solvers.smlr import L1, Labels, Regression, Stop, largest_rate, nothing, path
from foldless.solvers.smlr.design import duality_gap
from foldless.theory import bound
from foldless.theory.bounds import pac_bayes
from foldless.tuning.alo import leave_one_out, scored

STUDY = Path(__file__).parent
COLUMNS = ["part", "data", "what", "at", "ours", "theirs", "difference", "seconds"]
PARTS = ("exact", "speed", "loo", "bounds")
SAME_GAP = 1e-6


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=100)
    parser.add_argument("--data", type=Path, default=os.environ.get("FOLDLESS_DATA"))
    parser.add_argument("--part", nargs="*", choices=PARTS, default=list(PARTS))
    args = parser.parse_args(argv)
    source = checked_source(args.data)
    folder = common.output_folder(args.out, STUDY, args.quick)
    for part in args.part:
        rows = []
        for row in {"exact": exact, "speed": speed, "loo": loo, "bounds": bounds}[part](
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


# ---------------------------------------------------------------------- speed


def speed(source: Path, quick: bool, trials: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Seconds of a 100-point path without intercept, every solver at the same duality gap."""
    n_rates = 10 if quick else 100
    for name in ("colon", "leukemia", "300 x 30 000"):
        if name[0] == "3":
            data = make_class_means(300, 300 if quick else 30_000, 20, random_state=0)
            problem = dense_regression(data.X, data.y, intercept=False)
        else:
            problem = regression(source, name, intercept=False)
        rates = path_rates(problem, n_rates)
        for solver, run in solvers(problem, rates).items():
            gap = np.inf
            # What a tolerance means differs between solvers; the gap is the same for all.
            for tol in 10.0 ** -np.arange(4, 19):
                weights, seconds, _ = common.timed(lambda run=run, tol=tol: run(tol))
                gap = max(_relative_gap(problem, w, r) for w, r in zip(weights, rates, strict=True))
                if gap <= SAME_GAP:
                    break
            yield {"data": name, "what": solver, "at": float(tol), "ours": float(gap), "seconds": seconds}


def solvers(problem: Regression, rates: Any) -> dict[str, Callable[[float], list[Any]]]:
    """Name to a call that gives the weights at every rate to a tolerance of its own kind."""
    X, n_samples = problem.operator.X, problem.labels.code.size  # type: ignore[attr-defined]
    y = np.where(problem.labels.code == problem.labels.free[0], 1.0, -1.0)

    def ours(tol: float) -> list[Any]:
        fits = path(problem, L1, rates, stop=Stop(tol))
        return [f.coef(X.shape[1])[:, 0] for f in fits]

    found: dict[str, Callable[[float], list[Any]]] = {"foldless (NumPy)": ours}
    try:
        from celer import celer_path

        found["celer"] = lambda tol: list(celer_path(X, y, pb="logreg", alphas=rates, tol=tol)[1].T)
    except ImportError:
        print("celer is not installed and left out")
    try:
        from skglm.datafits import Logistic
        from skglm.penalties import L1 as SkglmL1
        from skglm.solvers import ProxNewton

        def skglm(tol: float) -> list[Any]:
            solver = ProxNewton(tol=tol, fit_intercept=False, warm_start=True, max_iter=100)
            weights, start, xw = [], np.zeros(X.shape[1]), np.zeros(n_samples)
            for rate in rates:
                penalty = SkglmL1(float(rate) / n_samples)
                # The solver writes into what it starts from.
                found_weights = solver.solve(X, y, Logistic(), penalty, start.copy(), xw)[0]
                start, xw = found_weights.copy(), X @ found_weights
                weights.append(start)
            return weights

        skglm(1e-2)  # compiled before the clock starts
        found["skglm"] = skglm
    except ImportError:
        print("skglm is not installed and left out")
    try:
        import adelie

        def adelie_path(tol: float) -> list[Any]:
            state = adelie.grpnet(
                X,
                adelie.glm.binomial((y + 1) / 2, dtype=np.float64),
                lmda_path=rates / n_samples,
                intercept=False,
                tol=tol,
                irls_tol=tol,
                early_exit=False,
                progress_bar=False,
            )
            return [np.asarray(b.todense()).ravel() for b in state.betas]

        adelie_path(1e-2)
        found["adelie"] = adelie_path
    except ImportError:
        print("adelie is not installed and left out")
    return found


def _relative_gap(problem: Regression, weights: Any, rate: float) -> float:
    at = problem.labels.at(problem.operator.scores(weights[:, np.newaxis]))
    penalty = L1(float(rate))
    gradient = problem.operator.adjoint(at.residual)
    gap = duality_gap(problem.labels, penalty, at, weights[:, np.newaxis], gradient)
    return gap / (at.loss + penalty.value(weights))


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
                lambda p=problem, f=fitted, o=ones: leave_one_out(p, L1(f.rate), f, o, o)
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
