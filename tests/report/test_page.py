"""The page: it says what the model says, for every estimator, and nothing in it can act."""

from __future__ import annotations

import re
import subprocess
import sys
from base64 import b64decode, b64encode
from contextlib import suppress
from copy import copy
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from jinja2 import StrictUndefined, UndefinedError
from scipy.sparse import csr_array
from scipy.stats import false_discovery_control, ttest_ind
from sklearn.datasets import load_iris
from sklearn.feature_selection import VarianceThreshold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import foldless
from foldless import (
    BayesPointClassifier,
    EPBayesPointClassifier,
    GAMPClassifier,
    SMLRClassifier,
    SparseClassifier,
    report,
)
from foldless.datasets import make_class_means
from foldless.estimators._summary import STANDARDISED, LeaveOneOut, Sentence, Summarised, Summary
from foldless.estimators.baselines import OneBitCS, RVMClassifier, SBMLRClassifier
from foldless.io import printable
from foldless.problem import History, Iteration, Outcome
from foldless.report import features, html, pictures, samples, write
from foldless.report.page import environment
from foldless.report.wording import listed, named, plural, probability, sentence, signed
from foldless.selection import CredibleSet
from foldless.tuning.portfolio import ModelShare
from foldless.tuning.record import Flag
from reference.hostile_names import HOSTILE_NAMES
from report.markup import active_nodes, parsed

PNG = b"\x89PNG\r\n\x1a\n"
ROOM = Path(foldless.__file__).parent / "report"


def words(node) -> str:
    return " ".join(node.text.split())


@pytest.fixture(scope="module")
def data():
    return make_class_means(60, 300, 4, bayes_error=0.01, mislabelled=0.05, random_state=0)


@pytest.fixture(scope="module")
def model(data):
    return SparseClassifier().fit(data.X, np.where(data.y > 0, "ill", "well"))


@pytest.fixture(scope="module")
def labels(data):
    return np.where(data.y > 0, "ill", "well")


@pytest.fixture
def coarse(monkeypatch):
    """Pictures of few pixels: drawn as ever, packed in a moment."""
    monkeypatch.setattr(pictures, "DPI", 40)


@pytest.fixture
def without_ink(monkeypatch):
    """Pictures as a dot, for tests of words: drawing takes most of a page's time."""
    dot = pictures.Picture(
        "data:image/png;base64,iVBORw0KGgo=", "A picture that says nothing. " * 3, "", 1, 1
    )
    monkeypatch.setattr(pictures.Drawing, "picture", lambda drawing: dot)


@pytest.fixture(scope="module")
def about(labels):
    return {"y": labels, "feature_names": [f"gene {j}" for j in range(300)]}


@pytest.fixture(scope="module")
def source(model, about):
    return html(model, **about)


@pytest.fixture(scope="module")
def page(source):
    return parsed(source)


def twins_data():
    """One feature that matters, as two columns that are nearly the same, among correlated others."""
    rng = np.random.default_rng(0)
    common = rng.standard_normal((80, 1))
    X = 0.9 * common + rng.standard_normal((80, 40))
    y = np.where(X[:, 3] - X[:, 3].mean() + 0.3 * rng.standard_normal(80) > 0, "yes", "no")
    X[:, 17] = X[:, 3] + 0.02 * rng.standard_normal(80)
    return X, y


def iris():
    X, y = load_iris(return_X_y=True)
    return X, np.array(["setosa", "versicolor", "virginica"])[y]


def two_classes():
    X, y = iris()
    return X[50:], y[50:]


ESTIMATORS = {
    "SparseClassifier, twins": (SparseClassifier(), twins_data),
    "GAMPClassifier, laplace": (GAMPClassifier(prior="laplace", always_keep=[2]), two_classes),
    "GAMPClassifier, max-sum": (
        GAMPClassifier("laplace", rule="max-sum", generative_weight=0.0),
        two_classes,
    ),
    "SparseClassifier, three classes": (SparseClassifier(), iris),
    "EPBayesPointClassifier": (EPBayesPointClassifier(), iris),
    "EPBayesPointClassifier, kernel": (EPBayesPointClassifier(kernel="rbf"), two_classes),
    "BayesPointClassifier": (
        BayesPointClassifier(violation_cost=1.0, beta=1.0, n_sweeps=3, engine="numpy"),
        two_classes,
    ),
    "SMLRClassifier, three classes": (SMLRClassifier(), iris),
    "SMLRClassifier, kernel": (SMLRClassifier(kernel="rbf", rate=1.0), iris),
    "SMLRClassifier, as given": (SMLRClassifier(rate=2.0, standardize=False), two_classes),
    "SBMLRClassifier": (SBMLRClassifier(), iris),
    "RVMClassifier, kernel": (RVMClassifier(gamma=0.1, tol=0.05), two_classes),
    "RVMClassifier, features": (RVMClassifier(kernel=None), two_classes),
    "OneBitCS": (OneBitCS(sparsity=2), two_classes),
}


