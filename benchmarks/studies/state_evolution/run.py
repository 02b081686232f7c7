"""Measured against predicted performance of GAMP: figure 2 of Ziniel, Schniter, Sederberg 2015.

    python benchmarks/studies/state_evolution/run.py                  # everything; a few minutes on one core
    python benchmarks/studies/state_evolution/run.py --redraw         # the figure again, from the CSV files
    python benchmarks/studies/state_evolution/run.py --quick --out study

README.md describes the experiment and its result.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import time
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from math import acos, pi, sqrt
from pathlib import Path

import numpy as np
import scipy

from foldless.channels import Probit
from foldless.operators import Dense
from foldless.priors import Gaussian, SpikeAndSlab
from foldless.problem import Problem
from foldless.solvers.gamp import GAMP
from foldless.solvers.message_passing import ConstantDamping
from foldless.solvers.solve import Stopping, solve
from foldless.theory import Model, state_evolution

HERE = Path(__file__).resolve().parent
# The paper does not give its probit variance. A hundredth of the variance of the scores is small, leaves
# the same 3 % of labels to chance at every point, and so the curves show the effect of M and K alone.
NOISE_TO_SIGNAL = 0.01
# Measured and predicted agree if they differ by less than this, or by less than five standard errors.
TOLERANCE = 0.01
STANDARD_ERRORS = 5.0
SEED = 20140501
# State evolution describes the undamped iteration. With few features and little noise one draw in a
# hundred swings around its fixed point instead of reaching it; halved steps take all of them there.
UNDAMPED = GAMP(variances="uniform", damping=ConstantDamping(1.0))
DAMPED = GAMP(variances="uniform", damping=ConstantDamping(0.5))
STOPPING = Stopping(max_iter=2000)


@dataclass(frozen=True)
class Plan:
    """What to run. Ratios are to the number of features; points with K >= M are ill-posed and left out."""

    n_features: int
    trials: int
    sample_ratios: tuple[float, ...]
    active_ratios: tuple[float, ...]
    course_points: tuple[tuple[float, float], ...]  # (M/N, K/N) to follow through the iterations
    course_iterations: int
    surface: tuple[int, int]  # points of the drawn theory, along M/N and K/N

    @property
    def points(self) -> list[tuple[float, float]]:
        return [(m, k) for m in self.sample_ratios for k in self.active_ratios if k < m]


FULL = Plan(
    n_features=1024,
    trials=100,
    sample_ratios=(0.2, 0.4, 0.6, 0.8, 1.0),
    active_ratios=(0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8),
    course_points=((1.0, 0.1), (0.6, 0.3)),
    course_iterations=15,
    surface=(25, 25),
)
QUICK = Plan(
    n_features=400,
    trials=6,
    sample_ratios=(0.5, 1.0),
    active_ratios=(0.1, 0.3),
    course_points=((1.0, 0.1),),
    course_iterations=8,
    surface=(5, 5),
)


@dataclass(frozen=True)
class Comparison:
    """One point of the grid, or one iteration at a point: averages over trials and their standard errors."""

    sample_ratio: float
    active_ratio: float
    iteration: int  # 0: run to convergence
    trials: int
    converged: int  # trials that reached their tolerance; single iterations do not try
    measured_error: float
    measured_error_se: float
    predicted_error: float
    measured_mse: float
    measured_mse_se: float
    predicted_mse: float

    @property
    def error_difference(self) -> float:
        return self.measured_error - self.predicted_error

    @property
    def mse_difference(self) -> float:
        return self.measured_mse - self.predicted_mse

    @property
    def agrees(self) -> bool:
        return abs(self.error_difference) <= max(TOLERANCE, STANDARD_ERRORS * self.measured_error_se) and abs(
            self.mse_difference
        ) <= max(TOLERANCE, STANDARD_ERRORS * self.measured_mse_se)

    def line(self) -> str:
        error = f"{self.measured_error:.4f} ± {self.measured_error_se:.4f} ({self.predicted_error:.4f})"
        mse = f"{self.measured_mse:.4f} ± {self.measured_mse_se:.4f} ({self.predicted_mse:.4f})"
        place = f"M/N {self.sample_ratio:.3f}  K/N {self.active_ratio:.3f}"
        return f"{place}  measured (predicted): error {error}  mse {mse}{'' if self.agrees else '  DIFFERS'}"


@dataclass(frozen=True)
class Predicted:
    """One point of the surface that the figure's solid curves are made of."""

    sample_ratio: float
    active_ratio: float
    error: float
    mse: float


