"""Does the planner keep its word? What it predicts beside fits of simulated studies and of real data.

python -m benchmarks.studies.plan_check.run --data /path/to/data

Parts: independent (class means, the planner's own ground), logistic (independent features, labels by a
logistic model), correlated (logistic labels, features of known spectrum whose directions are not random),
real (the learning curve predicted from half of a table, and what fits on more of it show).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr
from sklearn.model_selection import StratifiedShuffleSplit

from benchmarks.studies import _common as common
from benchmarks.studies.plan_check.plot import draw, report
from benchmarks.studies.real_data.data import Source
from foldless import SparseClassifier
from foldless.datasets import make_class_means, make_logistic
from foldless.estimators.planning import learning_curve
from foldless.theory.spectra import Spectrum
from foldless.theory.study import Study
from foldless.theory.tuned_student import expected_fit

STUDY = Path(__file__).parent
COLUMNS = (
    "part",
    "setting",
    "trial",
    "n_samples",
    "error",
    "power",
    "n_false",
    "solver",
    "seconds",
    "warned",
)
PREDICTED = ("part", "setting", "n_samples", "error", "power", "n_false", "best_error", "converged")
LEARNING = ("data", "trial", "n_samples", "what", "error")
# Shares of a real table that are used for training; the first is what the curve is predicted from.
TRAINING_SHARES = (0.5, 0.67, 0.85)
REAL = ("colon", "leukemia")
N_TEST = 4000


class Setting(NamedTuple):
    """One study to plan and to simulate."""

    n_features: int
    n_markers: int
    effect: float
    n_samples: int
    balance: float = 0.5
    mislabelled: float = 0.0
    design: str = "independent"
    correlation: float = 0.0

    def __str__(self) -> str:
        words = f"N {self.n_features}, K {self.n_markers}, effect {self.effect:g}, M {self.n_samples}"
        words += f", balance {self.balance:g}" if self.balance != 0.5 else ""
        words += f", {self.mislabelled:.0%} wrong labels" if self.mislabelled else ""
        return words + (f", {self.design} {self.correlation:g}" if self.correlation else "")


INDEPENDENT = [
    Setting(2000, 20, 0.8, 50),
    Setting(2000, 20, 0.8, 100),
    Setting(2000, 20, 0.8, 200),
    Setting(2000, 20, 0.8, 400),
    Setting(2000, 5, 0.8, 100),
    Setting(2000, 5, 1.2, 60),
    Setting(2000, 5, 2.0, 40),
    Setting(5000, 10, 1.0, 80),
    Setting(5000, 10, 1.0, 160),
    Setting(2000, 50, 0.5, 200),
    Setting(2000, 50, 0.5, 500),
    Setting(500, 20, 0.6, 100),
    Setting(500, 20, 0.6, 200),
    Setting(2000, 20, 0.8, 200, balance=0.3),
    Setting(2000, 20, 0.8, 200, mislabelled=0.1),
    Setting(2000, 20, 0.8, 100, mislabelled=0.1),
    Setting(20_000, 20, 0.8, 112),
]
LOGISTIC = [
    Setting(500, 10, 1.0, 200),
    Setting(300, 10, 1.0, 400),
    Setting(500, 10, 0.5, 400),
    Setting(500, 10, 1.0, 300),
]
CORRELATED = [
    Setting(500, 10, 1.0, 200, design="autoregressive", correlation=0.5),
    Setting(500, 10, 1.0, 100, design="autoregressive", correlation=0.8),
    Setting(500, 10, 1.0, 200, design="autoregressive", correlation=0.8),
    Setting(500, 10, 1.0, 400, design="autoregressive", correlation=0.8),
    Setting(500, 10, 1.0, 200, design="autoregressive", correlation=0.95),
    Setting(500, 10, 1.0, 200, design="blocks", correlation=0.7),
    Setting(500, 10, 1.0, 200, design="factors", correlation=0.5),
    Setting(1000, 10, 1.0, 100, design="factors", correlation=0.5),
]


def main(argv: list[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=30)
    parser.add_argument("--data", type=Path, help="folder of colon.npz and leukemia.npz; else FOLDLESS_DATA")
    parser.add_argument("--parts", nargs="+", default=["independent", "logistic", "correlated", "real"])
    parser.add_argument(
        "--splits", type=int, default=10, help="random halves of each real table (default 10)"
    )
    args = parser.parse_args(argv)
    data = args.data or (Path(os.environ["FOLDLESS_DATA"]) if "FOLDLESS_DATA" in os.environ else None)
    if "real" in args.parts and not args.quick and (data is None or not data.is_dir()):
        raise SystemExit("The part on real data needs --data or FOLDLESS_DATA: the folder of colon.npz.")
    folder = common.output_folder(args.out, STUDY, args.quick)
    trials = min(args.trials, 2) if args.quick else args.trials
    common.write_machine(folder, trials=trials, parts=args.parts)

    parts = {"independent": INDEPENDENT, "logistic": LOGISTIC, "correlated": CORRELATED}
    if args.quick:
        parts = {
            "independent": [Setting(300, 10, 1.2, 60)],
            "logistic": [],
            "correlated": [Setting(200, 5, 1.0, 80, design="blocks", correlation=0.7)],
        }
    chosen = [(part, s) for part, settings in parts.items() if part in args.parts for s in settings]
    if chosen:
        with common.Results(folder, PREDICTED, "predictions.csv") as predictions:
            for part, setting in chosen:
                predictions.add(part=part, setting=str(setting), **predicted(part, setting))
        with common.Results(folder, COLUMNS) as results:
            for trial in range(trials):
                for number, (part, setting) in enumerate(chosen):
                    row = simulated(part, setting, seed=1000 * number + trial)
                    results.add(part=part, setting=str(setting), trial=trial, **row)
                print(f"trial {trial + 1} of {trials}", flush=True)
    if "real" in args.parts:
        with common.Results(folder, LEARNING, "learning.csv") as learning:
            for name in REAL[:1] if args.quick else REAL:
                for row in real(Source(data), name, 1 if args.quick else args.splits):
                    learning.add(data=name, **row)
    print("\n" + report(folder))
    draw(folder)
    print(f"\nresults.csv, predictions.csv, learning.csv, figure.png and machine.json are in {folder}")
    return folder


def predicted(part: str, setting: Setting) -> dict[str, Any]:
    study = Study(
        setting.n_features,
        setting.n_markers,
        setting.effect,
        balance=setting.balance,
        mislabelled=setting.mislabelled,
        labels="class-means" if part == "independent" else "logistic",
        spectrum=None if part != "correlated" else Spectrum.of_eigenvalues(eigenvalues(setting)),
    )
    fit = expected_fit(study, setting.n_samples)
    return {
        "n_samples": setting.n_samples,
        "error": fit.test_error,
        "power": fit.power,
        "n_false": fit.n_false,
        "best_error": study.best_error,
        "converged": fit.converged,
    }


def simulated(part: str, setting: Setting, seed: int) -> dict[str, Any]:
    """One study drawn, fitted and tested."""
    draw_study = class_means if part == "independent" else logistic
    X, y, active, error_of = draw_study(setting, seed)
    model, seconds, warned = common.timed(lambda: SparseClassifier().fit(X, y))
    chosen = model.get_support(indices=True)
    found = int(np.isin(chosen, active).sum())
    return {
        "n_samples": setting.n_samples,
        "error": error_of(model),
        "power": found / len(active),
        "n_false": len(chosen) - found,
        "solver": model.solver_,
        "seconds": seconds,
        "warned": warned,
    }


Drawn = tuple[NDArray[Any], NDArray[Any], NDArray[Any], Callable[[SparseClassifier], float]]


def class_means(setting: Setting, seed: int) -> Drawn:
    """The library's simulator where classes are of equal size, and the same by hand where they are not."""
    if setting.balance == 0.5:
        data = make_class_means(
            setting.n_samples,
            setting.n_features,
            setting.n_markers,
            bayes_error=float(ndtr(-np.sqrt(setting.n_markers) * setting.effect / 2)),
            mislabelled=setting.mislabelled,
            random_state=seed,
        )
        return (
            data.X,
            data.y,
            data.active,
            lambda m: data.test_error(np.asarray(m.coef_, dtype=float), float(m.intercept_[0])),
        )
    rng = np.random.default_rng(seed)
    n_second = round(setting.balance * setting.n_samples)
    y = rng.permutation(np.where(np.arange(setting.n_samples) < n_second, 1, -1))
    mean = np.zeros(setting.n_features)
    active = rng.choice(setting.n_features, setting.n_markers, replace=False)
    mean[active] = setting.effect / 2 * rng.choice([-1.0, 1.0], setting.n_markers)
    X = rng.standard_normal((setting.n_samples, setting.n_features)) + y[:, np.newaxis] * mean

    def error_of(model: SparseClassifier) -> float:
        coef, intercept = model.coef_[0], float(model.intercept_[0])
        signal, norm = float(mean @ coef), float(np.linalg.norm(coef))
        missed, alarm = ndtr(-(signal + intercept) / norm), ndtr((intercept - signal) / norm)
        return float(setting.balance * missed + (1 - setting.balance) * alarm)

    return X, y, active, error_of