# Between them these draw everything that any of them does; the others are tested for their words.
DRAWN = {"SparseClassifier, twins", "SparseClassifier, three classes", "SMLRClassifier, kernel"}


@pytest.mark.parametrize("case", ESTIMATORS)
def test_every_estimator_has_a_page(case, request):
    request.getfixturevalue("coarse" if case in DRAWN else "without_ink")
    estimator, make = ESTIMATORS[case]
    X, y = make()
    model = estimator.fit(X, y)
    page = parsed(html(model, y=y))
    check_structure(page)
    assert active_nodes(page) == []
    text = words(page)
    assert f"by {type(model).__name__} of foldless {foldless.__version__}" in text
    has_loo = hasattr(model, "loo_proba_")
    assert ("Recorded class against" in text) == has_loo
    assert ("Leave-one-out figures" in text) != has_loo
    assert all(sentence.text in text for sentence in model._summary().method)
    assert ("Inclusion probabilities:" in text) != hasattr(model, "inclusion_probability_")
    assert ("Intervals:" in text) != hasattr(model, "coef_std_")
    for label in np.unique(y):
        assert label in text


def check_structure(page) -> None:
    """What a reader by ear needs: headings in order, named tables, described pictures, links that lead."""
    levels = [int(node.tag[1]) for node in page.every("h1", "h2", "h3")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    (root,) = page.every("html")
    assert root.attributes["lang"] == "en"
    for landmark in ("header", "nav", "main", "footer"):
        assert len(page.every(landmark)) == 1
    ids = [node.attributes["id"] for node in page.every() if "id" in node.attributes]
    assert len(ids) == len(set(ids))
    for node in page.every():
        for name in ("aria-labelledby", "href"):
            if name in node.attributes:
                assert node.attributes[name].lstrip("#") in ids
    for table in page.every("table"):
        assert all(head.attributes["scope"] for head in table.every("th"))
        n_columns = {
            sum(int(c.attributes.get("colspan", 1)) for c in row.every("th", "td"))
            for row in table.every("tr")
        }
        assert len(n_columns) == 1
    for image in page.every("img"):
        assert len(image.attributes["alt"]) > 40
        assert b64decode(image.attributes["src"].partition(",")[2]).startswith(PNG)
        assert int(image.attributes["width"]) > 0


def test_the_page_says_what_the_model_says(page, model, labels):
    check_structure(page)
    text = words(page)
    chosen = model.get_support(indices=True)
    assert 0 < chosen.size < 20
    assert f"{100 * model.loo_error_:.1f} % of labels are missed" in text
    assert f"{chosen.size} of 300 features carry something that no other has" in text
    questions = [words(n) for n in page.every("h3")[:4]]
    assert questions == [
        "Can the classes be told apart?",
        "By which features?",
        "How sure is that?",
        "What next?",
    ]
    (table,) = [t for t in page.every("table") if t.attributes["aria-labelledby"] == "feature-table"]
    rows = [row for row in table.every("tr") if row.every("td")]
    assert len(rows) == chosen.size + 10
    by_name = {words(row.every("th")[0]): [words(cell) for cell in row.every("td")] for row in rows}
    for j in chosen:
        shown_probability, towards, weight, interval = by_name[f"gene {j}"]
        assert shown_probability == probability(model.inclusion_probability_[j])
        own, deviation = model.sparse_coef_[0, j], model._scale[j]
        assert towards == ("well" if own > 0 else "ill")
        assert weight == signed(own * deviation)
        low = (own - 1.645 * model.sparse_coef_std_[0, j]) * deviation
        assert interval.startswith(signed(low))
    assert len(page.every("img")) == 6
    assert "COBIDAS" not in text
    assert "tumour" not in text


def table_rows(page, name):
    (table,) = [t for t in page.every("table") if t.attributes["aria-labelledby"] == name]
    return [[words(cell) for cell in row.every("th", "td")] for row in table.every("tr")[1:]]


def test_features_that_differ_are_named_with_their_tests(page, data, labels):
    """Against scipy's t test of each column; q values against its own correction."""
    _, p = ttest_ind(data.X[labels == "well"], data.X[labels == "ill"])
    q = false_discovery_control(p)
    rows = table_rows(page, "differing-table")
    order = np.argsort(p)[: min(20, int((q < 0.1).sum()))]
    assert [row[0] for row in rows] == [f"gene {j}" for j in order]
    for row, j in zip(rows, order, strict=True):
        assert float(row[3]) == pytest.approx(p[j], rel=0.06)
        assert float(row[4]) == pytest.approx(q[j], rel=0.06)
        assert row[1] == max(("well", "ill"), key=lambda c: data.X[labels == c, j].mean())


def test_thresholds_trade_who_is_found_for_who_is_cleared(page, model, labels):
    rows = table_rows(page, "threshold-table")
    assert [row[0] for row in rows] == ["0.1", "0.25", "0.5", "0.75", "0.9"]
    called, positive = model.loo_proba_[:, 1] >= 0.5, labels == model.classes_[1]
    assert f"({np.sum(called & positive)} of {positive.sum()})" in rows[2][1]
    assert f"({np.sum(~called & ~positive)} of {np.sum(~positive)})" in rows[2][2]
    found, cleared = ([float(row[k].split(" ")[0]) for row in rows] for k in (1, 2))
    assert found == sorted(found, reverse=True)
    assert cleared == sorted(cleared)


def test_values_of_the_named_features_are_shown_if_the_table_is_there(
    model, data, about, monkeypatch, coarse
):
    drawn = {}
    for name in ("HeatMapDisplay", "StripDisplay"):
        original = getattr(pictures, name)
        monkeypatch.setattr(
            pictures,
            name,
            lambda values, *a, _n=name, _o=original, **k: drawn.update({_n: values}) or _o(values, *a, **k),
        )
    for X in (data.X, pd.DataFrame(data.X), csr_array(data.X)):
        page = parsed(html(model, X=X, **about))
        assert len(page.every("img")) == 8
        top = model.get_support(indices=True)
        np.testing.assert_allclose(drawn["HeatMapDisplay"].std(axis=0), 1.0)
        assert drawn["HeatMapDisplay"].shape == (60, top.size)
    with pytest.raises(ValueError, match="the table of the fit has 60 samples of 300 features"):
        html(model, X=data.X[:, :5], **about)


def test_images_have_the_items_of_cobidas(model, labels, without_ink):
    assert "For decoding studies: COBIDAS items" in words(parsed(html(model, y=labels, images=True)))


def test_the_confusion_matrix_counts_every_sample_once(page, model, labels):
    (table,) = [t for t in page.every("table") if t.attributes["aria-labelledby"] == "confusion-table"]
    counts = np.array([[int(cell.text) for cell in row.every("b")] for row in table.every("tr")[2:]])
    predicted = model.classes_[np.argmax(model.loo_proba_, axis=1)]
    expected = [[np.sum((labels == a) & (predicted == b)) for b in model.classes_] for a in model.classes_]
    np.testing.assert_array_equal(counts, expected)
    assert counts.sum() == labels.size
    assert 1 - np.trace(counts) / counts.sum() == pytest.approx(model.loo_error_)


def test_suspicious_labels_are_listed_the_most_suspicious_first(page, model, labels):
    (table,) = [t for t in page.every("table") if t.attributes["aria-labelledby"] == "suspect-table"]
    order = np.argsort(-model.mislabel_probability_, kind="stable")
    rows = [[words(cell) for cell in row.every("th", "td")] for row in table.every("tr")[1:]]
    assert [row[0] for row in rows] == [f"row {i}" for i in order[: len(rows)]]
    assert [row[1] for row in rows] == list(labels[order[: len(rows)]])
    assert rows[0][4] == probability(model.mislabel_probability_[order[0]])


def test_twins_stand_beside_each_other(without_ink):
    X, y = twins_data()
    model = SparseClassifier().fit(X, y)
    pair = [s for s in model.credible_sets_ if set(s.columns) == {3, 17}]
    assert len(pair) == 1, model.credible_sets_
    page = parsed(html(model, y=y, feature_names=[f"gene {j}" for j in range(40)]))
    (sets,) = [t for t in page.every("table") if t.attributes["aria-labelledby"] == "set-table"]
    assert any(
        {"gene 3", "gene 17"} <= {words(name) for name in row.every("bdi")} for row in sets.every("tr")
    )
    (table,) = [t for t in page.every("table") if t.attributes["aria-labelledby"] == "feature-table"]
    twins = {
        words(row.every("th")[0]): words(row.every("td")[-1]) for row in table.every("tr") if row.every("td")
    }
    assert twins["gene 3"] == "gene 17"
    assert twins["gene 17"] == "gene 3"


def test_names_may_be_series_of_any_index(model, labels, without_ink):
    """Of a table that was filtered, the index has gaps: names are taken by position."""
    index = np.arange(300)[::-1] + 7
    about = {"y": labels, "sample_names": [f"s{i}" for i in range(60)]}
    names = pd.Series([f"gene {j}" for j in range(300)], index=index)
    as_list = html(model, feature_names=list(names), **about)
    assert html(model, feature_names=names, **about) == as_list
    rows = pd.Series(about.pop("sample_names"), index=index[:60])
    assert (
        html(model, feature_names=names, y=pd.Series(labels, index=rows.index), sample_names=rows) == as_list
    )


def test_covariates_are_no_discoveries(monkeypatch, without_ink):
    """They have their own part of the table, and no place in the picture of probabilities."""
    X, y = twins_data()
    drawn = []
    monkeypatch.setattr(pictures, "InclusionDisplay", lambda weight, *_, **__: drawn.append(weight) or Mock())
    model = SparseClassifier(always_keep=[0]).fit(X, y)
    page = parsed(html(model, y=y, feature_names=[f"gene {j}" for j in range(40)]))
    (table,) = [t for t in page.every("table") if t.attributes["aria-labelledby"] == "feature-table"]
    rows = [[words(cell) for cell in row.every("th", "td")] for row in table.every("tr")[1:]]
    assert rows[0] == ["kept in the model whatever the data say"]
    assert rows[1][:2] == ["gene 0", "kept"]
    assert "besides 1 covariate" in words(page)
    assert "at least one of a group of 2 does, with probability" in words(page)
    assert f"{model._summary().differing().size} differ by themselves" in words(page)
    assert [weight.shape for weight in drawn] == [(1, 39)]


def test_parameters_are_said_to_be_learnt_where_they_were(model, without_ink):
    """Message passing learns them; where nothing stands out under correlation they are left alone."""
    text = words(parsed(html(model)))
    assert "share of labels that are wrong" in text
    assert f"{model.channel_.flip_prob:.4g} (learnt)" in text
    assert "Learnt by expectation maximisation" in text
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 1)) + 0.5 * rng.standard_normal((40, 60))
    nothing = SparseClassifier().fit(X, rng.choice(["a", "b"], 40))
    assert nothing.solver_ == "EP"
    text = words(parsed(html(nothing)))
    assert "0.01 (fixed)" in text
    assert "left at plain values" in text
    assert "(learnt)" not in text