@dataclass(frozen=True)
class Task:
    """One draw of everything: X i.i.d. N(0, 1/M), w with exactly K non-zeros and |w|² = K, probit labels."""

    X: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    noise_var: float

    def test_error(self, estimate: np.ndarray) -> float:
        """The exact error of sign(x'ŵ) on new samples.

        x'ŵ and x'w + noise are Gaussian with covariance w'ŵ/M and variances |ŵ|²/M and |w|²/M + v, and two
        Gaussians of correlation ρ differ in sign with probability arccos(ρ)/π.
        """
        norm = np.linalg.norm(estimate) * sqrt(
            self.weights @ self.weights + self.noise_var * self.labels.size
        )
        return acos(np.clip(self.weights @ estimate / norm, -1.0, 1.0)) / pi if norm > 0 else 0.5

    def mse(self, estimate: np.ndarray) -> float:
        return float(np.mean((estimate - self.weights) ** 2))


def model(sample_ratio: float, active_ratio: float) -> Model:
    """Teacher and student alike: Bernoulli-Gauss weights with unit slab, probit labels."""
    score_var = active_ratio / sample_ratio
    return Model(SpikeAndSlab(Gaussian(1.0), active_ratio), Probit(NOISE_TO_SIGNAL * score_var))


def sizes(n_features: int, sample_ratio: float, active_ratio: float) -> tuple[int, int]:
    return round(sample_ratio * n_features), round(active_ratio * n_features)


def draw_task(n_features: int, n_samples: int, n_active: int, rng: np.random.Generator) -> Task:
    weights = np.zeros(n_features)
    slab = rng.standard_normal(n_active)
    weights[rng.choice(n_features, n_active, replace=False)] = slab * sqrt(n_active / (slab @ slab))
    noise_var = NOISE_TO_SIGNAL * n_active / n_samples
    X = rng.standard_normal((n_samples, n_features)) / sqrt(n_samples)
    labels = np.where(X @ weights + sqrt(noise_var) * rng.standard_normal(n_samples) > 0, 1.0, -1.0)
    return Task(X, labels, weights, noise_var)


def problem_of(task: Task, student: Model) -> Problem:
    return Problem(Dense(task.X), task.labels, np.ones_like(task.labels), student.channel, student.prior)


def compare_point(plan: Plan, sample_ratio: float, active_ratio: float) -> Comparison:
    """Converged GAMP against the fixed point of state evolution."""
    n_samples, n_active = sizes(plan.n_features, sample_ratio, active_ratio)
    # The prediction is for the ratios as they are after rounding to whole samples and features.
    exact = (n_samples / plan.n_features, n_active / plan.n_features)
    student = model(*exact)
    predicted = state_evolution(exact[0], student)
    errors, squares, converged = [], [], 0
    for trial in range(plan.trials):
        task = draw_task(
            plan.n_features, n_samples, n_active, np.random.default_rng([SEED, n_samples, n_active, trial])
        )
        solution = solve(problem_of(task, student), DAMPED, stopping=STOPPING)
        converged += solution.outcome.trustworthy
        errors.append(task.test_error(solution.posterior.mean))
        squares.append(task.mse(solution.posterior.mean))
    fixed = predicted.fixed_point
    return Comparison(
        *exact,
        0,
        plan.trials,
        converged,
        *mean_and_se(errors),
        fixed.test_error,
        *mean_and_se(squares),
        fixed.mse,
    )


