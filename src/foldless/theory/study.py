"""What is guessed of a study before it is made: features, markers and their strength, classes, labels."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, log, sqrt
from typing import Literal

import numpy as np
from scipy.special import log_expit, ndtr

from foldless.beliefs import Array
from foldless.channels import Logistic
from foldless.theory.quadrature import normal_expectation
from foldless.theory.spectra import Spectrum

# A difference of 0.8 standard deviations is what Cohen (1988) calls large.
LARGE_EFFECT = 0.8
SIZES = ("equal", "normal")
LABELS = ("class-means", "logistic")
# Nodes of normal sizes, in standard deviations. Which effects are found changes within the noise of one, so
# nodes must be close; signs do not matter.
SIZE_NODES = np.arange(0.1, 4.6, 0.2)


@dataclass(frozen=True)
class Study:
    """A guess at a population, in the units of its features' standard deviations.

    Parameters
    ----------
    n_features : int
    n_markers : float
        How many features tell the classes apart; the others do not, given the markers.
    effect : float
        How strongly. With ``labels="class-means"`` the standardised mean difference of a marker between the
        classes (Cohen's d); with "logistic" its weight in log-odds per standard deviation.
    sizes : 'equal' or 'normal'
        All markers of that effect, up or down; or normal effects around zero, of which it is the root mean
        square: a few strong markers and many weak ones.
    balance : float
        Share of the second class.
    mislabelled : float
        Share of recorded labels that are wrong.
    labels : 'class-means' or 'logistic'
        Features given classes: x | y ~ N(mean of the class, Σ). Or classes given features: log-odds are a
        weighted sum of normal features.
    spectrum : Spectrum, optional
        Eigenvalues of Σ, the correlations of features (within classes, for class means). Without it, features
        are independent. With it, a class-means marker is a feature whose weight in the best classifier, Σ⁻¹
        times the mean difference, is not zero, and `effect` is that weight.
    """

    n_features: int
    n_markers: float
    effect: float = LARGE_EFFECT
    sizes: Literal["equal", "normal"] = "equal"
    balance: float = 0.5
    mislabelled: float = 0.0
    labels: Literal["class-means", "logistic"] = "class-means"
    spectrum: Spectrum | None = None

    def __post_init__(self) -> None:
        if not (isfinite(self.n_features) and self.n_features >= 2):
            raise ValueError(f"n_features must be at least 2; got {self.n_features!r}.")
        if not 0 < self.n_markers < self.n_features:
            raise ValueError(
                f"n_markers must be above 0 and below the number of features, {self.n_features}; "
                f"got {self.n_markers!r}. It is a guess of how many features tell the classes apart."
            )
        if not (isfinite(self.effect) and self.effect > 0):
            raise ValueError(
                f"effect must be above 0; got {self.effect!r}. It is the difference of a marker's means in "
                "standard deviations: 0.2 is small, 0.5 medium, 0.8 large."
            )
        if not 0 < self.balance < 1:
            raise ValueError(f"balance is the share of one class, between 0 and 1; got {self.balance!r}.")
        if not 0 <= self.mislabelled < 0.5:
            raise ValueError(
                f"mislabelled is the share of wrong labels, from 0 to below 0.5; got {self.mislabelled!r}."
            )
        if self.sizes not in SIZES:
            raise ValueError(f"sizes must be one of {SIZES}; got {self.sizes!r}.")
        if self.labels not in LABELS:
            raise ValueError(f"labels must be one of {LABELS}; got {self.labels!r}.")

    @property
    def correlated(self) -> bool:
        return self.spectrum is not None and self.spectrum.correlated

    @property
    def score_power(self) -> float:
        """Variance of the best classifier's score (within classes, for class means): Σ effect²."""
        return self.n_markers * self.effect**2

    @property
    def marker_effects(self) -> tuple[Array, Array]:
        """Sizes of markers' effects and the share of markers of each."""
        if self.sizes == "equal":
            return np.array([float(self.effect)]), np.ones(1)
        density = np.exp(-0.5 * SIZE_NODES**2)
        return self.effect * SIZE_NODES, density / density.sum()

    @property
    def best_error(self) -> float:
        """The error on rightly labelled samples if all markers and their effects were known."""
        if self.labels == "class-means":
            # Between the classes the best score is log-odds plus score; columns are centred at their mean.
            intercept = self.log_odds + (self.balance - 0.5) * self.score_power
            return two_class_error(self.score_power, self.score_power, self.balance, intercept)
        intercept = self.teacher_intercept

        def wrong(z: Array) -> Array:
            score = z + intercept
            return np.exp(log_expit(-np.abs(score)))

        return float(normal_expectation(wrong, self.score_power)[0])

    @property
    def log_odds(self) -> float:
        """Of the second class, before any feature is seen."""
        return log(self.balance) - log(1.0 - self.balance)

    @property
    def teacher_intercept(self) -> float:
        """The constant that gives logistic labels their balance, found by bisection in the log-odds."""
        if self.balance == 0.5:
            return 0.0
        channel, var = Logistic(), np.array([self.score_power])
        low, high = sorted((0.0, self.log_odds * (2.0 + self.score_power)))
        for _ in range(60):
            middle = np.array([0.5 * (low + high)])
            share = float(np.exp(channel.respond(middle, var, np.ones(1)).log_z[0]))
            low, high = (low, float(middle[0])) if share > self.balance else (float(middle[0]), high)
        return 0.5 * (low + high)


def percent(share: float) -> str:
    """As it is said: two digits are more than a guess is worth."""
    return f"{100 * share:.0f} %" if share >= 0.095 else f"{100 * share:.1f} %"


def two_class_error(overlap: float, estimate_power: float, balance: float, intercept: float) -> float:
    """P(wrong side) for scores N((y - ȳ) overlap/2 + intercept, estimate_power) and y = ±1 with mean ȳ."""
    if estimate_power <= 0.0:
        return balance if intercept < 0 else 1.0 - balance
    std, label_mean = sqrt(estimate_power), 2.0 * balance - 1.0
    missed = ndtr(-((1.0 - label_mean) * overlap / 2 + intercept) / std)
    false_alarm = ndtr((intercept - (1.0 + label_mean) * overlap / 2) / std)
    return float(balance * missed + (1.0 - balance) * false_alarm)
