"""Uda and Kabashima (2005) again: figures 1, 3 and 4 against theory, and 200 splits of the colon data.

python -m benchmarks.studies.pruned_classifier.run --data DIR
python -m benchmarks.studies.pruned_classifier.run --parts dynamics loo    # other rows of results.csv stay
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from math import acos, pi
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from benchmarks.studies import _common as common
from benchmarks.studies._real_data import add_data_option, data_folder
from benchmarks.studies._resumable import earlier_runs
from benchmarks.studies.pruned_classifier.plot import draw, report
from benchmarks.studies.real_data.data import Source, splits
from foldless import PrunedBayesClassifier
from foldless.channels import Step
from foldless.estimators.baselines import RVMClassifier
from foldless.operators import Dense
from foldless.priors import Gaussian, Pruned, SpikeAndSlab
from foldless.problem import Problem
from foldless.solvers import GAMP, AdaptiveDamping, ConstantDamping, Stopping, solve
from foldless.solvers.edges import EdgeMessages
from foldless.theory import macroscopic, saddle_point

STUDY = Path(__file__).parent
Array = NDArray[np.float64]
SEED = 20050605

PARTS = ("density", "dynamics", "loo", "forms", "colon")
COLUMNS = [
    "part",
    "n",  # samples = features, in simulations
    "true_density",
    "density",
    "noise",
    "iteration",
    "run",
    "error",
    "loo_error",
    "theory",  # error of the Bayes classifier, by macroscopic dynamics or replicas
    "gibbs",
    "stability",
    # forms: what messages on edges give instead
    "features",
    "edge_error",
    "power",
    "edge_power",
    "overlap",
    "edge_overlap",
    # colon
    "data",
    "split",
    "method",
    "errors",
    "n_test",
    "kept",
    "outcome",
    "seconds",
]
NOISE = 0.05
# Turns of centring and scaling; after ten, both hold to four digits.
TURNS = 10


class Sizes(NamedTuple):
    """How large everything is."""

    curve_points: int
    dynamics: tuple[tuple[int, int], ...]  # (N = M, runs)
    iterations: int
    loo_n: int
    loo_runs: int
    loo_densities: tuple[float, ...]
    forms: tuple[tuple[int, int], ...]
    splits: int


FULL = Sizes(
    curve_points=33,
    dynamics=((1000, 50), (2000, 50)),
    iterations=12,
    loo_n=2000,
    loo_runs=8,
    loo_densities=(0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.45, 0.6),
    forms=((500, 20), (1000, 6)),
    splits=200,
)
QUICK = Sizes(
    curve_points=3,
    dynamics=((150, 3),),
    iterations=3,
    loo_n=150,
    loo_runs=2,
    loo_densities=(0.1, 0.3),
    forms=((100, 2),),
    splits=2,
)


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=0)  # of the colon data the first splits; 0: all 200
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--methods", nargs="+", choices=(*METHODS, *POOLED), default=(*METHODS, *POOLED))
    add_data_option(parser, ["colon.npz"])
    args = parser.parse_args(argv)
    sizes = QUICK if args.quick else FULL
    if "colon" in args.parts and not args.quick:
        data_folder(args.data, ["colon.npz"], instead="or name --parts without colon")
    folder = common.output_folder(args.out, STUDY, args.quick)
    kept = rows_to_keep(folder / "results.csv", args.parts, args.methods)
    earlier = earlier_runs(folder / "machine.json") if kept else []
    common.write_machine(folder, parts=list(args.parts), earlier_runs=earlier)
    sources: dict[str, Iterator[dict[str, Any]]] = {
        "density": curves(sizes),
        "dynamics": dynamics(sizes),
        "loo": leave_one_out(sizes),
        "forms": forms(sizes),
        "colon": colon(sizes, None if args.quick else args.data, args.methods, args.trials or None),
    }
    with common.Results(folder, COLUMNS) as results:
        for row in kept:
            results.add(**row)
        for part in args.parts:
            start = time.perf_counter()
            for row in sources[part]:
                results.add(part=part, **row)
            print(f"{part}: {time.perf_counter() - start:.0f} s", flush=True)
    print(report(folder))
    draw(folder)
    return folder


def rows_to_keep(path: Path, parts: Sequence[str], methods: Sequence[str]) -> list[dict[str, Any]]:
    """What was measured before and is not measured again."""
    return [
        row
        for row in common.read_rows(path)
        if row["part"] not in parts or (row["part"] == "colon" and row["method"] not in methods)
    ]


# ---------------------------------------------------------------- theory and simulations


def curves(sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Figure 1: Bayes and Gibbs error against the student's density, α = 1."""
    for true_density in (0.1, 0.2, 0.4):
        for density in np.unique(np.append(np.geomspace(0.02, 0.95, sizes.curve_points), true_density)):
            point = saddle_point(1.0, density=density, true_density=true_density, channel=Step(NOISE))
            yield {
                "true_density": true_density,
                "density": float(density),
                "noise": NOISE,
                "theory": point.bayes_error,
                "gibbs": point.gibbs_error,
                "stability": point.stability,
            }


