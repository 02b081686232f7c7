"""Can the numbers of one fit be trusted? Leave-one-out against refits, probabilities against truth.

python -m benchmarks.studies.trust.run --data DIR
python -m benchmarks.studies.trust.run --parts calibration    # the other rows of results.csv stay
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from benchmarks.studies import _common as common
from benchmarks.studies._real_data import add_data_option, data_folder
from benchmarks.studies._resumable import earlier_runs
from benchmarks.studies.real_data.data import Source
from benchmarks.studies.trust import designs
from benchmarks.studies.trust.designs import Array, Task
from benchmarks.studies.trust.plot import draw, report
from foldless import SparseClassifier
from foldless.datasets import make_logistic

STUDY = Path(__file__).parent
PARTS = ("loo", "groups", "calibration")
FILES = ("colon.npz", "leukemia.npz", "haxby_slice.npz")
COLUMNS = [
    "part",
    "data",
    "run",
    "n_samples",
    "n_features",
    "solver",
    "outcome",
    "warned",
    "trustworthy",
    "flags",
    "seconds",
    # loo and groups
    "loo_error",
    "loo_log_loss",
    "refit_error",
    "refit_log_loss",
    "refits",
    # calibration; ten numbers each, of bins of predicted probability: how many, and the sums
    "inclusion_count",
    "inclusion_predicted",
    "inclusion_observed",
    "class_count",
    "class_predicted",
    "class_observed",
    "inclusion_z",
    "class_error",
    # weights: of how many features, and how many lie in their intervals
    "n_all",
    "n_likely",
    "n_likely_active",
    "simple_all",
    "simple_likely",
    "mixture_all",
    "mixture_likely",
    "slab_likely_active",
]
N_BINS = 10
LIKELY = 0.5
LEVEL = 0.9
# Independent columns are where a bar holds: they are drawn more often.
IN_DOMAIN_TIMES = 2


class Sizes(NamedTuple):
    """How large everything is; simulations for leave-one-out as shares of a full run."""

    most_refits: int
    loo_runs: int
    loo_share: float
    n_samples: int
    n_features: int
    n_test: int


FULL, QUICK = Sizes(1000, 3, 1.0, 200, 400, 2000), Sizes(3, 1, 0.3, 60, 40, 200)


class Held(NamedTuple):
    """Data for leave-one-out: of samples, or of groups if there are any."""

    data: str
    run: int
    X: Any
    y: NDArray[np.int_]
    groups: NDArray[np.int_] | None = None


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=40)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    add_data_option(parser, FILES)
    args = parser.parse_args(argv)
    needs_data = not args.quick and {"loo", "groups"} & set(args.parts)
    source = Source(
        data_folder(
            args.data, FILES, who="The parts loo and groups need", instead="or run --parts calibration alone"
        )
        if needs_data
        else None
    )
    sizes, trials = (QUICK, min(args.trials, 2)) if args.quick else (FULL, args.trials)
    folder = common.output_folder(args.out, STUDY, args.quick)
    others = rows_of_other_parts(folder, args.parts)
    earlier = earlier_runs(folder / "machine.json") if others else []
    common.write_machine(folder, trials=trials, **sizes._asdict(), earlier_runs=earlier)

    with common.Results(folder, COLUMNS) as results:
        for row in others:
            results.add(**row)
        for row in measured(args.parts, source, sizes, trials):
            results.add(**row)
            shown = {name: row[name] for name in ("part", "data", "run", "solver", "outcome", "warned")}
            found = {k: round(v, 3) for k, v in row.items() if isinstance(v, float)}
            print(" ".join(str(value) for value in (*shown.values(), found)), flush=True)
    print("\n" + report(folder))
    draw(folder)
    print(f"\nresults.csv, figure.png and machine.json are in {folder}")
    return folder


def rows_of_other_parts(folder: Path, parts: Sequence[str]) -> list[dict[str, str]]:
    """What an earlier run measured and this one does not."""
    return [row for row in common.read_rows(folder / "results.csv") if row["part"] not in parts]


def measured(parts: Sequence[str], source: Source, sizes: Sizes, trials: int) -> Iterator[dict[str, Any]]:
    if "loo" in parts:
        for held in samples_to_leave_out(source, sizes):
            yield against_refits("loo", held, sizes.most_refits)
    if "groups" in parts:
        for data in source.pairs():
            yield against_refits("groups", Held(data.name, 0, data.X, data.y, data.runs), sizes.most_refits)
    if "calibration" in parts:
        for design in designs.DESIGNS:
            for run in range(trials * IN_DOMAIN_TIMES if design == designs.IN_DOMAIN else trials):
                drawn = designs.task(design, run, sizes.n_samples, sizes.n_features, sizes.n_test)
                yield {"part": "calibration", "data": design, "run": run} | against_truth(drawn)


# ---------------------------------------------------------------------- leave-one-out against refits


def samples_to_leave_out(source: Source, sizes: Sizes) -> Iterator[Held]:
    for name in ("colon", "leukemia"):
        data = source.table(name)
        yield Held(name, 0, data.X, data.y)
    for run in range(sizes.loo_runs):
        n, p = (round(sizes.loo_share * size) for size in (80, 400))
        sparse = make_logistic(n, p, 5, size=2.0, random_state=run)
        yield Held("independent, sparse", run, sparse.X, sparse.y)
        n, p = (round(sizes.loo_share * size) for size in (60, 300))
        X, y = designs.three_factors(np.random.default_rng(run), n, p)
        yield Held("three factors", run, X, y)
        n, p = (round(sizes.loo_share * size) for size in (80, 200))
        ar = make_logistic(n, p, 5, size=1.5, correlation=0.5, random_state=run)
        yield Held("AR(0.5)", run, ar.X, ar.y)


def against_refits(part: str, held: Held, most_refits: int) -> dict[str, Any]:
    """What one fit says of left-out samples, and what fits without them say (the first ones, if not all)."""
    model, seconds, warned = common.timed(lambda: SparseClassifier().fit(held.X, held.y, groups=held.groups))
    number = np.arange(held.y.size) if held.groups is None else held.groups
    positive = np.full(held.y.size, np.nan)
    left_out = np.unique(number)[:most_refits]
    for one in left_out:
        inside = number != one
        rest = None if held.groups is None else held.groups[inside]
        refit = common.timed(
            lambda inside=inside, rest=rest: SparseClassifier().fit(
                held.X[inside], held.y[inside], groups=rest
            )
        ).result
        positive[~inside] = refit.predict_proba(held.X[~inside])[:, 1]
    own = np.where(held.y > 0, positive, 1.0 - positive)[np.isin(number, left_out)]
    return {
        "part": part,
        "data": held.data,
        "run": held.run,
        **how_it_went(model, seconds, warned, held.X),
        "loo_error": model.loo_error_,
        "loo_log_loss": model.loo_log_loss_,
        "refit_error": float(np.mean(own <= 0.5)),
        "refit_log_loss": -float(np.mean(np.log(np.maximum(own, np.finfo(float).tiny)))),
        "refits": left_out.size,
    }


def how_it_went(model: SparseClassifier, seconds: float, warned: str, X: Any) -> dict[str, Any]:
    return {
        "n_samples": X.shape[0],
        "n_features": X.shape[1],
        "solver": model.solver_,
        "outcome": str(model.outcome_),
        "warned": warned,
        "trustworthy": int(model.outcome_.trustworthy),
        "flags": len(model.flags_),
        "seconds": seconds,
    }


# ---------------------------------------------------------------------- probabilities against truth


def against_truth(drawn: Task) -> dict[str, Any]:
    """Inclusion probabilities, intervals and class probabilities of one fit, beside what is so."""
    model, seconds, warned = common.timed(lambda: SparseClassifier().fit(drawn.X, drawn.y))
    inclusion = np.asarray(model.inclusion_probability_, dtype=np.float64)
    active = drawn.weights != 0
    positive = np.asarray(model.predict_proba(drawn.X_test)[:, 1], dtype=np.float64)
    return {
        **how_it_went(model, seconds, warned, drawn.X),
        **binned("inclusion", inclusion, active),
        **binned("class", positive, drawn.y_test > 0),
        "inclusion_z": spiegelhalter(inclusion, active),
        "class_error": binned_error(positive, drawn.y_test > 0),
        **coverage(model, inclusion, drawn.weights),
    }


def bins(predicted: Array, observed: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
    """Ten bins of equal width: how many, the sum of probabilities, the number of events."""
    which = np.minimum((predicted * N_BINS).astype(int), N_BINS - 1)
    return tuple(  # type: ignore[return-value]
        np.bincount(which, weights=values, minlength=N_BINS)
        for values in (np.ones_like(predicted), predicted, observed.astype(float))
    )


def binned(name: str, predicted: Array, observed: NDArray[np.bool_]) -> dict[str, str]:
    """Bins as text, so that those of several runs can be added up."""
    parts = zip(("count", "predicted", "observed"), bins(predicted, observed), strict=True)
    return {f"{name}_{part}": " ".join(f"{value:.6g}" for value in values) for part, values in parts}


def binned_error(predicted: Array, observed: NDArray[np.bool_]) -> float:
    """|observed - predicted| of bins, averaged with their counts."""
    count, expected, found = bins(predicted, observed)
    return float(np.abs(found - expected).sum() / count.sum())


def spiegelhalter(predicted: Array, observed: NDArray[np.bool_]) -> float:
    """Spiegelhalter's statistic [1986]: standard normal if events are as frequent as predicted."""
    lean = 1.0 - 2.0 * predicted
    var = float(np.sum(lean**2 * predicted * (1.0 - predicted)))
    return float(np.sum((observed - predicted) * lean) / np.sqrt(max(var, np.finfo(float).tiny)))