def test_what_was_not_told_is_left_out_and_said(model, without_ink):
    page = parsed(html(model))
    check_structure(page)
    assert "the labels were not passed on" in words(page)
    assert "Learning curve: none was computed" in words(page)
    assert not [t for t in page.every("table") if t.attributes["aria-labelledby"] == "confusion-table"]
    assert "column " in words(page)


def test_a_learning_curve_has_its_place(model, labels, coarse):
    drawn = []

    class Curve:
        def plot(self, ax):
            drawn.append(ax)
            ax.plot([10, 20], [0.3, 0.2])

    page = parsed(html(model, y=labels, learning_curve=Curve()))
    assert len(drawn) == 1
    assert "Would more samples help?" in words(page)
    assert len(page.every("img")) == 7
    assert "#learning" in [a.attributes["href"] for a in page.every("a")]


def test_a_curve_itself_is_drawn_by_its_display(model, labels, coarse):
    sizes, error = np.array([20, 40, 80]), np.array([0.3, 0.2, 0.1])
    curve = SimpleNamespace(
        n_samples=sizes,
        error=error,
        lower=error - 0.05,
        upper=error + 0.05,
        level=0.9,
        seen=SimpleNamespace(n_samples=60, error=model.loo_error_),
    )
    with_curve = parsed(html(model, y=labels, learning_curve=curve))
    assert "Would more samples help?" in words(with_curve)
    assert len(with_curve.every("img")) == 7


