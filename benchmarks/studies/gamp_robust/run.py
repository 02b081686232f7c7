"""Mislabelled training samples [Ziniel et al. 2015, section VI-C]: test error and estimated flip rate.

python -m benchmarks.studies.gamp_robust.run
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.studies import _common as common
from benchmarks.studies.gamp_robust.plot import BAYES_ERROR, ROBUST, class_means_error, draw, report
from foldless import GAMPClassifier, SparseClassifier
from foldless.datasets import make_class_means
from foldless.datasets.simulated import Simulated

STUDY = Path(__file__).parent
COLUMNS = [
    "trial",
    "n_samples",
    "n_features",
    "flipped",
    "method",
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


def main(argv: Sequence[str] | None = None) -> Path:
    args = common.options(__doc__ or "", trials=5).parse_args(argv)
    sizes = QUICK if args.quick else PAPER
    trials = min(args.trials, 1) if args.quick else args.trials
    folder = common.output_folder(args.out, STUDY, args.quick)
    common.write_machine(folder, **sizes._asdict(), trials=trials)

    with common.Results(folder, COLUMNS) as results:
        for trial in range(trials):
            for flipped in sizes.flipped:
                data = equal_weights(sizes.n_samples, sizes.n_features, flipped, seed=trial)
                theory = class_means_error(flipped, sizes.n_samples, sizes.n_features, BAYES_ERROR)
                for name, model in methods().items():
                    row = measured(model, data)
                    results.add(
                        trial=trial,
                        n_samples=sizes.n_samples,
                        n_features=sizes.n_features,
                        flipped=flipped,
                        method=name,
                        theory=theory,
                        **row,
                    )
                    print(
                        f"trial {trial}  flipped {flipped:.1f}  {name:26s} error {row['error']:.4f}  "
                        f"(theory {theory:.4f})  flip rate {row.get('flip_prob', float('nan')):.3f}  "
                        f"{row['seconds']:6.2f} s  {row['outcome']}",
                        flush=True,
                    )
    print("\n" + report(folder))
    draw(folder)
    print(f"\nresults.csv, figure.png and machine.json are in {folder}")
    return folder


def methods() -> dict[str, GAMPClassifier | SparseClassifier]:
    return {
        ROBUST: GAMPClassifier(prior="gaussian", channel="robust-logistic"),
        "robust (discriminative)": GAMPClassifier(
            prior="gaussian", channel="robust-logistic", generative_weight=0.0
        ),
        "plain logistic": GAMPClassifier(prior="gaussian", channel="logistic", generative_weight=0.0),
        "SparseClassifier": SparseClassifier(),
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


def measured(model: GAMPClassifier | SparseClassifier, data: Simulated) -> dict[str, Any]:
    """One fit on the clock, judged on new samples with right labels, in closed form."""
    model, seconds, warned = common.timed(lambda: model.fit(data.X, data.y))
    row = {
        "error": data.test_error(model.coef_, model.intercept_[0]),
        "seconds": seconds,
        "generative_weight": model.generative_weight_,
        "loo_error": model.loo_error_,
        "n_iter": model.n_iter_,
        "outcome": str(model.outcome_),
        "warned": warned,
    }
    if hasattr(model.channel_, "flip_prob"):
        row["flip_prob"] = float(model.channel_.flip_prob)
    return row


if __name__ == "__main__":
    main()