def logistic(setting: Setting, seed: int) -> Drawn:
    """Logistic labels; the error is that of the predictions at the true probabilities of new samples."""
    rng = np.random.default_rng(seed)
    if setting.design in ("independent", "autoregressive"):
        data = make_logistic(
            setting.n_samples + N_TEST,
            setting.n_features,
            setting.n_markers,
            size=setting.effect,
            correlation=setting.correlation,
            random_state=rng,
        )
        X, y, weights = data.X, data.y, data.weights
    else:
        X = features(setting, setting.n_samples + N_TEST, rng)
        weights = np.zeros(setting.n_features)
        active = rng.choice(setting.n_features, setting.n_markers, replace=False)
        weights[active] = setting.effect * rng.choice([-1.0, 1.0], setting.n_markers)
        y = np.where(rng.random(len(X)) < expit(X @ weights), 1, -1)
    new = X[setting.n_samples :]

    def error_of(model: SparseClassifier) -> float:
        return float(np.mean(expit(-model.predict(new) * (new @ weights))))

    return X[: setting.n_samples], y[: setting.n_samples], np.flatnonzero(weights), error_of


def loadings(setting: Setting) -> NDArray[np.float64]:
    """Five factors; the same in every trial, as the population is."""
    drawn = np.random.default_rng(5).standard_normal((setting.n_features, 5))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