def test_doubt_is_said_on_top(model, labels, without_ink):
    doubtful = copy(model)
    doubtful.outcome_ = Outcome.STALLED
    doubtful.flags_ = [Flag("doubt", "Read probabilities as a ranking.")]
    doubtful.loo_proba_ = np.where(np.arange(labels.size)[:, None] == 3, np.nan, model.loo_proba_)
    page = parsed(html(doubtful, y=labels))
    (caution,) = [n for n in page.every("div") if n.attributes.get("class") == "caution"]
    assert "did not settle (stalled)" in words(caution)
    assert Outcome.STALLED.advice in words(caution)
    assert "Read probabilities as a ranking." in words(caution)
    assert "broke down for 1 sample;" in words(caution)
    assert not [n for n in parsed(html(model)).every("div") if n.attributes.get("class") == "caution"]


def test_classes_that_cannot_be_told_apart_are_said_to_be_so(without_ink):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 50)), rng.choice(["a", "b"], 40)
    model = SparseClassifier().fit(X, y)
    model.mislabel_probability_ = np.full(40, 0.9)  # of which such a model knows nothing
    text = words(parsed(html(model, y=y)))
    assert "Not shown" in text
    assert "Labels more likely wrong" not in text
    assert "Labels that look wrong: classes that cannot be told apart cast no doubt on any label." in text
    assert "that they can is not shown" in text