def compare_course(plan: Plan, sample_ratio: float, active_ratio: float) -> list[Comparison]:
    """Every iteration of undamped GAMP against the same iteration of state evolution."""
    n_samples, n_active = sizes(plan.n_features, sample_ratio, active_ratio)
    exact = (n_samples / plan.n_features, n_active / plan.n_features)
    student = model(*exact)
    # A negative tolerance: all iterations are wanted, also those after the fixed point is reached.
    predicted = state_evolution(exact[0], student, max_iter=plan.course_iterations, tol=-1.0)
    errors = np.empty((plan.course_iterations, plan.trials))
    squares = np.empty_like(errors)
    for trial in range(plan.trials):
        task = draw_task(
            plan.n_features, n_samples, n_active, np.random.default_rng([SEED, n_samples, n_active, trial, 1])
        )
        problem = problem_of(task, student)
        state = UNDAMPED.init(problem)
        for iteration in range(plan.course_iterations):
            state = UNDAMPED.step(problem, state)
            errors[iteration, trial] = task.test_error(state.weights)
            squares[iteration, trial] = task.mse(state.weights)
    return [
        Comparison(
            *exact,
            n + 1,
            plan.trials,
            0,
            *mean_and_se(errors[n]),
            iterate.test_error,
            *mean_and_se(squares[n]),
            iterate.mse,
        )
        for n, iterate in enumerate(predicted.iterates)
    ]


def predict_surface(plan: Plan) -> list[Predicted]:
    columns, rows = plan.surface
    surface = []
    for m in np.linspace(0.05, max(plan.sample_ratios), columns):
        for k in np.linspace(0.02, max(plan.active_ratios), rows):
            # One step past the line K = M, so that level curves reach it.
            if k <= m + max(plan.active_ratios) / rows:
                fixed = state_evolution(m, model(m, k), tol=1e-6).fixed_point
                surface.append(Predicted(m, k, fixed.test_error, fixed.mse))
    return surface


def mean_and_se(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    return float(np.mean(values)), float(np.std(values, ddof=1) / sqrt(len(values)))


def header(plan: Plan, seconds: float) -> str:
    """Where the numbers come from: machine, versions, plan."""
    machine = f"{platform.machine()} {platform.system()}, {os.cpu_count()} cores"
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}, SciPy {scipy.__version__}"
    setting = f"N = {plan.n_features}, {plan.trials} trials, noise to signal {NOISE_TO_SIGNAL}, seed {SEED}"
    return f"machine: {machine}; {versions}\n{setting}; {seconds:.0f} s"


def write_csv(path: Path, kind: type, rows: Iterable[object], comment: str) -> None:
    with path.open("w", newline="") as file:
        file.writelines(f"# {line}\n" for line in comment.splitlines())
        writer = csv.writer(file)
        writer.writerow([f.name for f in fields(kind)])  # type: ignore[arg-type]
        for row in rows:
            values = astuple(row)  # type: ignore[call-overload]
            writer.writerow([f"{v:.6g}" if isinstance(v, float) else v for v in values])


def read_csv(path: Path, kind: type) -> list:
    with path.open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    types = {f.name: int if f.type in ("int", int) else float for f in fields(kind)}
    return [kind(**{name: types[name](value) for name, value in row.items()}) for row in rows]