class Task(NamedTuple):
    """A teacher's weights and what it taught."""

    X: Array  # divided by √N, as all scores are
    labels: Array
    weights: Array

    def error(self, estimate: Array) -> float:
        """The exact error on new samples: scores are Gaussian, and labels flipped with probability κ."""
        norm = float(np.linalg.norm(estimate) * np.linalg.norm(self.weights))
        angle = acos(np.clip(self.weights @ estimate / norm, -1.0, 1.0)) if norm > 0 else pi / 2
        return NOISE + (1 - 2 * NOISE) * angle / pi

    def problem(self, density: float) -> Problem:
        return Problem(Dense(self.X), self.labels, np.ones_like(self.labels), Step(NOISE), Pruned(density))


def draw_task(n: int, true_density: float, rng: np.random.Generator, features: str = "spherical") -> Task:
    """N = M samples on the sphere |x|² = N (or with entries ±1), a teacher from (7), labels from (14)."""
    weights = SpikeAndSlab(Gaussian(), true_density).sample(n, rng)
    X = rng.standard_normal((n, n)) if features == "spherical" else rng.choice([-1.0, 1.0], (n, n))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    labels = np.where(X @ weights > 0, 1.0, -1.0) * np.where(rng.random(n) < NOISE, -1.0, 1.0)
    return Task(X, labels, weights)


