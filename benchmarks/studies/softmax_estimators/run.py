"""How accurate and how fast are the output estimators of the multinomial channel?

Byrne's figures 3.7 and 3.8: the error of the posterior mean of the scores against the cavity variance, and
the time against the number of classes. The reference is importance sampling with a million draws.

    python -m benchmarks.studies.softmax_estimators.run [--quick] [--out FOLDER]
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import softmax

from benchmarks.studies._common import Results, options, output_folder, timed, write_machine
from foldless.channels import Multinomial
from foldless.channels.multinomial import ESTIMATORS
from foldless.channels.softmax_estimators import LARGEST_GRID

COLUMNS = ("kind", "estimator", "n_classes", "variance", "error", "sampling_error", "seconds")


def reference(mean, var, code, n_draws, rng):
    """Posterior mean of the scores, in standard deviations from the cavity mean, and its standard error."""
    total, first, squares = 0.0, np.zeros(mean.size), np.zeros(mean.size)
    for _ in range(max(n_draws // 100_000, 1)):
        draws = rng.standard_normal((min(n_draws, 100_000), mean.size))
        weight = softmax(mean + np.sqrt(var) * draws, axis=1)[:, code]
        total += weight.sum()
        first += weight @ draws
        squares += weight**2 @ draws**2
    return first / total, np.sqrt(squares) / total


def errors(variances, n_cavities, n_draws, rng):
    """Of four classes, at labels as the model would draw them."""
    for variance in variances:
        mean = rng.normal(0, np.sqrt(1 + variance), (n_cavities, 4))
        var = np.full_like(mean, variance)
        scores = mean + np.sqrt(var) * rng.standard_normal(mean.shape)
        codes = np.array([rng.choice(4, p=p) for p in softmax(scores, axis=1)])
        truth, noise = zip(
            *(reference(*args, n_draws, rng) for args in zip(mean, var, codes, strict=True)), strict=True
        )
        for name in ESTIMATORS:
            slope = Multinomial(4, estimator=name).respond(mean, var, codes + 1.0).slope
            yield {
                "kind": "error",
                "estimator": name,
                "n_classes": 4,
                "variance": float(variance),
                "error": float(np.sqrt(np.mean((np.sqrt(var) * slope - np.array(truth)) ** 2))),
                "sampling_error": float(np.sqrt(np.mean(np.square(noise)))),
            }


def main(arguments: Sequence[str] | None = None) -> Path:
    chosen = options(__doc__ or "", trials=1).parse_args(arguments)
    folder = output_folder(chosen.out, Path(__file__).parent, chosen.quick)
    n_draws, n_cavities = (100_000, 2) if chosen.quick else (1_000_000, 6)
    rng = np.random.default_rng(0)
    with Results(folder, COLUMNS) as results:
        for row in errors(np.geomspace(1e-3, 1e3, 4 if chosen.quick else 13), n_cavities, n_draws, rng):
            results.add(**row)
        for n_classes in (2, 4) if chosen.quick else range(2, 11):
            mean, codes = rng.normal(0, 1, (500, n_classes)), rng.integers(0, n_classes, 500)
            for name in ESTIMATORS:
                if name == "grid" and n_classes > min(LARGEST_GRID, 5):
                    continue
                respond = partial(
                    Multinomial(n_classes, estimator=name).respond, mean, np.ones_like(mean), codes + 1.0
                )
                runs = [timed(respond) for _ in range(5)]
                results.add(
                    kind="time", estimator=name, n_classes=n_classes, seconds=min(r.seconds for r in runs)
                )
    write_machine(folder, draws=n_draws)
    draw(folder)
    return folder


def draw(folder: Path) -> None:
    """Error against variance, time against classes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    table = pd.read_csv(folder / "results.csv")
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    errors, times = table[table.kind == "error"], table[table.kind == "time"]
    for name, part in errors.groupby("estimator"):
        left.loglog(part.variance, part.error, marker=".", label=name)
    noise = errors.groupby("variance").sampling_error.mean()
    left.loglog(noise.index, noise, "k:", label="noise of a million draws")
    left.set(xlabel="cavity variance", ylabel="error of the mean, in standard deviations", ylim=(1e-5, 10))
    left.legend(fontsize=7)
    for name, part in times.groupby("estimator"):
        right.semilogy(part.n_classes, part.seconds, marker=".", label=name)
    right.set(xlabel="classes", ylabel="seconds for 500 samples")
    figure.savefig(folder / "figure.png", dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    main()
