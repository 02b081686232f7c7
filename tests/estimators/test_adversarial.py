"""500 matrices made to break a fit: each ends in a named outcome, with finite numbers."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from foldless import SparseClassifier
from foldless.problem import Outcome

# Of each kind; the first of them, in every storage, in every run of the tests; the rest is a study.
N_OF_A_KIND, N_AT_FIRST = 50, 12
STORAGES = (np.asarray, sp.csr_array, lambda X: X.astype(np.float32))
# Half of these fits go in circles for as long as they may. All but one of a kind may not for long.
SHORT, LONG = 15, 1000


def any_shape(rng):
    """Few samples; as often more features than samples as fewer."""
    return int(rng.integers(5, 25)), int(rng.choice([1, 2, 6, 12, 30, 60]))


def any_labels(rng, n_samples):
    y = rng.integers(0, 2, n_samples)
    y[:2] = 0, 1
    return y


def rank_deficient(rng):
    n_samples, n_features = any_shape(rng)
    rank = int(rng.integers(1, 4))
    X = rng.standard_normal((n_samples, rank)) @ rng.standard_normal((rank, n_features))
    return X, any_labels(rng, n_samples)


def duplicated(rng):
    """Columns again and again, with either sign, and sometimes rows with opposite labels."""
    n_samples, n_features = any_shape(rng)
    X = rng.standard_normal((n_samples, 3))[:, rng.integers(0, 3, n_features)]
    X *= rng.choice([-1.0, 1.0], n_features)
    if rng.random() < 0.5:
        X[1::2] = X[: n_samples - 1 : 2]
    return X, any_labels(rng, n_samples)


def far_from_zero(rng):
    """A spread of 1 around 1e8: in float32 nothing is left of it but steps of 8."""
    n_samples, n_features = any_shape(rng)
    return 1e8 + rng.standard_normal((n_samples, n_features)), any_labels(rng, n_samples)


def heavy_tailed(rng):
    n_samples, n_features = any_shape(rng)
    X = rng.standard_cauchy((n_samples, n_features))
    return np.sign(X) * np.abs(X) ** rng.integers(1, 4), any_labels(rng, n_samples)


def ill_conditioned(rng):
    """Singular values from 1 to 1e-12."""
    n_samples, n_features = any_shape(rng)
    n_directions = min(n_samples, n_features)
    left = np.linalg.qr(rng.standard_normal((n_samples, n_directions)))[0]
    right = np.linalg.qr(rng.standard_normal((n_features, n_directions)))[0]
    return (left * np.logspace(0, -12, n_directions)) @ right.T, any_labels(rng, n_samples)


def separable(rng):
    """Every column, or the first one alone, separates the classes, by any margin."""
    n_samples, n_features = any_shape(rng)
    y = any_labels(rng, n_samples)
    X = rng.standard_normal((n_samples, n_features))
    telling = slice(None) if rng.random() < 0.5 else slice(1)
    X[:, telling] = 10.0 ** rng.integers(-3, 4) * (2 * y[:, np.newaxis] - 1) + 0.1 * X[:, telling]
    return X, y


def four_samples(rng):
    X = rng.standard_normal((4, int(rng.choice([1, 3, 10, 100]))))
    return X, rng.permutation([0, 1, 1, 1] if rng.random() < 0.5 else [0, 0, 1, 1])


def lone_sample(rng):
    """One sample of a class, often far from all others; sometimes only one of the other class, too."""
    n_samples, n_features = any_shape(rng)
    if rng.random() < 0.2:
        n_samples = 2
    X = rng.standard_normal((n_samples, n_features))
    X[0] *= 10.0 ** rng.integers(0, 7)
    y = np.zeros(n_samples, dtype=int)
    y[0] = 1
    return X, y


def constant_columns(rng):
    """Columns that never vary, that vary in one sample only, or by one unit in the last place."""
    n_samples, n_features = any_shape(rng)
    X = np.tile(rng.choice([0.0, 1.0, 0.1, -1e6, 1e30]) * np.ones(n_features), (n_samples, 1))
    if rng.random() < 0.7:
        X[rng.integers(n_samples), rng.integers(n_features)] += rng.choice([1.0, 1e-9])
    if rng.random() < 0.5:
        X[:, 0] = np.where(rng.random(n_samples) < 0.5, 0.1, np.nextafter(0.1, 1.0))
    return X, any_labels(rng, n_samples)


def wild_scales(rng):
    """Units from 1e-30 to 1e30, in one matrix."""
    n_samples, n_features = any_shape(rng)
    X = rng.standard_normal((n_samples, n_features)) * 10.0 ** rng.uniform(-30, 30, n_features)
    return X, any_labels(rng, n_samples)


KINDS = (
    rank_deficient,
    duplicated,
    far_from_zero,
    heavy_tailed,
    ill_conditioned,
    separable,
    four_samples,
    lone_sample,
    constant_columns,
    wild_scales,
)


def problems_with(X, y, max_iter) -> list[str]:
    """What is wrong with a fit; nothing, it is hoped."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            model = SparseClassifier(max_iter=max_iter).fit(X, y)
            proba = model.predict_proba(X)
        except Exception as error:
            return [f"{type(error).__name__}: {error}"]
    numbers = {
        name: getattr(model, name)
        for name in ("coef_", "coef_std_", "intercept_", "loo_error_", "loo_log_loss_", "log_evidence_")
    }
    found = [f"{name} is not finite" for name, value in numbers.items() if not np.isfinite(value).all()]
    probabilities = {
        "predict_proba": proba,
        "loo_proba_": model.loo_proba_,
        "inclusion_probability_": model.inclusion_probability_,
        "loo_error_": np.asarray(model.loo_error_),
    }
    for name, p in probabilities.items():
        # NaN is not between 0 and 1 either. An error is a sum of shares, which round.
        if not np.all((p >= 0) & (p <= 1 + 1e-12)):
            found.append(f"{name} is no probability")
    if not isinstance(model.outcome_, Outcome):
        found.append(f"outcome_ is {model.outcome_!r}")
    return found


@pytest.mark.parametrize(
    "numbers",
    [range(N_AT_FIRST), pytest.param(range(N_AT_FIRST, N_OF_A_KIND), marks=pytest.mark.study)],
    ids=["first", "more"],
)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_fit_ends_in_a_named_outcome_with_finite_numbers(kind, numbers):
    broken = {}
    for number in numbers:
        X, y = kind(np.random.default_rng([KINDS.index(kind), number]))
        stored = STORAGES[number % len(STORAGES)](X)
        if found := problems_with(stored, y, SHORT if number else LONG):
            broken[number] = found
    assert not broken
