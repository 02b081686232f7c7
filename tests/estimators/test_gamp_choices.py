"""Every combination of choices fits and predicts above chance, or says why not."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

from foldless import GAMPClassifier
from foldless.channels import CHANNELS, Multinomial
from foldless.channels.multinomial import ESTIMATORS
from foldless.datasets import make_class_means
from foldless.estimators._account import solver_words
from foldless.priors import PRIORS, Gaussian, Laplace, Pruned, RowSparse, SpikeAndSlab
from foldless.solvers import EP, GAMP, VAMP, HyGAMP
from foldless.solvers.gamp import RULES, VARIANCES

SOLVERS = ("gamp", "ep", "vamp", "hygamp")
TUNINGS = ("em", "sure")


def table(n_classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Six of forty columns shift with the class."""
    rng = np.random.default_rng(seed)
    y = np.arange(90 if n_classes == 2 else 120) % n_classes
    means = 1.2 * np.random.default_rng(9).choice([-1.0, 1.0], (n_classes, 6))
    means[1] = -means[0]
    X = rng.standard_normal((y.size, 40))
    X[:, :6] += means[y]
    return X, np.array(["a", "b", "c", "d"])[y]


def fitted_or_reason(n_classes: int, **choices: Any) -> GAMPClassifier | str:
    """A fit that predicts other samples above chance, or the reason why there is none."""
    X, y = table(n_classes)
    # An iteration with full covariances takes its time; a dozen tell classes apart.
    full = "hygamp" in str(choices.get("solver")).lower()
    model = GAMPClassifier(max_iter=12 if full else 200, tol=1e-3, **choices)
    with warnings.catch_warnings():
        # Not every choice settles on every table; what it has found by then is what counts here.
        warnings.simplefilter("ignore")
        try:
            model.fit(X, y)
        except ValueError as error:
            return str(error)
    other_X, other_y = table(n_classes, seed=1)
    accuracy = model.score(other_X, other_y)
    assert accuracy > 1.5 / n_classes, f"{choices}: {accuracy:.2f} of {n_classes} classes, {model.outcome_}"
    proba = model.predict_proba(other_X)
    assert np.all(np.isfinite(proba))
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-6)
    assert np.isfinite(model.loo_log_loss_)
    assert np.all(np.isfinite(model.coef_))
    assert model.coef_.shape == (1 if n_classes == 2 else n_classes, 40)
    assert np.all((model.inclusion_probability_ >= 0) & (model.inclusion_probability_ <= 1))
    return model


def allowed(n_classes: int, solver: str, rule: str, prior: str, channel: str, tuning: str) -> bool:
    """What has a fit; of everything else the reason must be given."""
    by_rule = rule == "sum-product" or (solver in ("gamp", "hygamp") and prior in WITH_A_MAXIMUM)
    if solver == "hygamp":
        by_rule = prior in WITH_FULL_COVARIANCES[rule]
    by_solver = solver in ("gamp", "ep") or (solver == "vamp") == (n_classes == 2)
    robust = channel == "robust-logistic" and solver in ("gamp", "ep")
    by_channel = n_classes == 2 or channel == "logistic" or robust
    by_channel &= rule == "sum-product" or channel != "step"
    by_tuning = tuning == "em" or (prior == "laplace" and rule == "max-sum")
    return by_rule and by_solver and by_channel and by_tuning