def dynamics(sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Figure 3: the error after every iteration of (35) and (36), undamped, C_t = 0.2."""
    solver = GAMP(variances="uniform", damping=ConstantDamping(1.0))
    setting = {"true_density": 0.2, "noise": NOISE}
    predicted = {
        density: macroscopic(
            1.0, density=density, true_density=0.2, channel=Step(NOISE), max_iter=sizes.iterations, tol=0.0
        ).test_error
        for density in (0.1, 0.2, 0.3)
    }
    for n, runs in sizes.dynamics:
        for run in range(runs):
            task = draw_task(n, 0.2, np.random.default_rng([SEED, n, run]))
            for density, theory in predicted.items():
                problem = task.problem(density)
                state = solver.init(problem)
                for iteration in range(sizes.iterations):
                    state = solver.step(problem, state)
                    yield {
                        **setting,
                        "n": n,
                        "density": density,
                        "iteration": iteration + 1,
                        "run": run,
                        "error": task.error(state.weights),
                        "theory": float(theory[iteration]),
                    }


def leave_one_out(sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Figure 4: generalisation error and leave-one-out error of the converged algorithm, C_t = 0.1."""
    solver = GAMP(variances="uniform", damping=AdaptiveDamping())
    points = {
        density: saddle_point(1.0, density=density, true_density=0.1, channel=Step(NOISE))
        for density in sizes.loo_densities
    }
    for run in range(sizes.loo_runs):
        task = draw_task(sizes.loo_n, 0.1, np.random.default_rng([SEED, 4, run]))
        for density, point in points.items():
            solution = solve(task.problem(density), solver, stopping=Stopping(tol=1e-3, max_iter=80))
            yield {
                "n": sizes.loo_n,
                "true_density": 0.1,
                "density": density,
                "noise": NOISE,
                "run": run,
                "error": task.error(solution.posterior.mean),
                "loo_error": float(np.mean(task.labels * solution.posterior.loo_mean <= 0)),
                "theory": point.bayes_error,
                "stability": point.stability,
                "outcome": str(solution.outcome),
            }


def forms(sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Messages on nodes, O(NM), against messages on edges, O(N²M) as the paper counts."""
    undamped = ConstantDamping(1.0)
    stopping = Stopping(tol=1e-6, max_iter=40)
    for n, runs in sizes.forms:
        for features in ("spherical", "plus-minus one"):
            for run in range(runs):
                task = draw_task(n, 0.2, np.random.default_rng([SEED, 5, n, run]), features)
                problem = task.problem(0.2)
                node = solve(problem, GAMP(variances="uniform", damping=undamped), stopping=stopping)
                edge = solve(problem, EdgeMessages(variances="uniform", damping=undamped), stopping=stopping)
                a, b = node.posterior.mean, edge.posterior.mean
                yield {
                    "n": n,
                    "features": features,
                    "true_density": 0.2,
                    "density": 0.2,
                    "noise": NOISE,
                    "run": run,
                    "error": task.error(a),
                    "edge_error": task.error(b),
                    "power": float(np.mean(a**2)),
                    "edge_power": float(np.mean(b**2)),
                    "overlap": float(np.mean(a * task.weights)),
                    "edge_overlap": float(np.mean(b * task.weights)),
                }


# ---------------------------------------------------------------- colon


def pruned(**choices: Any) -> Callable[[Array, Array], Any]:
    """The paper's classifier: columns centred, not scaled, no intercept, damped.

    Samples need not be brought to equal length: a step channel with rank-one variances does not see lengths.
    """
    paper = {"standardize": False, "fit_intercept": False, "damping": 0.5, "max_iter": 150}
    return lambda X, y: PrunedBayesClassifier(**{**paper, **choices}).fit(X, y)


class OnSphere:
    """A rival behind the paper's preprocessing: means zero and samples of length √N, from training samples.

    Centring changes lengths and scaling changes means: they take turns, and new samples take the same turns.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.centers: list[Array] = []

    def fit(self, X: Array, y: Array) -> OnSphere:
        for _ in range(TURNS):
            self.centers.append(X.mean(axis=0))
            X = self._scaled(X - self.centers[-1])
        self.model.fit(X, y)
        return self

    def predict(self, X: Array) -> Any:
        for center in self.centers:
            X = self._scaled(X - center)
        return self.model.predict(X)

    def _scaled(self, X: Array) -> Array:
        return np.asarray(X * (np.sqrt(X.shape[1]) / np.linalg.norm(X, axis=1, keepdims=True)))


METHODS: dict[str, Callable[[Array, Array], Any]] = {
    "pruned": pruned(),
    "pruned, κ = 0.4": pruned(noise=0.4),
    "pruned, whitened, κ = 0.4": pruned(noise=0.4, whiten="components"),
    "pruned, whitened features, κ = 0.4": pruned(noise=0.4, whiten="features"),
    "pruned, whitened": pruned(whiten="components"),
    "PrunedBayesClassifier()": lambda X, y: PrunedBayesClassifier().fit(X, y),
    "RVM": lambda X, y: OnSphere(RVMClassifier(kernel="linear")).fit(X, y),
    "LDA": lambda X, y: OnSphere(LinearDiscriminantAnalysis()).fit(X, y),
}


# Test samples take part in the whitening, as in the paper: no figure of a classifier for new samples.
POOLED: dict[str, Callable[[Array], Array]] = {
    "pruned, whitened with test samples, κ = 0.4": lambda X: X,
    "logarithms, whitened with test samples, κ = 0.4": np.log,
}


def whitened_together(X: Array) -> Array:
    """All principal components of all samples, each of unit variance."""
    left, lengths, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    return np.asarray(left[:, lengths > 1e-10 * lengths[0]] * np.sqrt(len(X)))


def colon(
    sizes: Sizes, folder: Path | None, methods: Sequence[str], first: int | None = None
) -> Iterator[dict[str, Any]]:
    """Random splits, 42 to train and 20 to test: those of protocol b of the study of real data."""
    for split in islice(splits(Source(folder), "b", sizes.splits), first):
        X, y = np.exp(split.data.X), split.data.y  # intensities, as in the paper, and not their logarithms
        train, test = split.train, split.test
        for method in methods:
            samples, fit = X, METHODS.get(method)
            if fit is None:
                samples, fit = whitened_together(POOLED[method](X)), pruned(noise=0.4)
            fitted, seconds, warned = common.timed(partial(fit, samples[train], y[train]))
            wrong = fitted.predict(samples[test]) != y[test]
            yield {
                "data": split.data.name,
                "split": split.number,
                "method": method,
                "errors": int(wrong.sum()),
                "n_test": test.size,
                "error": float(wrong.mean()),
                "loo_error": getattr(fitted, "loo_error_", float("nan")),
                "density": getattr(fitted, "density_", float("nan")),
                "noise": getattr(fitted, "noise_", float("nan")),
                "kept": int(np.sum(fitted.get_support())) if hasattr(fitted, "get_support") else "",
                "outcome": str(getattr(fitted, "outcome_", warned)),
                "seconds": seconds,
            }
        print(f"colon split {split.number}", flush=True)


if __name__ == "__main__":
    main()