def test_groups_are_told_where_they_were_left_out(data, labels, model, without_ink):
    groups = np.arange(labels.size) // 6
    by_groups = SparseClassifier().fit(data.X, labels, groups=groups)
    text = words(parsed(html(by_groups, y=labels, groups=groups, images=True)))
    assert "10 groups" in text
    assert "leave-one-group-out error" in text
    assert "by leaving out one group at a time" in text
    text = words(parsed(html(model, y=labels, groups=groups, images=True)))
    assert "group-out" not in text
    assert "samples were left out one by one" in text


# ---------------------------------------------------------------------- nothing in it can act


def fabricated(n_classes: int):
    """A model with as many features, classes and samples as there are hostile names, all of them shown."""
    n = len(HOSTILE_NAMES)
    rng = np.random.default_rng(0)
    classes = np.array(HOSTILE_NAMES[:n_classes], dtype=object)
    codes = np.arange(n) % n_classes
    everything = CredibleSet(np.arange(n), 0.97, np.full(n, 0.5), 0.8)
    summary = Summary(
        described="Fabricated()",
        classes=classes,
        n_features=n,
        feature_names=None,
        weights=rng.standard_normal((1 if n_classes == 2 else n_classes, n)),
        method=(Sentence("Nothing was done.", ()),),
        columns=STANDARDISED,
        weight_std=np.ones((1 if n_classes == 2 else n_classes, n)),
        inclusion=np.linspace(0.99, 0.5, n),
        select=lambda fdr: np.ones(n, dtype=bool),
        fdr=0.1,
        groups=[everything],
        loo=LeaveOneOut(rng.dirichlet(np.ones(n_classes), n), 0.5, 1.0, Sentence("guessing", ())),
        mislabel_probability=np.full(n, 0.9),
        outcome=Outcome.CONVERGED,
        n_iter=1,
        history=History([Iteration(0.1, 1.0, 0.0, {})]),
        flags=tuple(Flag("hostile", name) for name in HOSTILE_NAMES[:3]),
        class_weight=dict.fromkeys(HOSTILE_NAMES, 1.0),
        models=tuple(ModelShare("sparse", name, 1 / n, 0.5) for name in HOSTILE_NAMES),
    )
    return Fabricated(summary), classes[codes]


class Fabricated(Summarised):
    """Whatever a summary may hold."""

    def __init__(self, summary):
        self.summary, self.coef_ = summary, summary.weights

    def _summary(self):
        return self.summary


