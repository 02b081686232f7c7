"""Planning with data and fits: a study guessed from a pilot, its learning curve, and plans put to the test.

Theory takes no data (`foldless.theory.planning`); what it needs of them is gathered here: what a fitted
`SparseClassifier` estimates of its population, the spectrum of its features, and fits of simulated studies.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from foldless.beliefs import Array
from foldless.datasets import TwoClasses, make_two_classes
from foldless.estimators.classifier import SparseClassifier
from foldless.kernels import one_blas_thread
from foldless.operators import Standardized
from foldless.priors import SpikeAndSlab
from foldless.priors.wrappers import innermost
from foldless.theory.learning_curve import LearningCurve, Seen, calibrated, extrapolated
from foldless.theory.study import Spectrum, Study

# The spectrum of more rows costs more and is hardly better known.
MOST_ROWS = 1000
# Samples on which a simulated fit is tested, and how many of them are held at a time.
N_TEST, TEST_CHUNK = 1000, 250
# Where EM starts from zero: the study of a model that believes in nothing at all.
LEAST_MARKERS = 1.0


def seen_by(model: SparseClassifier) -> Seen:
    """What a fitted model estimates of its population: error, markers, wrong labels."""
    check_is_fitted(model)
    if not isinstance(model, SparseClassifier):
        raise TypeError(f"planning starts from a fitted SparseClassifier; got {type(model).__name__}.")
    prior = innermost(model.prior_)
    assert isinstance(prior, SpikeAndSlab)
    return Seen(
        n_samples=int(model.loo_proba_.shape[0]),
        error=float(model.loo_error_),
        n_believed=float(prior.inclusion * model.n_features_in_),
        flip_prob=float(model.channel_.flip_prob),  # type: ignore[attr-defined]
    )


def guess_from(model: SparseClassifier, X: Any, y: ArrayLike) -> Study:
    """A study with the features, classes, correlations and roughly the markers of a pilot and its model."""
    seen = seen_by(model)
    labels = np.asarray(y)
    second = float(np.mean(labels == model.classes_[1]))
    if labels.shape != (seen.n_samples,) or not 0 < second < 1:
        raise ValueError(
            f"X and y must be what the model was fitted to, {seen.n_samples} samples of both classes; got y "
            f"of shape {labels.shape}."
        )
    correlated = model.plan_.because("correlated") is not None
    spectrum = within_spectrum(model._standardized(X), labels) if correlated else None
    independent = spectrum is None or not spectrum.correlated
    prior = innermost(model.prior_)
    assert isinstance(prior, SpikeAndSlab)
    return Study(
        n_features=int(model.n_features_in_),
        n_markers=min(max(seen.n_believed, LEAST_MARKERS), 0.5 * model.n_features_in_),
        effect=float(np.sqrt(prior.slab.variance)),  # type: ignore[attr-defined]
        balance=second,
        # Where class means were of no use to the model, they are no description of its data.
        labels="logistic" if independent and model.generative_weight_ == 0 else "class-means",
        spectrum=spectrum,
    )


def pilot_study(model: SparseClassifier, X: Any, y: ArrayLike) -> Study:
    """The study a pilot was a sample of: as `guess_from`, and such that its model would be as it is."""
    seen = seen_by(model)
    study = guess_from(model, X, y)
    chance = min(study.balance, 1.0 - study.balance)
    if seen.error >= chance:
        raise ValueError(
            f"The pilot's classifier misjudges {seen.error:.0%} of left-out samples, no fewer than chance: "
            "it says nothing of markers and effects. Plan from guesses, or collect a larger pilot."
        )
    return calibrated(study, seen)


def learning_curve(
    model: SparseClassifier,
    X: Any,
    y: ArrayLike,
    n_samples: Iterable[float] | None = None,
    *,
    level: float = 0.9,
    watch: Callable[[float], None] | None = None,
) -> LearningCurve:
    """What more samples would bring a fitted model.

        curve = learning_curve(model, X, y, [200, 300])
        print(curve.sentence(more=100))

    Parameters
    ----------
    model : SparseClassifier, fitted to X and y
    X, y : the data it was fitted to
    n_samples : iterable of float, optional
        Numbers of samples on the curve; from half to four times those of the model, if not given.
    level : float
        Of the band: what the left-out error of so many samples leaves open.
    """
    return extrapolated(seen_by(model), guess_from(model, X, y), n_samples, level=level, watch=watch)


def within_spectrum(standardized: Standardized, labels: NDArray[Any]) -> Spectrum:
    """The population spectrum of correlations within classes, from data in pieces; no copy of X."""
    n_rows = standardized.shape[0]
    rows = np.unique(np.linspace(0, n_rows - 1, min(n_rows, MOST_ROWS)).astype(np.intp))
    classes = [np.flatnonzero(labels[rows] == name) for name in np.unique(labels[rows])]
    gram, n_used = np.zeros((rows.size, rows.size)), 0
    with one_blas_thread():
        for _, tile in standardized.dense_columns():
            part = tile[rows]
            for members in classes:
                part[members] -= part[members].mean(axis=0)
            std = np.sqrt(np.mean(part**2, axis=0))
            varying = std > np.finfo(np.float64).eps
            part = part[:, varying] / std[varying]
            n_used += int(varying.sum())
            gram += part @ part.T
    freedom = rows.size - len(classes)
    eigenvalues = np.linalg.eigvalsh(gram)[-freedom:] / freedom
    return Spectrum.of_sample(eigenvalues, n_used)


@dataclass(frozen=True)
class Simulation:
    """Fits of simulated studies of one size."""

    n_samples: int
    errors: tuple[float, ...]  # of new, rightly labelled samples, one for each study
    powers: tuple[float, ...]
    n_false: tuple[float, ...]

    @property
    def error(self) -> float:
        return float(np.mean(self.errors))

    @property
    def standard_error(self) -> float:
        return float(np.std(self.errors, ddof=1) / np.sqrt(len(self.errors)))

    @property
    def power(self) -> float:
        return float(np.mean(self.powers))

    def to_dict(self) -> dict[str, Any]:
        return {
            "n_samples": self.n_samples,
            "runs": len(self.errors),
            "error": self.error,
            "standard_error": self.standard_error,
            "power": self.power,
            "n_false": float(np.mean(self.n_false)),
        }


def simulate(
    study: Study,
    n_samples: int,
    runs: int = 10,
    *,
    fdr: float = 0.1,
    seed: int = 0,
    watch: Callable[[int], None] | None = None,
) -> Simulation:
    """Draw a study `runs` times, fit each, and test it on new samples: what a plan expects, as it is."""
    if runs < 2:
        raise ValueError(f"runs must be at least 2, to see how much studies differ; got {runs!r}.")
    errors, powers, false = [], [], []
    for run in range(runs):
        rng = np.random.default_rng([seed, n_samples, run])
        population = _population(study, rng)
        X, recorded, _ = population.draw(n_samples, rng)
        model = SparseClassifier(fdr=fdr)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # what it costs is in the error
            model.fit(X, recorded)
        chosen, marker = model.get_support(), population.weights != 0
        errors.append(_error(model, population, rng))
        powers.append(float(chosen[marker].mean()))
        false.append(float(chosen[~marker].sum()))
        if watch is not None:
            watch(run + 1)
    return Simulation(n_samples, tuple(errors), tuple(powers), tuple(false))


def _population(study: Study, rng: np.random.Generator) -> TwoClasses:
    eigenvalues: Array | None = None
    if study.spectrum is not None and study.correlated:
        edges = np.cumsum(study.spectrum.shares)
        places = (np.arange(study.n_features) + 0.5) / study.n_features
        eigenvalues = study.spectrum.values[np.searchsorted(edges, places).clip(max=edges.size - 1)]
        eigenvalues = eigenvalues / eigenvalues.mean()
    return make_two_classes(
        study.n_features,
        max(round(study.n_markers), 1),
        study.effect,
        normal_sizes=study.sizes == "normal",
        balance=study.balance,
        intercept=0.0 if study.labels == "class-means" else study.teacher_intercept,
        mislabelled=study.mislabelled,
        class_means=study.labels == "class-means",
        eigenvalues=eigenvalues,
        random_state=rng,
    )


def _error(model: SparseClassifier, population: TwoClasses, rng: np.random.Generator) -> float:
    wrong = 0
    for _ in range(N_TEST // TEST_CHUNK):
        X, _, y = population.draw(TEST_CHUNK, rng)
        wrong += int(np.count_nonzero(model.predict(X) != y))
    return wrong / N_TEST
