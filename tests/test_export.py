"""Models for other programs: ONNX with the same probabilities, coefficients that add up to the log-odds."""

from __future__ import annotations

import builtins
import json
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, log_expit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import foldless
from foldless.channels import FlippedLabels, Logistic
from foldless.estimators.baselines import OneBitCS, RVMClassifier, SBMLRClassifier
from foldless.export import to_onnx, write_coefficients, write_onnx
from foldless.export._graph import Graph
from foldless.io.tsv import read_tsv

RNG = np.random.default_rng(3)
X = RNG.standard_normal((60, 25))
X[:, 10:] += 2.0 * RNG.standard_normal((60, 1))
X = 1e4 + 50.0 * X  # offsets and units must not cost digits
Y = np.where(X[:, 0] - X[:, 1] + 30.0 * RNG.standard_normal(60) > 0, "ill", "well")
NEW = 1e4 + 150.0 * RNG.standard_normal((200, 25))

THREE = np.digitize(X[:, 0], np.quantile(X[:, 0], [0.3, 0.6])) * 10

MODELS = [
    foldless.SparseClassifier(),
    foldless.GAMPClassifier(),
    foldless.GAMPClassifier(channel="robust-probit"),
    foldless.GAMPClassifier(rule="max-sum", prior="laplace"),
    foldless.GAMPClassifier("gaussian", FlippedLabels(Logistic(scale=2.0), 0.1), generative_weight=0),
    foldless.SMLRClassifier(n_rates=10),
    foldless.SMLRClassifier(standardize=False, penalty="l2", rate=100.0),
    foldless.SMLRClassifier(kernel="rbf", rate=1.0),
    foldless.SMLRClassifier(kernel="poly", degree=2, rate=1.0),
    foldless.EPBayesPointClassifier(),
    foldless.EPBayesPointClassifier(channel="logistic", kernel="rbf"),
    foldless.EPBayesPointClassifier(kernel="rbf", random_features=True, n_components=20),
    foldless.BayesPointClassifier(violation_cost=1.0, n_sweeps=3, beta=1.0, n_bins=16),
    foldless.PrunedBayesClassifier(0.2, 0.1),
    foldless.PrunedBayesClassifier(0.2, 0.1, whiten="features", channel="probit"),
    foldless.PanelClassifier(3, GaussianNB(), n_parts=2),
    RVMClassifier(kernel=None),
    RVMClassifier(),
    SBMLRClassifier(),
]
OF_MANY_CLASSES = [
    foldless.SparseClassifier(),
    foldless.GAMPClassifier(),
    foldless.SMLRClassifier(rate=2.0),
    foldless.SMLRClassifier(rate=2.0, reference_class=10),
    foldless.EPBayesPointClassifier(),
    foldless.BayesPointClassifier(violation_cost=1.0, n_sweeps=3, beta=1.0, n_bins=16),
    foldless.PanelClassifier(3, GaussianNB(), n_parts=2),
]


def session(model):
    onnxruntime = pytest.importorskip("onnxruntime")
    return onnxruntime.InferenceSession(
        to_onnx(model).SerializeToString(), providers=["CPUExecutionProvider"]
    )


def assert_same(model, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # settled or not, a model is exported as it is
        model.fit(X, y)
    runtime = session(model)
    for samples in (X, NEW):
        given = samples[:, model.features_] if isinstance(model, foldless.PanelClassifier) else samples
        label, proba = runtime.run(None, {"X": given})
        assert_allclose(proba, model.predict_proba(samples), rtol=0, atol=1e-6)
        sure = np.diff(np.sort(proba, axis=1)[:, -2:])[:, 0] > 1e-5
        assert_array_equal(label[sure], model.predict(samples)[sure])
        assert sure.mean() > 0.9


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_onnx_gives_the_same_probabilities(model):
    pytest.importorskip("onnx")
    assert_same(clone(model), Y)


@pytest.mark.parametrize("model", OF_MANY_CLASSES, ids=repr)
def test_onnx_gives_the_same_probabilities_of_many_classes(model):
    pytest.importorskip("onnx")
    assert_same(clone(model), THREE)


def test_onnx_of_one_bit_measurements_has_scores():
    pytest.importorskip("onnx")
    model = OneBitCS().fit(X, Y)
    label, scores = session(model).run(None, {"X": NEW})
    assert_allclose(scores[:, 0], model.decision_function(NEW), rtol=1e-9, atol=1e-9)
    assert_array_equal(label, model.predict(NEW))


def test_onnx_of_the_average_has_several_models():
    pytest.importorskip("onnx")
    model = foldless.SparseClassifier().fit(X, Y)
    assert len([share for share in model.models_ if share.weight > 0]) > 1


def test_onnx_has_the_names_of_features_and_classes():
    pytest.importorskip("onnx")
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=[f"gene {j}" for j in range(X.shape[1])])
    model = foldless.PanelClassifier(3, GaussianNB(), n_parts=2).fit(frame, Y)
    found = {each.key: each.value for each in to_onnx(model).metadata_props}
    assert json.loads(found["classes"]) == ["ill", "well"]
    assert json.loads(found["features"]) == list(model.feature_names_)
    model = foldless.SMLRClassifier(rate=2.0).fit(frame, THREE)
    found = {each.key: each.value for each in to_onnx(model).metadata_props}
    assert json.loads(found["classes"]) == [0, 10, 20]
    assert json.loads(found["features"]) == list(frame.columns)