@pytest.mark.parametrize("n_classes", [2, len(HOSTILE_NAMES)])
def test_hostile_names_are_only_names(n_classes, monkeypatch, coarse):
    """As names of features, classes, samples, models and files, in every place: no node that could act."""
    monkeypatch.setattr(samples, "MOST_SUSPECTS", len(HOSTILE_NAMES))
    monkeypatch.setattr(features, "MOST_SELECTED", len(HOSTILE_NAMES))
    monkeypatch.setattr(features, "MOST_IN_GROUP", len(HOSTILE_NAMES))
    model, y = fabricated(n_classes)
    source = html(
        model,
        y=y,
        feature_names=HOSTILE_NAMES,
        feature_descriptions=HOSTILE_NAMES,
        sample_names=HOSTILE_NAMES,
        title=HOSTILE_NAMES[0],
        source=HOSTILE_NAMES[1],
        steps=HOSTILE_NAMES,
        facts={name: name for name in HOSTILE_NAMES},
    )
    page = parsed(source)
    assert active_nodes(page) == []
    check_structure(page)
    assert not [c for c in source if c != "\n" and not c.isprintable() and c != "\u202f"]
    shown = [node.text for node in page.every("bdi")]
    # As feature, member of the set, sample, fact, its value and step; as class where all of them are classes.
    n_slots = 6 + (n_classes > 2)
    seen = {name: sum(shown.count(text) for text in {named(name), sentence(name)}) for name in HOSTILE_NAMES}
    assert [name[:60] for name, count in seen.items() if count < n_slots] == []


def test_what_counts_active_nodes_finds_them():
    """The guard above would notice: markup that is not escaped is found, and so is every other kind of it."""
    harmful = [name for name in HOSTILE_NAMES if re.match(r"^[^&%]*<[a-zA-Z]+[ >]", name)]
    assert len(harmful) > 70
    missed = []
    for name in harmful:
        # A name that breaks out of its paragraph is noticed as well, by the parser.
        with suppress(AssertionError):
            missed += [name] if not active_nodes(parsed(f"<style></style><p>{name}</p>")) else []
    assert missed == []
    assert active_nodes(parsed('<a href="https://evil.example">x</a>'))
    assert active_nodes(parsed('<img src="data:image/svg+xml,x" alt="">'))
    assert active_nodes(parsed("<p style='x'>x</p>"))
    assert not active_nodes(parsed('<a href="#features">x</a>'))


def test_real_fits_with_hostile_columns_and_classes(tmp_path, without_ink):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.standard_normal((40, len(HOSTILE_NAMES))), columns=HOSTILE_NAMES)
    y = np.array(HOSTILE_NAMES)[(X.iloc[:, 0] > 0).astype(int)]
    model = SparseClassifier().fit(X, y)
    path = report.write(model, tmp_path / "<script>alert(1)<script> $x$.html", y=y)
    page = parsed(path.read_text(encoding="utf-8"))
    assert active_nodes(page) == []
    assert printable(HOSTILE_NAMES[0]) in words(page)


def test_names_in_any_script_are_drawn_without_complaint(model, labels, coarse):
    """A warning would be an error here: fonts of pictures need not have every letter."""
    names = ["基因" + str(j) if j % 2 else f"\U0001f9ec ген {j}" for j in range(300)]
    page = parsed(html(model, y=labels, feature_names=names))
    assert names[int(np.argmax(model.inclusion_probability_))] in words(page)


def test_templates_escape_everything_and_miss_nothing():
    made = environment()
    assert made.autoescape is True
    assert made.undefined is StrictUndefined
    assert made.from_string("{{ name }}").render(name="<b>'\"&") == "&lt;b&gt;&#39;&#34;&amp;"
    with pytest.raises(UndefinedError):
        made.from_string("{{ nothing }}").render()
    template = (ROOM / "page.html.j2").read_text()
    assert not re.search(r"\|\s*safe|autoescape|https?://", template)
    assert re.findall(r"<script.*", template) == ["<script>{{ script }}</script>"]
    sources = "".join(path.read_text() for path in ROOM.glob("*.py"))
    assert sorted(re.findall(r"Markup\(\w*\)", sources)) == ["Markup(script)", "Markup(style)"]
    assert sources.count("Markup(") == 2
    # Nothing of the page becomes markup again.
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|eval|https?:", (ROOM / "page.js").read_text()
    )
    assert not re.search(r"url\(|@import|https?:|expression", (ROOM / "page.css").read_text())


