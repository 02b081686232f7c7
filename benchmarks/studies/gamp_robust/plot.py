"""The theory, the table and the figure of the mislabelling study, from its results.csv.

python -m benchmarks.studies.gamp_robust.plot
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import norm

from benchmarks.studies import _common as common

BAYES_ERROR = 0.05
ROBUST, DEFAULT = "robust logistic", "SparseClassifier"


def class_means_error(
    flipped: float, n_samples: int, n_features: int, bayes_error: float, n_classes: int = 2
) -> float:
    """Test error of the class means as weights, when a share f of the training labels is wrong.

    With x | y ~ N(y w, I), recorded labels ỹ and M samples, the estimate is
        ŵ = Σ ỹ_m x_m / M = (1 − 2f) w + noise of variance 1/M in each of N coordinates,
    and its test error is Φ(−w'ŵ / |ŵ|). For large N,
        w'ŵ → (1 − 2f) |w|²,    |ŵ|² → (1 − 2f)² |w|² + N/M,
    so the error is Φ(−|w| / √(1 + N / (M (1 − 2f)² |w|²))), where |w| = −Φ⁻¹(Bayes error).

    Of K classes with orthogonal means of length d, recorded ones are (1 − K f/(K−1)) times the true ones, but
    for what all have in common, with noise of variance K/M. Scores are independent, that of the right class
    further by  d / √(1 + N K / (M (1 − K f/(K−1))² d²))  of their standard deviations.
    """
    if n_classes == 2:
        signal = -float(ndtri(bayes_error))
        noise_share = n_features / (n_samples * ((1.0 - 2.0 * flipped) * signal) ** 2)
        return float(ndtr(-signal / np.sqrt(1.0 + noise_share)))
    d, kept = distance(bayes_error, n_classes), 1.0 - n_classes * flipped / (n_classes - 1)
    return error_at(d / np.sqrt(1.0 + n_features * n_classes / (n_samples * (kept * d) ** 2)), n_classes)


def error_at(lead: float, n_classes: int) -> float:
    """How often a score that leads by so much is not the largest of independent ones of unit variance."""
    return 1.0 - float(quad(lambda t: norm.pdf(t) * ndtr(t + lead) ** (n_classes - 1), -9.0, 9.0)[0])


def distance(bayes_error: float, n_classes: int) -> float:
    """The length of orthogonal class means at which the best classifier errs so often."""
    return float(brentq(lambda lead: error_at(lead, n_classes) - bayes_error, 0.0, 20.0))


def report(folder: Path) -> str:
    """Errors beside theory, and estimated flip rates; also written into the README."""
    results, parts = pd.read_csv(folder / "results.csv"), []
    for classes, own in results.groupby("classes"):
        methods = list(dict.fromkeys(own.method))
        parts.append(
            f"{'Two' if classes == 2 else 'Four'} classes: test error, mean (s.e.) over "
            f"{own.trial.nunique()} trials:\n\n{_errors(own, methods)}\n\n"
            "Estimated flip rate, and seconds:\n\n"
            f"{_flip_rates(own, methods)}\n\n{_verdict(own, ROBUST)} {_verdict(own, DEFAULT)}"
        )
    text = "\n\n".join(parts)
    common.refresh_readme(folder, text)
    return text


def _errors(results: pd.DataFrame, methods: list[str]) -> str:
    rows = []
    for flipped, group in results.groupby("flipped"):
        errors = [common.mean_and_error(group.error[group.method == method], 4) for method in methods]
        rows.append([f"{flipped:.0%}", f"{group.theory.iloc[0]:.4f}", *errors])
    return common.markdown(["flipped", "theory of class means", *methods], rows)


def _flip_rates(results: pd.DataFrame, methods: list[str]) -> str:
    with_rate = [m for m in methods if results.flip_prob[results.method == m].notna().any()]
    rows = []
    for flipped, group in results.groupby("flipped"):
        rates = [common.mean_and_error(group.flip_prob[group.method == m]) for m in with_rate]
        seconds = [common.mean_only(group.seconds[group.method == m], 2) for m in methods]
        rows.append([f"{flipped:.0%}", *rates, *seconds])
    return common.markdown(["flipped", *with_rate, *[f"s, {m}" for m in methods]], rows)


def _verdict(results: pd.DataFrame, method: str) -> str:
    own = results[results.method == method].groupby("flipped")[["error", "theory", "flip_prob"]].mean()
    above = (own.error - own.theory).max()
    off = (own.flip_prob - own.index).abs().max()
    return (
        f"{method}: at most {above:+.4f} above theory (allowed 0.01), flip rate at most {off:.3f} off "
        "(allowed 0.03)."
    )


def draw(folder: Path) -> None:
    """figure.png: test error and estimated flip rate against the share of flipped labels (figure 4)."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = pd.read_csv(folder / "results.csv").query("classes == 2")
    figure, (errors, rates) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    for method in dict.fromkeys(results.method):
        groups = results[results.method == method].groupby("flipped")
        for axes, column in ((errors, "error"), (rates, "flip_prob")):
            mean, error = groups[column].mean(), groups[column].sem().fillna(0)
            if mean.notna().any():
                axes.errorbar(mean.index, mean, error, marker="o", capsize=2, label=method)
    shares = np.linspace(0.0, results.flipped.max(), 100)
    size = results[["n_samples", "n_features"]].iloc[0]
    theory = [class_means_error(f, size.n_samples, size.n_features, BAYES_ERROR) for f in shares]
    errors.plot(shares, theory, color="black", linestyle="--", label="class means, theory")
    errors.axhline(BAYES_ERROR, color="grey", linestyle=":", label="Bayes")
    errors.set(xlabel="share of training labels flipped", ylabel="test error", title="Test error")
    rates.plot(shares, shares, color="grey", linestyle=":", label="truth")
    rates.set(xlabel="share of training labels flipped", ylabel="estimate", title="Estimated flip rate")
    errors.legend(fontsize=8)
    rates.legend(fontsize=8)
    figure.savefig(folder / "figure.png", dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    common.redraw(Path(__file__).parent, report, draw)
