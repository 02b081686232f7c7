"""Mislabelled training samples [Ziniel et al. 2015, section VI-C]: test error and estimated flip rate.

python -m benchmarks.studies.gamp_robust.run                     # rows that results.csv lacks
python -m benchmarks.studies.gamp_robust.run --methods SparseClassifier --again
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import hadamard
from scipy.special import ndtri

from benchmarks.studies import _common as common
from benchmarks.studies._resumable import Key, complete
from benchmarks.studies.gamp_robust.plot import (
    BAYES_ERROR,
    ROBUST,
    class_means_error,
    distance,
    draw,
    report,
)
from foldless import GAMPClassifier, SparseClassifier
from foldless.channels import FlippedLabels, Logistic
from foldless.datasets import make_class_means
from foldless.datasets.simulated import Simulated
from foldless.priors import Gaussian

STUDY = Path(__file__).parent
KEY = ("trial", "classes", "flipped", "method")
COLUMNS = [
    *KEY,
    "n_samples",
    "n_features",
    "error",
    "theory",
    "flip_prob",
    "seconds",
    "generative_weight",
    "loo_error",
    "n_iter",
    "outcome",
    "warned",
]


class Sizes(NamedTuple):
    n_samples: int
    n_features: int
    flipped: Sequence[float]


PAPER = Sizes(8192, 512, (0.0, 0.1, 0.2, 0.3, 0.4))
QUICK = Sizes(512, 24, (0.0, 0.3))
DISCRIMINATIVE = "robust (discriminative)"
GENIES = ("genie, robust logistic", "genie, plain logistic")
OF_TWO_CLASSES = (DISCRIMINATIVE, *GENIES)


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=3)
    names = [*methods(), *GENIES]
    parser.add_argument("--methods", nargs="+", choices=names, default=names)
    parser.add_argument("--classes", nargs="+", type=int, choices=(2, 4), default=[2, 4])
    parser.add_argument("--again", action="store_true", help="measure anew what is there already")
    args = parser.parse_args(argv)
    sizes = QUICK if args.quick else PAPER
    trials = min(args.trials, 1) if args.quick else args.trials
    folder = common.output_folder(args.out, STUDY, args.quick)

    def measure(key: Key, _: dict[Key, dict[str, Any]]) -> dict[str, Any]:
        found = one(int(key[0]), int(key[1]), float(key[2]), key[3], sizes)
        print(
            *key, {name: found.get(name) for name in ("error", "theory", "flip_prob", "seconds")}, flush=True
        )
        return found

    asked = [
        (str(trial), str(classes), f"{flipped:g}", name)
        for trial in range(trials)
        for classes in args.classes
        for flipped in sizes.flipped
        for name in args.methods
        if classes == 2 or name not in OF_TWO_CLASSES
    ]
    complete(folder, COLUMNS, KEY, asked, measure, again=args.again, trials=trials, **sizes._asdict())
    print("\n" + report(folder))
    draw(folder)
    print(f"\nresults.csv, figure.png and machine.json are in {folder}")
    return folder


def one(trial: int, classes: int, flipped: float, method: str, sizes: Sizes) -> dict[str, Any]:
    """A row but for its key."""
    draw_from = equal_weights if classes == 2 else four_classes
    data = draw_from(sizes.n_samples, sizes.n_features, flipped, trial)
    return {
        "n_samples": sizes.n_samples,
        "n_features": sizes.n_features,
        "theory": class_means_error(flipped, sizes.n_samples, sizes.n_features, BAYES_ERROR, classes),
    } | measured((methods() | genies(flipped, sizes.n_features))[method], data)


def methods() -> dict[str, GAMPClassifier | SparseClassifier]:
    return {
        ROBUST: GAMPClassifier(prior="gaussian", channel="robust-logistic"),
        DISCRIMINATIVE: GAMPClassifier(prior="gaussian", channel="robust-logistic", generative_weight=0.0),
        "plain logistic": GAMPClassifier(prior="gaussian", channel="logistic", generative_weight=0.0),
        "SparseClassifier": SparseClassifier(),
    }


def genies(flipped: float, n_features: int) -> dict[str, GAMPClassifier | SparseClassifier]:
    """Figure 4's, told the size of the weights, the robust one also how many labels are wrong.

    Class means ±μ in units of the noise have Bayes weights 2 μ; a standardised column is √(1 + μ²) narrower.
    """
    mu_squared = float(ndtri(BAYES_ERROR)) ** 2 / n_features
    prior = Gaussian(4.0 * mu_squared * (1.0 + mu_squared))
    robust = FlippedLabels(Logistic(), flipped) if flipped else Logistic()
    return {
        name: GAMPClassifier(prior, channel, generative_weight=0.0, tune=False)
        for name, channel in zip(GENIES, (robust, Logistic()), strict=True)
    }


def equal_weights(n_samples: int, n_features: int, flipped: float, seed: int) -> Simulated:
    """x | y ~ N(y μ 1, I), every feature as informative as every other, and a share of labels flipped.

    These are class-means data with all weights active, in units of the noise and with signs turned to +.
    A seed gives the same features at every flip rate.
    """
    data = make_class_means(
        n_samples, n_features, n_features, bayes_error=BAYES_ERROR, mislabelled=flipped, random_state=seed
    )
    noise_std = np.sqrt(data.noise_var)
    weights = np.full(n_features, 1.0 / noise_std)
    return replace(data, X=data.X * (data.weights / noise_std), weights=weights, noise_var=1.0)


@dataclass(frozen=True, eq=False)
class FourClasses:
    """x | y ~ N(mean of y, I), with orthogonal means of one length, and every feature in all of them."""

    X: NDArray[np.float64]
    y: NDArray[np.int_]
    means: NDArray[np.float64]

    def test_error(self, coef: NDArray[np.float64], intercept: NDArray[np.float64]) -> float:
        """Of new samples with right labels: their scores are Gaussian, of which 100 000 a class are drawn."""
        noise = np.random.default_rng(0).standard_normal((100_000, len(coef)))
        noise = noise @ np.linalg.qr(coef.T, mode="r")
        right = [(noise + coef @ mean + intercept).argmax(axis=1) == k for k, mean in enumerate(self.means)]
        return 1.0 - float(np.mean(right))


def four_classes(n_samples: int, n_features: int, flipped: float, seed: int) -> FourClasses:
    """Classes of equal size; a wrong label is any of the other three."""
    rng, n_classes = np.random.default_rng(seed), 4
    signs = np.tile(hadamard(n_classes), (1, n_features // n_classes))
    means = signs * distance(BAYES_ERROR, n_classes) / np.sqrt(signs.shape[1])
    true = rng.permutation(np.arange(n_samples) % n_classes)
    X = means[true] + rng.standard_normal((n_samples, means.shape[1]))
    wrong = rng.choice(n_samples, round(flipped * n_samples), replace=False)
    recorded = true.copy()
    recorded[wrong] = (true[wrong] + rng.integers(1, n_classes, wrong.size)) % n_classes
    return FourClasses(X, recorded, means)


def measured(model: GAMPClassifier | SparseClassifier, data: Simulated | FourClasses) -> dict[str, Any]:
    """One fit on the clock, judged on new samples with right labels, in closed form."""
    model, seconds, warned = common.timed(lambda: model.fit(data.X, data.y))
    row = {
        "error": (
            data.test_error(model.coef_, model.intercept_)
            if isinstance(data, FourClasses)
            else data.test_error(model.coef_, model.intercept_[0])
        ),
        "seconds": seconds,
        "generative_weight": model.generative_weight_,
        "loo_error": model.loo_error_,
        "n_iter": model.n_iter_,
        "outcome": str(model.outcome_),
        "warned": warned,
    }
    if hasattr(model, "flip_rate_"):
        row["flip_prob"] = model.flip_rate_
    return row


if __name__ == "__main__":
    main()