def test_the_policy_allows_this_style_this_script_and_pictures_only(model, without_ink):
    page = parsed(html(model))
    (policy,) = [
        m.attributes["content"]
        for m in page.every("meta")
        if m.attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    style, script = (
        b64encode(sha256(part.text.encode()).digest()).decode() for part in page.every("style", "script")
    )
    assert rules == {
        "default-src": "'none'",
        "style-src": f"'sha256-{style}'",
        "script-src": f"'sha256-{script}'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


# ---------------------------------------------------------------------- writing


def test_the_same_model_gives_the_same_page(model, about, source, tmp_path):
    path = report.write(model, str(tmp_path / "report.html"), **about)
    assert path.read_bytes() == source.encode()
    assert path.stat().st_size < 400_000
    assert list(tmp_path.iterdir()) == [path]


def test_the_readme_writes_a_report(tmp_path, monkeypatch):
    """Its blocks of Python run one after another, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    readme = Path(__file__).parents[2] / "README.md"
    names: dict[str, object] = {}
    for code in re.findall(r"^```python\n(.*?)^```$", readme.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        exec(compile(code, str(readme), "exec"), names)
    assert "of labels are missed" in (tmp_path / "report.html").read_text("utf-8")


def test_a_failed_page_leaves_the_old_one(model, tmp_path, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no template")

    old = tmp_path / "report.html"
    old.write_text("old")
    monkeypatch.setattr("foldless.report.page.rendered", broken)
    with pytest.raises(RuntimeError):
        report.write(model, old)
    assert old.read_text() == "old"
    assert list(tmp_path.iterdir()) == [old]


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"y": ["ill"] * 3}, "y has 3 entries for 60 samples"),
        ({"y": ["else"] * 60}, "'else', which is not among the classes"),
        ({"feature_names": ["a"]}, "feature_names has 1 entries for 300 features"),
        ({"feature_descriptions": ["a"]}, "feature_descriptions has 1 entries"),
        ({"sample_names": ["a"]}, "sample_names has 1 entries for 60 samples"),
        ({"groups": [1]}, "groups has 1 entries for 60 samples"),
        ({"steps": "one step"}, "list of sentences"),
        ({"fdr": 2.0}, "fdr must be between 0 and 1"),
    ],
)
def test_what_does_not_fit_is_told_before_anything_is_written(model, about, said, tmp_path):
    with pytest.raises(ValueError, match=re.escape(said)):
        report.write(model, tmp_path / "report.html", **about)
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_is_not_fitted_has_no_page():
    with pytest.raises(ValueError, match="Call fit first"):
        html(SparseClassifier())


def test_importing_the_report_imports_nothing_slow():
    code = """
import foldless.report, sys
sys.exit(bool({"matplotlib", "jinja2", "sklearn", "PIL"} & set(sys.modules)))
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_numbers_are_worded_for_readers():
    assert [signed(x) for x in (0.0, 1.234, -1.234, 0.05, -0.001)] == [
        "0",
        "+1.23",
        "−1.23",
        "+0.050",
        "−1.0e-03",
    ]
    assert [probability(p) for p in (1.0, 0.99949, 0.5, 0.0)] == ["> 0.999", "0.999", "0.500", "< 0.001"]
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert plural(1, "label") == "1 label"
    assert plural(12345, "label") == "12\u202f345 labels"


def test_no_line_ends_between_a_number_and_its_unit(without_ink):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 6))
    y = np.where(X[:, 4] + rng.standard_normal(40) > 0, "ill", "well")
    names = ["gene 0", "top 5 %", *(f"gene {j}" for j in range(2, 6))]
    page = html(SparseClassifier().fit(X, y), y=y, feature_names=names)
    shown = page.partition("</style>")[2].replace("top 5 %", "")
    assert "missed (" in shown
    assert "\u202f% interval" in shown
    assert not re.search(r"\d %", shown)
    assert "top 5 %" in page  # a name stays as it is


def test_the_page_of_a_pipeline_is_about_its_last_step(without_ink, tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.standard_normal((40, 6)), columns=[f"gene {j}" for j in range(6)])
    X["gene 2"] = 1.0
    y = np.where(X["gene 4"] > 0, "ill", "well")
    pipeline = make_pipeline(VarianceThreshold(), StandardScaler(), SMLRClassifier(rate=2.0)).fit(X, y)
    page = html(pipeline, y=y, X=X)
    assert write(pipeline, tmp_path / "page.html", y=y, X=X).read_text(encoding="utf-8") == page
    assert "gene 4" in page
    assert "gene 2" not in page
    assert "VarianceThreshold, StandardScaler" in page
    assert "gene 4" in html(make_pipeline(SMLRClassifier(rate=2.0)).fit(X, y))
