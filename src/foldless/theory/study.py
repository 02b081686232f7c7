"""What is guessed of a study before it is made: features, their correlations, markers, classes, labels."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, log, sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq, nnls
from scipy.special import log_expit, ndtr

from foldless.beliefs import Array
from foldless.channels import Logistic
from foldless.theory.quadrature import normal_expectation

# A difference of 0.8 standard deviations is what Cohen (1988) calls large.
LARGE_EFFECT = 0.8
SIZES = ("equal", "normal")
LABELS = ("class-means", "logistic")
# Nodes of normal sizes, in standard deviations. Which effects are found changes within the noise of one, so
# nodes must be close; signs do not matter.
SIZE_NODES = np.arange(0.1, 4.6, 0.2)
# Values that population eigenvalues may have, and points at which the relation is asked to hold.
N_VALUES, N_POINTS = 60, 80
SMALLEST_VALUE = 0.02
# The trace is known exactly, as columns have unit variance; this many times as sure as one equation.
TRACE_WEIGHT = 30.0
# Eigenvalues nearer than this share are one, once shares are known.
SMALLEST_SHARE = 1e-9


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues of a correlation matrix and the share of each; their mean is one."""

    values: Array
    shares: Array

    def __post_init__(self) -> None:
        values, shares = np.asarray(self.values, dtype=float), np.asarray(self.shares, dtype=float)
        if values.ndim != 1 or values.shape != shares.shape or not values.size:
            raise ValueError(
                f"Spectrum needs one share for each value; got {values.shape} values, {shares.shape} shares."
            )
        if not (np.all(np.isfinite(values)) and np.all(values >= 0) and np.any(values > 0)):
            raise ValueError("Spectrum(values=...) are eigenvalues: finite, at least 0, not all 0.")
        if not (np.all(np.isfinite(shares)) and np.all(shares >= 0) and shares.sum() > 0):
            raise ValueError("Spectrum(shares=...) must be finite, at least 0, not all 0.")
        shares = shares / shares.sum()
        # Correlations: columns of unit variance, so the mean eigenvalue is one.
        object.__setattr__(self, "values", values / float(shares @ values))
        object.__setattr__(self, "shares", shares)

    @classmethod
    def of_eigenvalues(cls, eigenvalues: ArrayLike) -> Spectrum:
        """From all eigenvalues of a known correlation matrix."""
        values = np.asarray(eigenvalues, dtype=float)
        return cls(values, np.full(values.shape, 1.0 / max(values.size, 1)))

    @classmethod
    def of_sample(cls, eigenvalues: ArrayLike, n_features: int) -> Spectrum:
        """The population's spectrum, estimated from the eigenvalues of XXᵀ/M of M rows.

        These are spread out, and all but M of N are zero. With v(x) = (1/M) Σ 1/(lᵢ + x) over the M
        eigenvalues lᵢ, population and sample are related by [Silverstein 1995; El Karoui 2008]

            (N/M) ∫ t v(x) / (1 + t v(x)) dH(t) = 1 - x v(x)        for every x > 0,

        which is linear in the population's distribution H. So H on a grid of values t is found by
        non-negative least squares, without any N x N matrix. x > 0 keeps away from the sample's own
        eigenvalues, where v is rough.

        All M of them are needed, zeros included. If means were taken out of X, M is what is left of the
        degrees of freedom.
        """
        sample = np.clip(np.asarray(eigenvalues, dtype=float), 0.0, None)
        if sample.ndim != 1 or sample.size < 2 or not np.any(sample > 0):
            raise ValueError("A spectrum needs the eigenvalues of at least two rows that differ.")
        n_rows = sample.size
        # Columns of unit variance: (1/N) trace is one.
        sample = sample * (n_features / sample.sum())
        ratio = n_features / n_rows
        mean = float(sample.mean())
        points = np.geomspace(1e-2 * mean, 10.0 * sample.max(), N_POINTS)
        v = np.mean(1.0 / (sample[:, np.newaxis] + points), axis=0)
        # One minus x v without cancellation, and in the units of the right-hand side.
        answer = np.mean(sample[:, np.newaxis] / (sample[:, np.newaxis] + points), axis=0)
        values = np.unique(np.append(np.geomspace(SMALLEST_VALUE, max(sample.max(), 2.0), N_VALUES), 1.0))
        tv = values * v[:, np.newaxis]
        rows = ratio * (tv / (1.0 + tv)) / answer[:, np.newaxis]
        system = np.vstack([rows, TRACE_WEIGHT * np.ones_like(values), TRACE_WEIGHT * values])
        shares, _ = nnls(system, np.concatenate([np.ones(N_POINTS), TRACE_WEIGHT * np.ones(2)]))
        kept = shares > SMALLEST_SHARE
        return cls(values[kept], shares[kept])

    @property
    def correlated(self) -> bool:
        """Whether eigenvalues differ at all."""
        return bool(np.ptp(self.values) > 1e-6)

    def to_dict(self) -> dict[str, Any]:
        return {"values": self.values.tolist(), "shares": self.shares.tolist()}


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
        """The constant that gives logistic labels their balance."""
        if self.balance == 0.5:
            return 0.0
        channel, var = Logistic(), np.array([self.score_power])

        def excess(intercept: float) -> float:
            response = channel.respond(np.array([intercept]), var, np.ones(1))
            return float(np.exp(response.log_z[0])) - self.balance

        return float(brentq(excess, 0.0, self.log_odds * (2.0 + self.score_power), xtol=1e-14))


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
