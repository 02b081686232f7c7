"""PanelClassifier: a few columns that follow the full model, an honest path, and a model of these alone."""

from __future__ import annotations

import time
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.stats import f as f_distribution
from scipy.stats import false_discovery_control
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

import foldless
from foldless import GAMPClassifier, PanelClassifier, SparseClassifier
from foldless.datasets import make_class_means
from foldless.estimators import _panel_search
from foldless.estimators._panel_search import _weightiest
from foldless.export import to_onnx, write_coefficients
from foldless.tuning import record


def correlated(n_samples=80, n_features=300, n_classes=2, seed=0):
    """Columns of three factors; the classes depend on a few of them."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_samples, n_features))
    loadings = np.random.default_rng(99).standard_normal((3, n_features))  # of one population
    X += 0.7 * rng.standard_normal((n_samples, 3)) @ loadings
    scores = np.column_stack([np.zeros(n_samples), 3.0 * X[:, : n_classes - 1] - 3.0 * X[:, [7]]])
    return X, (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)


@pytest.fixture(scope="module")
def data():
    return correlated()


@pytest.fixture(scope="module")
def fitted(data):
    return PanelClassifier().fit(*data)


def test_every_scikit_learn_check_passes():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(PanelClassifier(), on_fail=None)
    assert {r["check_name"]: r["exception"] for r in results if r["status"] in ("failed", "xfail")} == {}
    assert sum(r["status"] == "passed" for r in results) >= 64


def test_attributes(fitted, data):
    X, y = data
    k = fitted.features_.size
    assert 1 <= k <= 30
    assert {0, 7} <= set(fitted.features_.tolist())
    assert set(fitted.features_) == set(fitted.order_[:k])
    assert_array_equal(fitted.features_, np.sort(fitted.features_))
    assert fitted.coef_.shape == (1, k)
    assert fitted.stability_.shape == (k,)
    assert fitted.stability_[np.searchsorted(fitted.features_, [0, 7])].min() >= 0.8
    assert [each.size for each in fitted.path_] == [0, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50]
    assert set(fitted.alternatives_) == set(fitted.features_.tolist())
    assert not any(s.feature in fitted.features_ for each in fitted.alternatives_.values() for s in each)
    at = next(each for each in fitted.path_ if each.size == k)
    own = fitted.left_out_proba_[np.arange(y.size), y]
    assert_allclose(at.log_loss, -np.log(own).mean(), rtol=1e-9)
    assert_allclose(at.error, np.mean(fitted.left_out_proba_.argmax(axis=1) != y))
    assert_allclose(at.log_loss_se, np.log(own).std(ddof=1) / np.sqrt(y.size), rtol=1e-9)
    assert at.log_loss < fitted.path_[0].log_loss
    assert fitted.flags_ == []
    assert_allclose(X[:, fitted.features_] @ fitted.coef_[0] + fitted.intercept_, fitted.decision_function(X))


def test_the_path_holds_for_new_samples():
    """On average over tables: of 80 samples an error rate alone has a standard error of four in a hundred."""
    X, y = correlated(4000, 300, seed=1000)
    gaps = []
    for seed in range(8):
        model = PanelClassifier().fit(*correlated(seed=seed))
        at = next(each for each in model.path_ if each.size == model.features_.size)
        loss = -np.log(model.predict_proba(X)[np.arange(y.size), y]).mean()
        gaps.append((at.error - np.mean(model.predict(X) != y), at.log_loss - loss))
    assert np.all(np.abs(np.mean(gaps, axis=0)) < 2 * np.std(gaps, axis=0, ddof=1) / np.sqrt(8))


def test_the_panels_columns_are_enough(data):
    X, y = data
    names = [f"gene {j}" for j in range(X.shape[1])]
    frame = pd.DataFrame(X, columns=names)
    model = PanelClassifier(4).fit(frame, y)
    whole = model.predict_proba(frame)
    chosen = [names[j] for j in model.features_]
    assert list(model.feature_names_) == list(model.get_feature_names_out()) == chosen
    alone = frame[chosen]
    for other in (alone, alone[chosen[::-1]], frame[[*chosen[::-1], "gene 200"]], pl.DataFrame(alone)):
        assert_allclose(model.predict_proba(other), whole)
    with pytest.raises(ValueError, match="yet now missing"):
        model.predict(frame[chosen[:2]])
    unnamed = PanelClassifier(4).fit(X, y)
    assert_allclose(unnamed.predict_proba(unnamed.transform(X)), unnamed.predict_proba(X))
    assert_allclose(
        unnamed.predict_proba(sparse.csr_array(X[:, unnamed.features_])), unnamed.predict_proba(X)
    )
    with pytest.raises(ValueError, match="features"):
        unnamed.predict(X[:, :5])


@pytest.mark.parametrize("n_classes", [2, 3])
def test_files_and_exports_hold_only_the_panel(n_classes, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    X, y = correlated(90, 200, n_classes)
    names = [f"secret {j}" for j in range(200)]
    frame, labels = pd.DataFrame(X, columns=names), np.array(["a", "b", "c"])[y]
    model = PanelClassifier(5).fit(frame, labels)
    path = model.save(tmp_path / "m.foldless")
    assert path.stat().st_size < 12_000
    others = [f'"{names[j]}"'.encode() for j in range(200) if j not in model.features_]
    assert not any(name in path.read_bytes() for name in others)
    loaded = foldless.load(path)
    assert_array_equal(loaded.predict_proba(frame), model.predict_proba(frame))
    assert_array_equal(loaded.predict_proba(X), model.predict_proba(frame))
    assert_array_equal(loaded.predict(frame[model.feature_names_]), model.predict(frame))
    assert "column 199" not in loaded._html_repr()
    session = runtime.InferenceSession(to_onnx(loaded).SerializeToString())
    found = session.run(None, {"X": X[:, model.features_]})
    assert_array_equal(found[0], model.predict(frame))
    assert_allclose(found[1], model.predict_proba(frame), atol=1e-9)
    table = pd.read_csv(write_coefficients(loaded, tmp_path / "c.tsv"), sep="\t")
    assert table.feature.tolist() == ["(intercept)", *model.feature_names_]


def test_a_fitted_reference_is_taken_as_it_is(data):
    X, y = data
    full = SparseClassifier().fit(X, y)
    before = full.coef_.copy()
    given = PanelClassifier(reference=full).fit(X, y)
    assert given.reference_ is full
    assert_array_equal(full.coef_, before)
    assert_array_equal(given.features_, PanelClassifier().fit(X, y).features_)
    # A copy has no fit, and so makes one.
    again = clone(given).fit(X, y)
    assert again.reference_ is not full
    assert_array_equal(again.features_, given.features_)


@pytest.mark.parametrize(
    "reference", [RandomForestClassifier(50, random_state=0), LogisticRegression(C=0.01), GAMPClassifier()]
)
def test_any_classifier_can_be_the_reference(reference, data):
    X, y = data
    model = PanelClassifier([2, 8], reference).fit(X, y)
    assert model.features_.size in (2, 8)
    assert {0, 7} & set(model.features_.tolist())
    assert [each.size for each in model.path_] == [0, 2, 8]


def test_a_panel_follows_probabilities_and_not_labels(data):
    X, y = data
    full = SparseClassifier().fit(X, y)
    panel = PanelClassifier(3, full).fit(X, y)
    chosen = X[:, panel.features_]
    by_labels = LogisticRegression(C=1e3).fit(chosen, y)

    def lost(proba):
        return -np.mean(np.sum(full.predict_proba(X) * np.log(proba), axis=1))

    assert lost(panel.predict_proba(X)) < lost(by_labels.predict_proba(chosen))


@pytest.mark.parametrize("n_classes", [3, 4])
def test_several_classes(n_classes):
    X, y = correlated(150, 200, n_classes)
    model = PanelClassifier().fit(X, y)
    assert model.coef_.shape == (n_classes, model.features_.size)
    assert {*range(n_classes - 1), 7} <= set(model.features_.tolist())
    assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert np.mean(model.predict(X) == y) > 0.7


def test_columns_that_stay(data):
    X, y = data
    model = PanelClassifier(3, always_keep=[250]).fit(X, y)
    assert 250 in model.features_
    assert model.features_.size == 4
    assert model.stability_[np.searchsorted(model.features_, 250)] == 1.0
    assert 250 not in model.alternatives_
    assert 250 not in model.order_


@pytest.mark.parametrize("independent", [True, False])
def test_weights_are_rows_and_order_does_not_matter(independent):
    X, y = correlated(50, 60, seed=3)
    if independent:
        made = make_class_means(50, 60, 4, random_state=0)
        X, y = made.X, (made.y > 0).astype(int)
    weight = np.random.default_rng(0).integers(0, 3, y.size)
    weight[[np.argmax(y == 0), np.argmax(y == 1)]] = 1
    expected = PanelClassifier(3).fit(X, y, weight)
    rows = np.random.default_rng(1).permutation(np.repeat(np.arange(y.size), weight))
    repeated = PanelClassifier(3).fit(X[rows], y[rows])
    assert_array_equal(repeated.features_, expected.features_)
    assert_allclose(repeated.coef_, expected.coef_, rtol=2e-2)
    assert_allclose(
        [each.error for each in repeated.path_], [each.error for each in expected.path_], atol=0.03
    )


def test_groups_are_left_out_together(data):
    X, y = data
    # Twins of every sample: left out one by one, each would be known from the other.
    twice, labels, group = np.vstack([X, X + 1e-3]), np.tile(y, 2), np.tile(np.arange(y.size), 2)
    rng = np.random.default_rng(0)
    noise = rng.permutation(labels[: y.size])
    model = PanelClassifier([3, 10]).fit(twice, np.tile(noise, 2), groups=group)
    assert [flag.code for flag in model.flags_] == ["no-panel"]
    with pytest.raises(ValueError, match="only one group"):
        PanelClassifier().fit(X, y, groups=np.zeros(y.size))


def test_no_panel_where_there_is_nothing_to_find():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 400)), np.arange(60) % 2
    y[:9] = 0
    model = PanelClassifier().fit(X, y)
    assert model.features_.size == 0
    assert [flag.code for flag in model.flags_] == ["no-panel"]
    assert "class frequencies" in str(model.flags_[0])
    assert "no panel" in model._html_repr()
    proba = model.predict_proba(X)
    assert_allclose(proba, np.tile((np.bincount(y) + 1) / 62, (60, 1)))
    loaded = PanelClassifier(2).fit(X, y)  # a number is an order
    assert loaded.features_.size == 2
    assert [flag.code for flag in loaded.flags_] == ["panel-by-decree"]
    with pytest.raises(ValueError, match="no panel"):
        to_onnx(model)
    with pytest.warns(UserWarning, match="told from chance"):
        assert model.transform(X).shape == (60, 0)


@pytest.mark.parametrize("reference", [None, DecisionTreeClassifier(random_state=0)], ids=["sparse", "tree"])
def test_parts_hold_samples_of_every_class(reference):
    """Classes far apart: the full model is equally sure of all samples of a class."""
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    X = rng.standard_normal((40, 200)) + 6.0 * y[:, np.newaxis] * (np.arange(200) < 50)
    model = PanelClassifier(3, reference).fit(X, y)
    assert model.full_.error <= 0.1
    assert model.path_[-1].error <= 0.1


def test_parts_are_fitted_by_what_predicts(fitted):
    full = fitted.reference_
    first, second, *_ = (recipe.name for recipe in full.plan_.dense.recipes)
    for shares, with_sparse, dense in (
        ({"sparse": 0.6, second: 0.3, first: 0.1}, True, []),
        ({"sparse": 0.4, second: 0.3, first: 0.2}, True, [second]),
        ({"sparse": 0.1, second: 0.4, first: 0.4}, False, [first, second]),
        ({"sparse": 0.1, second: 0.6, first: 0.2}, False, [second]),
    ):
        models = [SimpleNamespace(name=name, weight=share) for name, share in shares.items()]
        plan, has_sparse = _weightiest(SimpleNamespace(plan_=full.plan_, models_=models))
        assert has_sparse == with_sparse
        assert [recipe.name for recipe in plan.dense.recipes] == dense


@pytest.mark.parametrize("where", ["between solvers", "in a solver"])
@pytest.mark.parametrize("n_before", [0, 1, 3])
def test_an_interrupt_leaves_what_parts_have_shown(where, n_before, data, monkeypatch):
    X, y = data
    full = SparseClassifier().fit(X, y)
    begun = []

    def interrupt(*_):
        raise KeyboardInterrupt

    def interrupted_solve(*args, **options):
        return solve(*args, **options | {"watch": interrupt})

    def part(*args, **options):
        begun.append(args)
        if len(begun) > n_before:
            if where == "between solvers":
                raise KeyboardInterrupt
            monkeypatch.setattr(record, "solve", interrupted_solve)
            options["sparse"] = True
        return fit_part(*args, **options)

    solve, fit_part = record.solve, _panel_search.fit_part
    monkeypatch.setattr(_panel_search, "fit_part", part)
    model = PanelClassifier(reference=full)
    if not n_before:
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)
        return
    model.fit(X, y)
    assert len(begun) == n_before + 1
    assert [flag.code for flag in model.flags_] == ["interrupted"]
    judged = np.isfinite(model.left_out_proba_).all(axis=1)
    assert 0.9 * n_before / 5 < judged.mean() < 1.1 * n_before / 5
    assert np.isfinite([each.error for each in model.path_]).all()
    assert model.features_.size > 0
    assert str(n_before) in str(model._how_left_out())


def test_half_a_full_model_has_no_panel(data, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    solve = record.solve
    monkeypatch.setattr(record, "solve", lambda *args, **more: solve(*args, **more | {"watch": interrupt}))
    with pytest.raises(KeyboardInterrupt):
        PanelClassifier(reference=GAMPClassifier()).fit(*data)


@pytest.mark.study
def test_null_data_have_no_panel():
    found = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((50, 500)) + rng.standard_normal((50, 4)) @ rng.standard_normal((4, 500))
        found += PanelClassifier().fit(X, rng.permutation(np.arange(50) % 2)).features_.size > 0
    assert found <= 2


def test_what_makes_no_sense_is_an_error(data):
    X, y = data
    for wrong in ("all", 0, [], [3, -1], True, 2.5):
        with pytest.raises((ValueError, TypeError), match=r"n_features|iterable"):
            PanelClassifier(wrong).fit(X, y)
    with pytest.raises(ValueError, match="n_parts"):
        PanelClassifier(n_parts=1).fit(X, y)
    with pytest.raises(ValueError, match="same table"):
        PanelClassifier(reference=SparseClassifier().fit(X[:, :50], y)).fit(X, y)
    with pytest.raises(ValueError, match="classes"):
        PanelClassifier(reference=SparseClassifier().fit(X, y + 1)).fit(X, y)


def test_a_left_out_sample_is_not_held_against_its_class():
    """Of what has learnt frequencies alone, parts that have more of a class have left fewer of it."""
    X, y = np.random.default_rng(0).standard_normal((34, 20)), np.arange(34) % 2
    model = PanelClassifier(2, LogisticRegression(C=1e-9)).fit(X, y)
    assert_allclose(model.path_[0].log_loss, np.log(2), rtol=1e-12)
    assert_allclose(model.full_.log_loss, np.log(2), atol=1e-4)


def test_parts_need_only_their_rows(data, monkeypatch):
    model = PanelClassifier([3, 10]).fit(*data)
    fit_part, seen = _panel_search.fit_part, []

    def counted(table, *given, **more):
        seen.append(table.shape[0])
        return fit_part(table, *given, **more)

    monkeypatch.setattr(_panel_search, "fit_part", counted)
    few = PanelClassifier([3, 10], model.reference_).fit(*data)
    monkeypatch.setattr(_panel_search, "KEPT_BYTES", 0)
    whole = PanelClassifier([3, 10], model.reference_).fit(*data)
    assert seen == [64] * 5 + [80] * 5
    assert_allclose(np.array(few.path_), np.array(whole.path_), rtol=1e-6)


def test_a_class_of_one_sample_is_never_left_out():
    X, y = correlated(40, 50)
    y = y.copy()
    y[0] = 2
    model = PanelClassifier(3).fit(X, y)
    assert np.isnan(model.left_out_proba_[0]).all()
    assert np.isfinite(model.left_out_proba_[1:]).all()


def test_feature_table(data):
    X, y = data
    names = [f"g{j}" for j in range(X.shape[1])]
    frame = pd.DataFrame(X, columns=names)
    full = SparseClassifier().fit(frame, y)
    table = full.feature_table()
    assert list(table.index) == names
    assert list(table.columns[:6]) == ["change", "difference", "p", "q", "inclusion", "selected"]
    with_data = full.feature_table(frame, y)
    assert_allclose(with_data.p, table.p, rtol=1e-6)
    assert with_data.auc.between(0, 1).all()
    assert np.corrcoef(with_data.auc, table.difference)[0, 1] > 0.9
    assert_array_equal(table.selected, full.get_support())
    assert_allclose(table.effect, full.sparse_coef_[0] * X.std(axis=0), rtol=1e-6)
    assert (table.effect_lower <= table.effect).all()
    panel = PanelClassifier(3, full).fit(frame, y)
    in_panel = panel.feature_table()
    assert list(in_panel.index[in_panel.panel]) == list(panel.feature_names_)
    by_gamp = GAMPClassifier().fit(X, y)
    assert "p" not in by_gamp.feature_table()
    assert_allclose(by_gamp.feature_table(X, y).p, table.p, rtol=1e-6)
    with pytest.raises(ValueError, match="labels"):
        full.feature_table(frame)
    three = SparseClassifier().fit(*correlated(90, 40, 3))
    assert {"effect:0", "effect_upper:2"} <= set(three.feature_table())


def test_single_features_are_tested_beside_what_is_kept():
    rng = np.random.default_rng(0)
    age = rng.standard_normal(60)
    y = (age + rng.standard_normal(60) > 0).astype(int)
    X = np.column_stack([age, rng.standard_normal((60, 20))])
    X[:, 1] += 2 * age  # differs between the classes by its age alone
    X[:, 2] += 2 * y
    names = ["age", *(f"gene {j}" for j in range(20))]
    frame = pd.DataFrame(X, columns=names)
    plain = SparseClassifier().fit(frame, y).feature_table()
    model = SparseClassifier(always_keep=["age"]).fit(frame, y)
    table = model.feature_table()
    assert plain.p["gene 0"] < 1e-3 < 0.05 < table.p["gene 0"]
    assert table.loc["age", ["change", "difference", "p", "q"]].isna().all()
    others = np.column_stack([np.ones(60), age])
    for name in names[1:4]:
        with_class = np.column_stack([others, y])
        weights, squares, *_ = np.linalg.lstsq(with_class, frame[name].to_numpy(), rcond=None)
        without = np.linalg.lstsq(others, frame[name].to_numpy(), rcond=None)[1]
        expected = f_distribution.sf((without - squares) / squares * 57, 1, 57)
        assert_allclose(table.p[name], expected[0], rtol=1e-8)
        assert_allclose(table.change[name], weights[2], rtol=1e-8)
        assert_allclose(table.difference[name], weights[2] / np.sqrt(squares[0] / 57), rtol=1e-8)
    assert_allclose(table.q[1:], false_discovery_control(table.p[1:]), rtol=1e-9)
    assert_allclose(model.feature_table(frame, y)[["p", "change"]], table[["p", "change"]], rtol=1e-9)


def test_an_empty_list_falls_back_on_a_panel(data):
    X, y = data
    y = np.where(np.random.default_rng(0).random(y.size) < 0.15, 1 - y, y)
    plain = SparseClassifier(fdr=1e-9).fit(X, y)
    assert not plain.get_support().any()
    with pytest.warns(UserWarning, match="fallback='panel'"):
        assert plain.transform(X).shape[1] == 0
    model = SparseClassifier(fdr=1e-9, fallback="panel").fit(X, y)
    assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    assert_array_equal(model.get_support(indices=True), np.sort(model.fallback_features_))
    assert model.flags_[-1].code in ("fell-back-on-panel", "no-panel")
    assert not model.feature_table().selected.any()
    assert_array_equal(model.feature_table().panel, model.get_support())
    with pytest.raises(ValueError, match="fallback"):
        SparseClassifier(fallback="all").fit(X, y)


def test_a_pipeline_goes_on_even_where_nothing_is_found():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 100)), np.arange(40) % 2
    steps = make_pipeline(SparseClassifier(fallback="panel"), LogisticRegression())
    assert np.isfinite(cross_val_score(steps, X, y, cv=3)).all()


@pytest.mark.study
def test_a_panel_costs_about_three_fits():
    X, y = correlated(100, 10_000)
    SparseClassifier().fit(X[:, :100], y)

    def seconds(make):
        start = time.process_time()
        make().fit(X, y)
        return time.process_time() - start

    full, panel = (min(seconds(make) for _ in range(3)) for make in (SparseClassifier, PanelClassifier))
    print(f"full {full:.2f} s, panel {panel:.2f} s: {panel / full:.2f}")
    assert panel <= 3.0 * full
