"""In a notebook an estimator shows scikit-learn's diagram, and what its fit found as text."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from foldless import GAMPClassifier, SMLRClassifier, SparseClassifier
from foldless.datasets import make_class_means
from foldless.estimators.baselines import OneBitCS, RVMClassifier
from reference.hostile_names import HOSTILE_NAMES


def added(model) -> str:
    """What foldless adds to scikit-learn's diagram."""
    return model._repr_html_().partition('<ul class="foldless-summary">')[2]


@pytest.fixture(scope="module")
def data():
    return make_class_means(60, 300, 4, bayes_error=0.01, random_state=0)


def test_a_fitted_model_says_what_it_found(data):
    model = SparseClassifier().fit(data.X, np.where(data.y > 0, "ill", "well"))
    chosen = model.get_support(indices=True)
    text = added(model)
    assert "classes: ill, well" in text
    assert f"selected: {chosen.size} of 300 features at a false discovery rate of 0.1" in text
    assert all(f"column {j}" in text for j in chosen[:8])
    assert f"leave-one-out: error {100 * model.loo_error_:.1f} %" in text
    assert f"the fit converged after {model.n_iter_} iterations" in text
    assert "sk-top-container" in model._repr_html_()
    assert model._repr_mimebundle_()["text/html"].endswith(text)


@pytest.mark.parametrize("estimator", [SparseClassifier(), GAMPClassifier(), SMLRClassifier(), OneBitCS()])
def test_before_fit_there_is_scikit_learns_diagram_alone(estimator):
    assert added(estimator) == ""
    assert "sk-top-container" in estimator._repr_html_()


def test_estimators_without_probabilities_say_what_they_use():
    X, y = load_iris(return_X_y=True)
    assert "of 4 features" in added(SMLRClassifier().fit(X, y))
    assert "classes: 0, 1, 2" in added(SMLRClassifier(rate=1.0).fit(X, y))
    assert "basis functions" in added(SMLRClassifier(rate=1.0, kernel="rbf").fit(X, y))
    for model in (OneBitCS(sparsity=2).fit(X[50:], y[50:]), RVMClassifier(kernel=None).fit(X[50:], y[50:])):
        assert "of 4 features" in added(model)
        assert "leave-one-out" not in added(model)


def test_pipelines_and_plain_text_are_as_ever(data):
    pipeline = make_pipeline(StandardScaler(), SparseClassifier()).fit(data.X, data.y)
    assert "sk-top-container" in pipeline._repr_html_()
    model = pipeline[-1]
    assert repr(model) == "SparseClassifier()"
    with config_context(display="text"):
        assert "text/html" not in model._repr_mimebundle_()


def test_hostile_names_are_escaped():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.standard_normal((60, len(HOSTILE_NAMES))), columns=HOSTILE_NAMES)
    X.iloc[:, :3] *= 2.0
    y = np.array(HOSTILE_NAMES)[(X.iloc[:, :3].sum(axis=1) > 0).astype(int)]
    text = added(SparseClassifier(fdr=0.9).fit(X, y))
    items = text.removesuffix("</ul>").replace("<li>", "").replace("</li>", "")
    assert "&lt;script&gt;" in items
    assert not {"<", ">", '"', "'", "\x1b"} & set(items)
