"""Does the planner keep its word? What it predicts beside fits of simulated studies and of real data.

python -m benchmarks.studies.plan_check.run --data /path/to/data

Parts: independent (class means, the planner's own ground), logistic (independent features, labels by a
logistic model), correlated (logistic labels, features of known spectrum whose directions are not random),
real (the learning curve predicted from half of a table, and what fits on more of it show).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr
from sklearn.model_selection import StratifiedShuffleSplit

from benchmarks.studies import _common as common
from benchmarks.studies._real_data import add_data_option, data_folder
from benchmarks.studies.plan_check.plot import draw, report
from benchmarks.studies.real_data.data import Source
from foldless import SparseClassifier
from foldless.estimators.planning import learning_curve
from foldless.theory.study import Spectrum, Study
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
    Setting(5000, 10, 1.0, 80),
    Setting(5000, 10, 1.0, 160),
    Setting(2000, 50, 0.5, 200),
    Setting(2000, 50, 0.5, 500),
    Setting(2000, 20, 0.8, 200, balance=0.3),
    Setting(2000, 20, 0.8, 200, mislabelled=0.1),
    Setting(2000, 20, 0.8, 100, mislabelled=0.1),
    Setting(500, 20, 0.6, 200),
    Setting(500, 20, 0.6, 100),
    Setting(2000, 5, 2.0, 40),
]
LOGISTIC = [
    Setting(500, 10, 1.0, 200),
    Setting(500, 10, 1.0, 200, design="autoregressive", correlation=0.5),
    Setting(500, 10, 1.0, 200, design="autoregressive", correlation=0.8),
    Setting(500, 10, 1.0, 100, design="autoregressive", correlation=0.8),
    Setting(500, 10, 1.0, 400, design="autoregressive", correlation=0.8),
    Setting(500, 10, 1.0, 200, design="autoregressive", correlation=0.95),
    Setting(500, 10, 1.0, 200, design="blocks", correlation=0.7),
    Setting(500, 10, 1.0, 200, design="factors", correlation=0.5),
    Setting(500, 10, 0.5, 400),
    Setting(500, 20, 1.0, 100),
    Setting(1000, 10, 1.0, 100, design="factors", correlation=0.5),
    Setting(300, 10, 1.0, 400),
]
# Repetitions, and random halves of real tables.
TRIALS = {"independent": 60, "logistic": 24, "correlated": 24}
SPLITS = {"colon": 20, "leukemia": 10}
FILES = tuple(f"{name}.npz" for name in SPLITS)


class Task(NamedTuple):
    """A setting, the part of the study it belongs to, and what its random numbers start from."""

    part: str
    setting: Setting
    seed: tuple[int, ...]


def tasks(quick: bool) -> list[Task]:
    if quick:
        blocks = Setting(200, 5, 1.0, 80, design="blocks", correlation=0.7)
        return [Task("independent", Setting(300, 10, 1.2, 60), (0,)), Task("correlated", blocks, (0, 7))]
    chosen = [Task("independent", setting, (number,)) for number, setting in enumerate(INDEPENDENT)]
    for number, setting in enumerate(LOGISTIC):
        chosen.append(Task("correlated" if setting.correlation else "logistic", setting, (number, 7)))
    return chosen


def main(argv: list[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=max(TRIALS.values()))
    add_data_option(parser, FILES)
    parser.add_argument("--parts", nargs="+", default=[*TRIALS, "real"], help="parts to run (default all)")
    args = parser.parse_args(argv)
    if "real" in args.parts and not args.quick:
        data_folder(args.data, FILES, who="The part on real data needs")
    folder = common.output_folder(args.out, STUDY, args.quick)
    common.write_machine(folder, trials=args.trials, parts=args.parts)

    chosen = [task for task in tasks(args.quick) if task.part in args.parts]
    if chosen:
        with common.Results(folder, PREDICTED, "predictions.csv") as predictions:
            for task in chosen:
                predictions.add(part=task.part, setting=str(task.setting), **predicted(task))
        with common.Results(folder, COLUMNS) as results:
            for trial in range(min(args.trials, 2) if args.quick else args.trials):
                for task in chosen:
                    if trial < TRIALS[task.part]:
                        row = simulated(task, trial)
                        results.add(part=task.part, setting=str(task.setting), trial=trial, **row)
                print(f"trial {trial + 1} of {args.trials}", flush=True)
    if "real" in args.parts:
        with common.Results(folder, LEARNING, "learning.csv") as learning:
            for name in ["colon"] if args.quick else SPLITS:
                for row in real(Source(args.data), name, 1 if args.quick else SPLITS[name]):
                    learning.add(data=name, **row)
    print("\n" + report(folder))
    draw(folder)
    print(f"\nresults.csv, predictions.csv, learning.csv, figure.png and machine.json are in {folder}")
    return folder


def predicted(task: Task) -> dict[str, Any]:
    setting = task.setting
    study = Study(
        setting.n_features,
        setting.n_markers,
        setting.effect,
        balance=setting.balance,
        mislabelled=setting.mislabelled,
        labels="class-means" if task.part == "independent" else "logistic",
        spectrum=None if task.part != "correlated" else Spectrum.of_eigenvalues(eigenvalues(setting)),
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


def simulated(task: Task, trial: int) -> dict[str, Any]:
    """One study drawn, fitted and tested."""
    rng = np.random.default_rng([trial, *task.seed])
    drawn = class_means if task.part == "independent" else logistic
    X, y, active, error_of = drawn(task.setting, rng)
    model, seconds, warned = common.timed(lambda: SparseClassifier().fit(X, y))
    chosen = model.get_support(indices=True)
    found = int(np.isin(chosen, active).sum())
    return {
        "n_samples": task.setting.n_samples,
        "error": error_of(model),
        "power": found / len(active),
        "n_false": len(chosen) - found,
        "solver": model.solver_,
        "seconds": seconds,
        "warned": warned,
    }


Drawn = tuple[NDArray[Any], NDArray[Any], NDArray[Any], Callable[[SparseClassifier], float]]


def class_means(setting: Setting, rng: np.random.Generator) -> Drawn:
    """Classes N(±mean, I), as `make_class_means` has them but of any balance; the error is exact."""
    n_second = round(setting.balance * setting.n_samples)
    y = np.where(np.arange(setting.n_samples) < n_second, 1, -1)
    mean = np.zeros(setting.n_features)
    active = rng.choice(setting.n_features, setting.n_markers, replace=False)
    mean[active] = setting.effect / 2 * rng.choice([-1, 1], setting.n_markers)
    X = rng.standard_normal((setting.n_samples, setting.n_features)) + y[:, np.newaxis] * mean
    recorded = y.copy()
    recorded[rng.choice(y.size, round(setting.mislabelled * y.size), replace=False)] *= -1

    def error_of(model: SparseClassifier) -> float:
        coef, intercept = model.coef_[0].astype(float), float(model.intercept_[0])
        signal, norm = float(mean @ coef), float(np.linalg.norm(coef))
        missed, alarm = ndtr(-(signal + intercept) / norm), ndtr((intercept - signal) / norm)
        return float(setting.balance * missed + (1 - setting.balance) * alarm)

    return X, recorded, active, error_of


def logistic(setting: Setting, rng: np.random.Generator) -> Drawn:
    """Logistic labels, as `make_logistic` has them; the error is at the true probabilities of new samples."""
    weights = np.zeros(setting.n_features)
    active = rng.choice(setting.n_features, setting.n_markers, replace=False)
    weights[active] = setting.effect * rng.choice([-1, 1], setting.n_markers)
    X = features(setting, setting.n_samples, rng)
    y = np.where(rng.random(setting.n_samples) < expit(X @ weights), 1, -1)
    new = features(setting, N_TEST, rng)

    def error_of(model: SparseClassifier) -> float:
        return float(np.mean(expit(-model.predict(new) * (new @ weights))))

    return X, y, active, error_of


def loadings(setting: Setting) -> NDArray[np.float64]:
    """Five factors; the same in every trial, as the population is."""
    drawn = np.random.default_rng(5).standard_normal((setting.n_features, 5))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


def features(setting: Setting, n_rows: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Columns of unit variance: independent, autoregressive, in blocks of ten, or with five factors."""
    X, r = rng.standard_normal((n_rows, setting.n_features)), setting.correlation
    if setting.design == "autoregressive":
        for j in range(1, setting.n_features):
            X[:, j] = r * X[:, j - 1] + np.sqrt(1 - r**2) * X[:, j]
    elif setting.design == "blocks":
        shared = rng.standard_normal((n_rows, setting.n_features // 10))
        X = np.sqrt(r) * np.repeat(shared, 10, axis=1) + np.sqrt(1 - r) * X
    elif setting.design == "factors":
        X = np.sqrt(r) * rng.standard_normal((n_rows, 5)) @ loadings(setting).T + np.sqrt(1 - r) * X
    return X


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