def features(setting: Setting, n_rows: int, rng: np.random.Generator) -> NDArray[np.float64]:
    own = np.sqrt(1 - setting.correlation) * rng.standard_normal((n_rows, setting.n_features))
    if setting.design == "blocks":
        common_part = rng.standard_normal((n_rows, setting.n_features // 10))
        return np.asarray(own + np.sqrt(setting.correlation) * np.repeat(common_part, 10, axis=1))
    common_part = rng.standard_normal((n_rows, 5)) @ loadings(setting).T
    return np.asarray(own + np.sqrt(setting.correlation) * common_part)


def eigenvalues(setting: Setting) -> NDArray[np.float64]:
    n, r = setting.n_features, setting.correlation
    if setting.design == "autoregressive":
        angle = (np.arange(n) + 0.5) / n * np.pi
        return np.asarray((1 - r**2) / (1 + r**2 - 2 * r * np.cos(angle)))
    if setting.design == "blocks":
        return np.where(np.arange(n) % 10 == 0, 1 + 9 * r, 1 - r)
    own = np.full(n, 1 - r)
    own[:5] += r * np.linalg.eigvalsh(loadings(setting).T @ loadings(setting))
    return own


def real(source: Source, name: str, splits: int) -> Iterator[dict[str, Any]]:
    """Predicted from a random half, and shown by fits on a half and more, tested on the rest."""
    data = source.table(name)
    sizes = [round(share * data.y.size) for share in TRAINING_SHARES]
    for trial in range(splits):
        for size in sizes:
            split = StratifiedShuffleSplit(1, train_size=size, random_state=trial)
            train, test = next(split.split(data.X, data.y))
            X, y = data.X[train], data.y[train]
            model = common.timed(lambda X=X, y=y: SparseClassifier().fit(X, y)).result
            wrong = float(np.mean(model.predict(data.X[test]) != data.y[test]))
            yield {"trial": trial, "n_samples": size, "what": "shown", "error": wrong}
            if size == sizes[0]:
                yield {"trial": trial, "n_samples": size, "what": "left out", "error": model.loo_error_}
                curve = learning_curve(model, X, y, [*sizes, data.y.size])
                for what, line in (
                    ("predicted", curve.error),
                    ("lower", curve.lower),
                    ("upper", curve.upper),
                ):
                    for n, error in zip(curve.n_samples, line, strict=True):
                        yield {"trial": trial, "n_samples": int(n), "what": what, "error": float(error)}
        print(f"{name}: split {trial + 1} of {splits}", flush=True)
    whole = common.timed(lambda: SparseClassifier().fit(data.X, data.y)).result
    yield {"trial": 0, "n_samples": data.y.size, "what": "shown", "error": whole.loo_error_}


if __name__ == "__main__":
    main()