# Priors whose weights have one maximum; the others have posteriors only.
WITH_A_MAXIMUM = ("gaussian", "laplace", "elastic-net")
WITH_FULL_COVARIANCES = {"sum-product": ("gaussian", "row-sparse"), "max-sum": ("gaussian", "laplace")}
CHOICES = list(itertools.product(SOLVERS, RULES, sorted(PRIORS), TUNINGS))


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize(("solver", "rule", "prior", "tuning"), CHOICES)
def test_every_solver_rule_prior_and_tuning(
    n_classes: int, solver: str, rule: str, prior: str, tuning: str
) -> None:
    found = fitted_or_reason(n_classes, solver=solver, rule=rule, prior=prior, tuning=tuning)
    assert isinstance(found, GAMPClassifier) == allowed(n_classes, solver, rule, prior, "logistic", tuning), (
        found
    )
    if isinstance(found, str):
        # What was asked for, or what it would need, is named.
        assert any(word in found for word in (solver, rule, prior, tuning, "max-sum")), found
        assert "Use" in found, found
        return
    name = {"gamp": "GAMP", "ep": "EP", "vamp": "VAMP", "hygamp": "HyGAMP"}[solver]
    assert found.solver_ == (name if rule == "sum-product" else f"{name} (max-sum)")
    assert found.plan_.path == "requested"
    assert [(share.code, share.weight) for share in found.models_] == [("sparse", 1.0)]


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("channel", sorted(CHANNELS))
def test_every_channel_by_every_solver(n_classes: int, solver: str, channel: str) -> None:
    found = fitted_or_reason(n_classes, solver=solver, channel=channel)
    expected = allowed(n_classes, solver, "sum-product", "row-sparse", channel, "em")
    assert isinstance(found, GAMPClassifier) == expected, found
    if isinstance(found, str):
        assert "Use" in found or "take" in found


@pytest.mark.parametrize("channel", sorted(CHANNELS))
def test_every_channel_by_max_sum(channel: str) -> None:
    found = fitted_or_reason(2, channel=channel, rule="max-sum", prior="laplace")
    expected = allowed(2, "gamp", "max-sum", "laplace", channel, "em")
    assert isinstance(found, GAMPClassifier) == expected, found
    if isinstance(found, str):
        assert "max-sum" in found


def test_variances_that_were_held_are_named() -> None:
    """Hinge and L1 are both piecewise linear, so that no variance of theirs settles."""
    data = make_class_means(60, 200, 5, random_state=0)
    model = GAMPClassifier(Laplace(2.0), channel="hinge", rule="max-sum", generative_weight=0.0, tune=False)
    model.fit(data.X, data.y)
    assert model.solver_ == "GAMP (max-sum), variances held"
    assert "with variances held" in solver_words(model.solver_, 2)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("solver", ["gamp", "hygamp"])
@pytest.mark.parametrize("variances", VARIANCES)
def test_every_way_to_pass_variances_on(n_classes: int, solver: str, variances: str) -> None:
    found = fitted_or_reason(n_classes, solver=solver, variances=variances)
    assert isinstance(found, str) == (solver == "hygamp" and n_classes == 2)


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
@pytest.mark.parametrize("solver", ["gamp", "ep", "hygamp"])
def test_every_approximation_of_the_softmax(estimator: str, solver: str) -> None:
    found = fitted_or_reason(4, channel=Multinomial(4, estimator=estimator), solver=solver)
    assert isinstance(found, GAMPClassifier), found
    blends = estimator == "gumbel" and solver == "gamp"
    assert (len(found.generative_path_) > 1) == blends


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize(
    "prior", [SpikeAndSlab(Gaussian(1.0), 0.1), RowSparse(Gaussian(1.0), 0.1), Gaussian(0.2)], ids=repr
)
def test_priors_as_objects(n_classes: int, prior: Any) -> None:
    found = fitted_or_reason(n_classes, prior=prior, tune=False, generative_weight=0.0)
    assert isinstance(found, GAMPClassifier), found
    if n_classes == 2 and isinstance(prior, RowSparse):
        # A row of one weight is a weight.
        prior = SpikeAndSlab(prior.slab, prior.inclusion)
    assert found.prior_ == prior


@pytest.mark.parametrize(
    ("n_classes", "solver"),
    [(2, GAMP()), (4, GAMP()), (2, EP()), (4, EP()), (2, VAMP()), (4, HyGAMP())],
    ids=repr,
)
def test_solvers_as_objects(n_classes: int, solver: Any) -> None:
    assert isinstance(fitted_or_reason(n_classes, solver=solver), GAMPClassifier)