def draw(out: Path) -> None:
    """The figure, from the CSV files alone."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from scipy.interpolate import griddata

    points: list[Comparison] = read_csv(out / "results.csv", Comparison)
    course: list[Comparison] = read_csv(out / "iterations.csv", Comparison)
    surface: list[Predicted] = read_csv(out / "surface.csv", Predicted)
    figure, axes = plt.subplots(2, 2, figsize=(10, 8), layout="constrained")
    where = np.array([(p.sample_ratio, p.active_ratio) for p in points])
    top = max(s.active_ratio for s in surface)
    m, k = np.array([(s.sample_ratio, s.active_ratio) for s in surface]).T

    for axis, name, levels in (
        (axes[0, 0], "error", [0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35]),
        (axes[0, 1], "mse", [0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4]),
    ):
        theory = np.array([getattr(s, name) for s in surface])
        solid = axis.tricontour(m, k, theory, levels=levels, cmap="viridis", linewidths=1.2)
        axis.clabel(solid, fmt="%g", fontsize=7)
        # Too few points for level curves of their own: the measured difference is interpolated and added.
        gap = griddata(where, [getattr(p, f"{name}_difference") for p in points], (m, k))
        inside = np.isfinite(gap)
        if len(points) > 4 and inside.sum() > 4:
            axis.tricontour(
                m[inside],
                k[inside],
                (theory + gap)[inside],
                levels=levels,
                colors="black",
                linestyles="dashed",
                linewidths=0.8,
            )
        axis.plot(*where.T, "k.", markersize=4)
        axis.fill_between([0, top], [0, top], [top, top], color="white", zorder=2)
        axis.plot([0, top], [0, top], "k-.", linewidth=1, zorder=3)
        axis.set(xlabel="M/N", ylabel="K/N", xlim=(0.05, m.max() + 0.01), ylim=(0.0, top))
    axes[0, 0].set_title("Test error (solid: predicted, dashed: measured)")
    axes[0, 1].set_title("Mean squared error of weights")

    for axis, name in ((axes[1, 0], "error"), (axes[1, 1], "mse")):
        places = dict.fromkeys((c.sample_ratio, c.active_ratio) for c in course)
        for number, place in enumerate(places):
            colour = f"C{number}"
            rows = [c for c in course if (c.sample_ratio, c.active_ratio) == place]
            n = [c.iteration for c in rows]
            axis.plot(n, [getattr(c, f"predicted_{name}") for c in rows], "-", color=colour)
            axis.errorbar(
                n,
                [getattr(c, f"measured_{name}") for c in rows],
                yerr=[STANDARD_ERRORS * getattr(c, f"measured_{name}_se") for c in rows],
                fmt="o",
                markersize=3,
                capsize=2,
                color=colour,
                label=f"M/N = {place[0]:.2g}, K/N = {place[1]:.2g}",
            )
        axis.set(xlabel="iteration")
        axis.legend()
    axes[1, 0].set_title("Test error per iteration (lines: predicted; bars: 5 s.e.)")
    axes[1, 1].set_title("Mean squared error per iteration")
    figure.savefig(out / "figure.png", dpi=110)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> list[Comparison]:
    parser = argparse.ArgumentParser(description="Measured against predicted performance of GAMP.")
    parser.add_argument("--trials", type=int, help="draws per point (default 100, quick 6)")
    parser.add_argument("--out", type=Path, default=HERE, help="folder for CSV files and figure")
    parser.add_argument("--quick", action="store_true", help="few points, few trials, N = 400")
    parser.add_argument("--redraw", action="store_true", help="only draw the figure, from the CSV files")
    options = parser.parse_args(arguments)
    plan = QUICK if options.quick else FULL
    if options.trials is not None:
        if options.trials < 2:
            parser.error("--trials must be at least 2, or there are no standard errors.")
        plan = Plan(**{**plan.__dict__, "trials": options.trials})
    options.out.mkdir(parents=True, exist_ok=True)

    if not options.redraw:
        start = time.perf_counter()
        points = []
        for sample_ratio, active_ratio in plan.points:
            points.append(compare_point(plan, sample_ratio, active_ratio))
            print(points[-1].line(), flush=True)
        course = [row for place in plan.course_points for row in compare_course(plan, *place)]
        surface = predict_surface(plan)
        comment = header(plan, time.perf_counter() - start)
        write_csv(options.out / "results.csv", Comparison, points, comment)
        write_csv(options.out / "iterations.csv", Comparison, course, comment)
        write_csv(options.out / "surface.csv", Predicted, surface, comment)
    draw(options.out)

    compared: list[Comparison] = read_csv(options.out / "results.csv", Comparison)
    steps: list[Comparison] = read_csv(options.out / "iterations.csv", Comparison)
    for title, rows in (("points", compared), ("iterations", steps)):
        print(
            f"{len(rows)} {title}, {sum(r.agrees for r in rows)} agree; largest difference: "
            f"error {max(abs(r.error_difference) for r in rows):.4f} "
            f"({max(abs(r.error_difference) / r.measured_error_se for r in rows):.1f} s.e.), "
            f"mse {max(abs(r.mse_difference) for r in rows):.4f} "
            f"({max(abs(r.mse_difference) / r.measured_mse_se for r in rows):.1f} s.e.)"
        )
    return compared + steps


if __name__ == "__main__":
    main()
