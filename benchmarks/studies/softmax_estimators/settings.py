"""How many points, draws and mixture components do the output estimators need? Byrne's figures 3.1 to 3.6.

The thesis's test: four classes, cavity mean (1, 0, 0, 0), equal variances q; scores and a label are drawn,
and the squared error of the estimated scores is divided by 4 q, so that the cavity mean itself has 1. The
thesis averages draws. With one cavity there are four answers of an estimator, one for each label, so the
average is a sum here: P(label), posterior means and variances come from the default estimator, `gumbel`,
which is exact to 1e-4.

python -m benchmarks.studies.softmax_estimators.settings [--quick] [--out FOLDER]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import ndtr, softmax

from benchmarks.studies import _common as common
from foldless.beliefs import Response
from foldless.channels import Multinomial, softmax_estimators

STUDY = Path(__file__).parent
FILE = "settings.csv"
COLUMNS = [
    "figure",
    "setting",
    "rule",
    "variance",
    "points",
    "reach",
    "components",
    "mse",
    "excess",
    "spread",
    "seconds",
]
NAMING = ("rule", "variance", "points", "reach", "components")
CAVITY = np.array([1.0, 0.0, 0.0, 0.0])
LABELS = np.arange(CAVITY.size)
# The thesis's defaults: points per score within so many standard deviations, and mixture components.
POINTS, REACH, COMPONENTS = 7, 4.0, 2
N_TIMED, RUNS = 1000, 7
Array = NDArray[np.float64]
Respond = Callable[[Array, Array, NDArray[np.intp]], Response]
Mixture = tuple[Array, Array, Array]  # shares, centres, scales


def main(argv: Sequence[str] | None = None) -> Path:
    args = common.options(__doc__ or "", trials=200).parse_args(argv)
    folder = common.output_folder(args.out, STUDY, args.quick)
    with common.Results(folder, COLUMNS, FILE) as results:
        for row in [*accuracy(5 if args.quick else args.trials), *times(50 if args.quick else N_TIMED)]:
            results.add(setting=named(row), **row)
    print(report(folder))
    draw(folder)
    return folder


def named(row: dict[str, Any]) -> str:
    """What tells a row from the others of its figure, in one cell."""
    return ", ".join(f"{name} {common.rounded(row[name])}" for name in NAMING if name in row)


def accuracy(repetitions: int) -> Iterator[dict[str, Any]]:
    """Figures 3.1 to 3.4; of importance sampling the mean and the spread over sets of draws."""
    for reach, points in product((1.0, 2.0, 3.0, 4.0, 5.0), range(2, 13)):
        yield {"figure": "3.1", "points": points, "reach": reach} | judged(
            partial(on_grid, points=points, reach=reach), 1.0
        )
    rng = np.random.default_rng(0)
    for variance, draws in product((0.1, 1.0, 10.0, 100.0), (10, 30, 100, 300, 1000, 1500, 3000, 10_000)):
        runs = pd.DataFrame(
            judged(partial(by_draws, draws=draws, rng=rng), variance) for _ in range(repetitions)
        )
        spread = float(runs.mse.std())
        yield {"figure": "3.2", "points": draws} | runs.mean().to_dict() | {"spread": spread}
    for rule, components in product(OUTER, (1, 2, 3, 4)):
        yield {"figure": "3.3", "rule": rule, "points": POINTS, "components": components} | judged(
            partial(by_mixture, mixture=fitted(components), points=POINTS, rule=rule), 1.0
        )
    for rule, points in product(OUTER, range(2, 22)):
        yield {"figure": "3.4", "rule": rule, "points": points, "components": COMPONENTS} | judged(
            partial(by_mixture, mixture=fitted(COMPONENTS), points=points, rule=rule), 1.0
        )


def times(n_cavities: int) -> Iterator[dict[str, Any]]:
    """Figures 3.5 and 3.6: seconds for a thousand cavities."""
    mean, var = np.tile(CAVITY, (n_cavities, 1)), np.ones((n_cavities, CAVITY.size))
    labels = np.arange(n_cavities) % CAVITY.size
    cells = [("3.5", POINTS, count) for count in (1, 2, 3, 4)]
    cells += [("3.6", points, COMPONENTS) for points in range(3, 22, 3)]
    for figure, points, components in cells:
        call = partial(
            by_mixture, mean, var, labels, mixture=fitted(components), points=points, rule="uniform"
        )
        seconds = min(common.timed(call).seconds for _ in range(RUNS))
        yield {"figure": figure, "points": points, "components": components, "seconds": seconds}


def judged(respond: Respond, variance: float) -> dict[str, float]:
    """Mean squared error in units of the cavity variance, and how far it is above the least possible."""
    mean, var = np.tile(CAVITY, (LABELS.size, 1)), np.full((LABELS.size, CAVITY.size), variance)
    exact = Multinomial(CAVITY.size).respond(mean, var, LABELS + 1.0)
    share = softmax(exact.log_z)
    off = variance * (respond(mean, var, LABELS).slope - exact.slope) ** 2
    left = 1.0 - variance * exact.curvature  # of the variance, once the label is known
    excess = float(share @ off.mean(axis=1))
    return {"variance": variance, "mse": float(share @ left.mean(axis=1)) + excess, "excess": excess}


def on_grid(mean: Array, var: Array, labels: NDArray[np.intp], *, points: int, reach: float) -> Response:
    with mock.patch.multiple(softmax_estimators, GRID_POINTS=points, GRID_REACH=reach):
        return softmax_estimators.grid_response(mean, var, labels)


def by_draws(
    mean: Array, var: Array, labels: NDArray[np.intp], *, draws: int, rng: np.random.Generator
) -> Response:
    """The package draws the same numbers in every call; here each call has its own."""
    with (
        mock.patch.object(softmax_estimators, "IMPORTANCE_DRAWS", draws),
        mock.patch.object(softmax_estimators.np.random, "default_rng", return_value=rng),
    ):
        return softmax_estimators.importance_response(mean, var, labels)


def uniform(points: int) -> tuple[Array, Array]:
    """The thesis's rule: equal steps within the reach of its grids."""
    nodes = np.linspace(-REACH, REACH, points)
    return nodes, np.exp(-0.5 * nodes**2)


