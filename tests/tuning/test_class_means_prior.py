"""The spike and slab that has seen the class means: what it gains, and that leave-one-out is not fooled."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from foldless import GAMPClassifier
from foldless.channels import Logistic
from foldless.datasets import make_class_means


@pytest.mark.parametrize("n_active", [5, 20])
def test_class_means_tell_which_weights_are_not_zero(n_active):
    """Measured on ten tables of 300 x 30 000: .054 and .060 on average."""
    data = make_class_means(300, 10_000, n_active, random_state=1000 * n_active)
    model, plain = (
        GAMPClassifier(prior, generative_weight=0.0).fit(data.X, data.y)
        for prior in ("class-means", "spike-and-slab")
    )
    error, of_plain = (data.test_error(m.coef_, m.intercept_[0]) for m in (model, plain))
    assert error < {5: 0.06, 20: 0.075}[n_active]
    assert error < of_plain - 0.015
    assert abs(model.loo_error_ - error) < 0.03  # without the correction .04 below, and at more features .06


@pytest.mark.parametrize("channel", ["probit", "hinge", "robust-logistic"])
def test_class_means_go_with_every_channel_whose_scores_have_a_scale(channel):
    """Of forty tables of 300 x 30 000: at most .0022 less and .0010 more than logistic."""
    data = make_class_means(300, 5000, 10, random_state=10_000)
    logistic, other = (GAMPClassifier("class-means", c).fit(data.X, data.y) for c in ("logistic", channel))
    errors = [data.test_error(m.coef_, m.intercept_[0]) for m in (logistic, other)]
    assert abs(errors[1] - errors[0]) < 0.005
    assert abs(other.loo_error_ - errors[1]) < 0.03


def test_leave_one_out_has_not_seen_the_label_in_the_class_means():
    """Log losses: .185, of refits without each sample .212, of cavities as they are .101."""
    data = make_class_means(60, 300, 4, bayes_error=0.1, random_state=3)
    model = GAMPClassifier("class-means", tol=1e-6).fit(data.X, data.y)
    refits = []
    for m in range(60):
        rest = np.arange(60) != m
        fitted = GAMPClassifier("class-means", tol=1e-6).fit(data.X[rest], data.y[rest])
        refits.append(fitted.predict_proba(data.X[m : m + 1])[0, 1])
    loss = -np.mean(np.log(np.where(data.y > 0, refits, 1 - np.array(refits))))
    assert model.loo_log_loss_ == pytest.approx(loss, rel=0.25)


def test_the_scale_of_the_channel_is_that_of_the_class_means():
    data = make_class_means(100, 200, 4, random_state=0)
    first, second = (
        GAMPClassifier("class-means", channel, hyper_prior=None, tol=1e-8).fit(data.X, data.y)
        for channel in (Logistic(), Logistic(scale=2.0))
    )
    assert_allclose(first.coef_, 2 * second.coef_, atol=1e-3)
    assert_allclose(first.loo_proba_, second.loo_proba_, atol=1e-3)