@pytest.mark.parametrize(
    ("steps", "y"),
    [
        ((StandardScaler(), foldless.SparseClassifier()), Y),
        ((StandardScaler(), foldless.GAMPClassifier()), THREE),
        ((StandardScaler(), foldless.PanelClassifier(3, GaussianNB(), n_parts=2)), Y),
        ((foldless.SMLRClassifier(rate=5.0), foldless.EPBayesPointClassifier()), Y),
        ((foldless.SMLRClassifier(rate=5.0), StandardScaler(), LogisticRegression()), Y),
    ],
    ids=lambda value: "-".join(type(step).__name__ for step in value) if isinstance(value, tuple) else "",
)
def test_pipelines_are_exported(steps, y):
    pytest.importorskip("skl2onnx")
    pipeline = make_pipeline(*(clone(step) for step in steps)).fit(X, y)
    label, proba = session(pipeline).run(None, {"X": NEW})
    # Steps of scikit-learn may be in single precision.
    assert_allclose(proba, pipeline.predict_proba(NEW), rtol=0, atol=1e-6 if len(steps) == 2 else 1e-4)
    assert np.mean(label == pipeline.predict(NEW)) > 0.99


def test_the_integral_is_right_for_every_spread():
    """E[σ(z)] for z ~ N(m, s²) by ONNX, against the channel's own, from no spread to a hundred."""
    onnx = pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    graph = Graph(onnx)
    proba, _ = graph.both_labels(Logistic(), "mean", "var")
    make, double = onnx.helper.make_tensor_value_info, onnx.TensorProto.DOUBLE
    made = onnx.helper.make_graph(
        graph.nodes,
        "integral",
        [make("mean", double, [None, 1]), make("var", double, [None, 1])],
        [make(proba, double, [None, 1])],
        list(graph.constants.values()),
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(made, opset_imports=opset, ir_version=8)
    runtime = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    mean, spread = np.meshgrid(np.linspace(-30, 30, 61), np.geomspace(1e-3, 100, 60))
    mean, var = mean.reshape(-1, 1), spread.reshape(-1, 1) ** 2
    (found,) = runtime.run(None, {"mean": mean, "var": var})
    exact = np.exp(Logistic().respond(mean, var, np.ones_like(mean)).log_z)
    assert_allclose(found, exact, rtol=0, atol=1e-9)
    # The reference itself, at no spread worth the name.
    assert_allclose(exact[:61, 0], expit(mean[:61, 0]), atol=1e-6)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (foldless.GAMPClassifier(channel="hinge"), "'logistic'"),
        (foldless.GAMPClassifier(channel=Logistic(integral="mixture")), "'probit'"),
        (foldless.SMLRClassifier(kernel="laplacian", rate=1.0), "kernel=None"),
    ],
)
def test_what_has_no_onnx_form_says_so(model, said):
    pytest.importorskip("onnx")
    with pytest.raises(ValueError, match=said):
        to_onnx(model.fit(X, Y))


def test_onnx_is_not_needed_until_it_is(monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.partition(".")[0] == "onnx":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest)

    model = foldless.GAMPClassifier().fit(X, Y)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'foldless\[onnx\]'"):
        to_onnx(model)


def test_onnx_file(tmp_path):
    onnx = pytest.importorskip("onnx")
    path = write_onnx(foldless.GAMPClassifier().fit(X, Y), tmp_path / "m.onnx")
    assert onnx.load(path).producer_name == "foldless"


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_coefficients_add_up_to_the_log_odds(suffix, tmp_path):
    pd = pytest.importorskip("pandas")
    names = ["=cmd|calc", "a,b", *[f"g{j}" for j in range(23)]]
    model = foldless.SMLRClassifier(n_rates=10).fit(pd.DataFrame(X, columns=names), Y)
    path = write_coefficients(model, tmp_path / f"c{suffix}")
    header, rows = read_tsv(path, delimiter="\t" if suffix == ".tsv" else ",")
    assert header == ["feature", "coefficient"]
    assert [row[0] for row in rows] == ["(intercept)", *names]
    values = np.array([float(row[1]) for row in rows])
    log_odds = values[0] + NEW @ values[1:]
    frame = pd.DataFrame(NEW, columns=names)
    assert_allclose(log_expit(log_odds), model.predict_log_proba(frame)[:, 1], rtol=1e-6, atol=1e-9)


def test_coefficients_of_many_classes(tmp_path):
    y = np.digitize(X[:, 0], np.quantile(X[:, 0], [0.3, 0.6]))
    model = foldless.SMLRClassifier(n_rates=5).fit(X, y)
    header, rows = read_tsv(write_coefficients(model, tmp_path / "c.tsv"))
    assert header == ["feature", "coefficient:0", "coefficient:1", "coefficient:2"]
    assert_array_equal(np.array([row[1:] for row in rows[1:]], dtype=float).T, model.coef_)