def coverage(model: SparseClassifier, inclusion: Array, weights: Array) -> dict[str, int]:
    """How many true weights lie in their 90 % intervals, by three readings of the posterior.

    simple: sparse_coef_ ± 1.645 sparse_coef_std_. mixture: the 5 % and 95 % quantiles of a weight that is
    zero with probability 1 - inclusion, else Gaussian; its atom at zero cannot be cut, so it covers more.
    slab: the Gaussian alone, of weights that are not zero.
    """
    half = -ndtri((1 - LEVEL) / 2)
    coef, std = (
        np.ravel(values).astype(np.float64) for values in (model.sparse_coef_, model.sparse_coef_std_)
    )
    simple = np.abs(weights - coef) <= half * std
    likely = inclusion > LIKELY
    found = {
        "n_all": weights.size,
        "n_likely": int(likely.sum()),
        "simple_all": int(simple.sum()),
        "simple_likely": int(simple[likely].sum()),
    }
    if not model.solver_.startswith("GAMP"):
        return found
    share = np.maximum(inclusion, np.finfo(float).tiny)
    slab_mean = coef / share
    slab_std = np.sqrt(np.maximum(std**2 / share - (1.0 - share) * slab_mean**2, 0.0))
    slab = np.abs(weights - slab_mean) <= half * slab_std
    low, high = (
        mixture_quantile(q, inclusion, slab_mean, slab_std) for q in ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    )
    mixture = (weights >= low) & (weights <= high)
    likely_active = likely & (weights != 0)
    return found | {
        "n_likely_active": int(likely_active.sum()),
        "mixture_all": int(mixture.sum()),
        "mixture_likely": int(mixture[likely].sum()),
        "slab_likely_active": int(slab[likely_active].sum()),
    }


def mixture_quantile(q: float, inclusion: Array, mean: Array, std: Array) -> Array:
    """Of (1 - inclusion) δ₀ + inclusion N(mean, std²): below the atom, at it, or above it."""
    share = np.maximum(inclusion, np.finfo(float).tiny)
    below = mean + std * ndtri(np.clip(q / share, 0.0, 1.0))
    above = mean + std * ndtri(np.clip((q - (1.0 - share)) / share, 0.0, 1.0))
    return np.where(below < 0, below, np.where(above > 0, above, 0.0))


if __name__ == "__main__":
    main()