OUTER = {"uniform": uniform, "Gauss-Hermite": np.polynomial.hermite_e.hermegauss}


def by_mixture(
    mean: Array, var: Array, labels: NDArray[np.intp], *, mixture: Mixture, points: int, rule: str
) -> Response:
    nodes, weights = OUTER[rule](points)
    with mock.patch.multiple(
        softmax_estimators,
        MIXTURES={mean.shape[1]: mixture},
        OUTER_NODES=nodes,
        OUTER_WEIGHTS=weights,
    ):
        return softmax_estimators.mixture_response(mean, var, labels)


_FITTED: dict[int, Mixture] = {}


def fitted(components: int) -> Mixture:
    """Products of normal cdfs for 1/(1 + Σ e^-δ_k), k = 1 to 3: least largest error over a grid of δ.

    The largest error has no derivative; the mean of its 2nd, 8th and 32nd power does, and comes near it.
    """
    if components not in _FITTED:
        line = np.linspace(-7.0, 9.0, 25)
        delta = np.array(list(combinations_with_replacement(line, CAVITY.size - 1)))
        target = 1.0 / (1.0 + np.exp(-delta).sum(axis=1))
        found = np.concatenate(
            [np.zeros(components), np.linspace(-1.5, 1.5, components), np.zeros(components)]
        )
        for power in (2, 8, 32):
            found = minimize(_misfit, found, args=(delta, target, power), options={"maxiter": 2000}).x
        _FITTED[components] = _mixture(found)
    return _FITTED[components]


def _mixture(parameters: Array) -> Mixture:
    shares, centres, scales = np.split(parameters, 3)
    return softmax(shares), centres, np.exp(scales)


def _misfit(parameters: Array, delta: Array, target: Array, power: int) -> float:
    return float(np.log(np.mean(np.abs(of_mixture(_mixture(parameters), delta) - target) ** power)) / power)


def of_mixture(mixture: Mixture, delta: Array) -> Array:
    shares, centres, scales = mixture
    return ndtr((delta[:, np.newaxis] - centres[:, np.newaxis]) / scales[:, np.newaxis]).prod(axis=2) @ shares


def report(folder: Path) -> str:
    table = pd.read_csv(folder / FILE, dtype={"figure": str})
    lines = []
    for figure, part in table.groupby("figure"):
        lines.append(f"figure {figure}\n{part.dropna(axis=1, how='all').to_string(index=False)}\n")
    return "\n".join(lines)


def draw(folder: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    table = pd.read_csv(folder / FILE, dtype={"figure": str})
    figure, axes = plt.subplots(2, 3, figsize=(12, 7), layout="constrained")
    panels = {
        "3.1": ("points", "mse", "reach", "grid: points per score", "α = {:g}"),
        "3.2": ("points", "mse", "variance", "importance sampling: draws", "q = {:g}"),
        "3.3": ("components", "mse", "rule", "mixture: components", "{}"),
        "3.4": ("points", "mse", "rule", "mixture: points of the outer integral", "{}"),
        "3.5": ("components", "seconds", None, "mixture: components", ""),
        "3.6": ("points", "seconds", None, "mixture: points of the outer integral", ""),
    }
    for ax, (name, (x, y, by, xlabel, label)) in zip(axes.flat, panels.items(), strict=True):
        part = table[table.figure == name]
        for value, line in [("", part)] if by is None else part.groupby(by):
            ax.plot(line[x], line[y], marker=".", label=label.format(value))
        ax.set(title=f"figure {name}", xlabel=xlabel, ylabel="MSE / q" if y == "mse" else "s, 1000 cavities")
        if by is not None:
            ax.legend(fontsize=7)
        if y == "seconds":
            ax.set_ylim(bottom=0)
    axes.flat[1].set_xscale("log")
    figure.savefig(folder / "settings.png", dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main()