@pytest.mark.parametrize(
    ("n_classes", "solver"), [(4, VAMP()), (2, HyGAMP())], ids=["VAMP of four", "HyGAMP of two"]
)
def test_solvers_as_objects_are_refused_as_their_names_are(n_classes: int, solver: Any) -> None:
    by_name = fitted_or_reason(n_classes, solver=type(solver).__name__.lower())
    assert fitted_or_reason(n_classes, solver=solver) == by_name


@pytest.mark.parametrize(
    ("n_classes", "choices", "reason"),
    [
        (2, {"solver": "newton"}, "solver must be one of"),
        (2, {"tuning": "cv"}, "tuning must be one of"),
        (4, {"channel": "probit"}, "y has 4 classes, for which Probit"),
        (4, {"channel": "robust-probit"}, "y has 4 classes, for which FlippedLabels"),
        (4, {"channel": Multinomial(3)}, "y has 4 classes, for which Multinomial"),
        (2, {"channel": Multinomial(3)}, "y has 2 classes, for which Multinomial"),
        (4, {"fit_intercept": False}, "fit_intercept=False is for two classes"),
        (4, {"mean_removal": True}, "mean_removal=True is for solver='gamp' and two classes"),
        (2, {"mean_removal": True, "solver": "ep"}, "mean_removal=True is for solver='gamp'"),
        (2, {"generative_weight": 0.5, "solver": "ep"}, "a blend that only GAMP can solve"),
        (4, {"generative_weight": 0.5, "solver": "hygamp"}, "a blend that only GAMP can solve"),
        (2, {"generative_weight": 0.5, "channel": "probit"}, "needs a logistic channel"),
        (2, {"generative_weight": 0.5, "prior": "laplace", "rule": "max-sum", "tuning": "sure"}, "no blend"),
        (2, {"prior": "laplace", "solver": GAMP(), "tuning": "sure"}, "a Laplace prior under max-sum"),
        (2, {"rule": "max-sum", "solver": GAMP()}, "are for solvers by name"),
        (2, {"damping": 0.5, "solver": EP()}, "are for solvers by name"),
        (2, {"prior": "horseshoe"}, "prior"),
        (2, {"prior": Pruned(), "rule": "max-sum"}, "max-sum"),
        (2, {"rule": "min-sum"}, "rule must be"),
        (2, {"prior": "laplace", "rule": "max-sum", "tuning": "sure", "channel": "hinge"}, "without kinks"),
        (4, {"prior": "class-means"}, "prior='class-means' is for two classes"),
        (2, {"prior": "class-means", "solver": "ep"}, "prior='class-means' has seen the class means"),
        (2, {"prior": "class-means", "channel": "step"}, "any channel but 'step'"),
    ],
    ids=str,
)
def test_what_there_is_not_is_refused_with_the_reason(n_classes: int, choices: Any, reason: str) -> None:
    found = fitted_or_reason(n_classes, **choices)
    assert isinstance(found, str)
    assert reason in found


@pytest.mark.parametrize("n_classes", [2, 4])
def test_groups_are_left_out_by_exact_covariances(n_classes: int) -> None:
    X, y = table(n_classes)
    groups = np.arange(y.size) // 5
    model = GAMPClassifier(solver="ep", tol=1e-3).fit(X, y, groups=groups)
    alone = GAMPClassifier(solver="ep", tol=1e-3).fit(X, y)
    assert np.abs(model.loo_proba_ - alone.loo_proba_).max() > 1e-4
    np.testing.assert_array_equal(model.coef_, alone.coef_)
    with pytest.raises(ValueError, match="groups can be left out from exact covariances only"):
        GAMPClassifier().fit(X, y, groups=groups)


def test_scikit_learn_checks_pass_with_exact_covariances() -> None:
    """VAMP and HyGAMP take two classes, or more; the checks have both."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(GAMPClassifier(solver="ep", tol=1e-2), on_fail=None)
    assert {r["check_name"]: r["exception"] for r in results if r["status"] in ("failed", "xfail")} == {}
    assert sum(r["status"] == "passed" for r in results) >= 64
