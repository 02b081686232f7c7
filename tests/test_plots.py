"""Displays draw what they are given, keep their artists, and show hostile names harmlessly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from sklearn.datasets import load_iris

from foldless import SMLRClassifier, SparseClassifier
from foldless.datasets import make_class_means
from foldless.estimators._summary import summary_of
from foldless.estimators.baselines import OneBitCS
from foldless.io import printable
from foldless.plots import (
    BoundDisplay,
    CalibrationDisplay,
    ConvergenceDisplay,
    HeatMapDisplay,
    InclusionDisplay,
    LeaveOneOutDisplay,
    StripDisplay,
    WeightDisplay,
    save,
)
from foldless.plots.drawing import CLASS_LOOKS
from foldless.plots.readings import ranking, weights_of

matplotlib.use("Agg")

HOSTILE = [
    "[red]",
    "$x_1$",
    "$\\frac{",
    "<script>alert(1)</script>",
    "\x1b[2J\x1b]0;owned\x07",
    "a\nb",
    "‮",
    "",
]


@pytest.fixture(scope="module")
def data():
    return make_class_means(60, 300, 4, bayes_error=0.01, mislabelled=0.05, random_state=0)


@pytest.fixture(scope="module")
def model(data):
    return SparseClassifier().fit(data.X, data.y)


@pytest.fixture
def ax():
    return Figure(figsize=(6, 5), layout="constrained").subplots()


def test_inclusion_display_draws_every_feature_once(model, data, ax):
    truth = data.weights != 0
    display = InclusionDisplay.from_estimator(model, fdr=0.2, truth=truth, ax=ax)
    assert display.ax_ is ax
    assert display.figure_ is ax.figure
    drawn = {what: len(points.get_offsets()) for what, points in display.points_.items()}
    selected = model.get_support(0.2)
    assert drawn == {
        "not selected": np.sum(~selected & ~truth),
        "selected, true": np.sum(selected & truth),
        "selected, false": np.sum(selected & ~truth),
        "true, missed": np.sum(~selected & truth),
    }
    assert sorted(t.get_text() for t in display.labels_) == sorted(map(str, np.flatnonzero(selected)))
    assert "0.2" in ax.get_title(loc="left")
    display.figure_.canvas.draw()


def test_inclusion_display_without_truth_or_selection(model, ax):
    assert set(InclusionDisplay.from_estimator(model, ax=ax).points_) == {"selected", "not selected"}
    empty = InclusionDisplay(np.zeros(3), np.zeros(3), np.zeros(3, bool)).plot(ax)
    assert empty.threshold_ is None
    assert empty.labels_ == []
    ranked = InclusionDisplay(np.ones(3), [0.1, 0.3, 0.2], np.zeros(3, bool)).plot(ax, n_others=2)
    assert [t.get_text() for t in ranked.labels_] == ["1", "2"]
    empty.figure_.canvas.draw()


def test_inclusion_display_has_room_for_certainty(ax):
    """Probabilities of exactly 0 and 1, as max-sum gives, have no place on a logit axis, but are drawn."""
    certain = np.array([0.0, 1.0, 1.0])
    display = InclusionDisplay(np.array([0.0, 1.0, -1.0]), certain, certain > 0).plot(ax)
    low, high = ax.get_ylim()
    heights = np.concatenate([p.get_offsets()[:, 1] for p in display.points_.values()])
    assert np.all((heights > low) & (heights < high))


def test_labels_do_not_cover_one_another(ax):
    """Sixty features of one probability: the names of thirty-two are drawn, apart and in the axes."""
    n = 60
    weight = np.where(np.arange(n) % 2, 1.0, -1.0)
    display = InclusionDisplay(weight, np.full(n, 0.99), np.ones(n, bool)).plot(ax)
    display.figure_.canvas.draw()
    assert len(display.labels_) == 32
    axes_box = ax.get_window_extent()
    for side in (0.02, 0.98):
        heights = np.sort([t.xyann[1] for t in display.labels_ if t.xyann[0] == side])
        assert np.all(np.diff(heights) * axes_box.height >= 7 / 72 * display.figure_.dpi)
        assert 0 <= heights[0] <= heights[-1] <= 1


def test_leave_one_out_display(model, data, ax):
    wrong = np.isin(np.arange(data.y.size), data.mislabelled)
    display = LeaveOneOutDisplay.from_estimator(model, data.y, mislabelled=wrong, ax=ax)
    counts = {what: len(points.get_offsets()) for what, points in display.marks_.items()}
    of_class = [len(points.get_offsets()) for points in display.recorded_]
    assert of_class == [np.sum(data.y == -1), np.sum(data.y == 1)]
    # A class has one colour in all pictures of a page.
    drawn = [to_hex(points.get_facecolor()[0]) for points in display.recorded_]
    assert drawn == [colour.lower() for colour, _ in CLASS_LOOKS[:2]]
    assert counts["mislabelled"] == wrong.sum()
    assert counts["suspected"] == np.sum(model.mislabel_probability_ > 0.5)
    assert f"{100 * model.loo_error_:.1f} %" in ax.get_title(loc="left")
    display.figure_.canvas.draw()


@pytest.fixture(scope="module")
def three():
    """A fit of three classes, one of which is easy, and its labels."""
    X, y = load_iris(return_X_y=True)
    labels = np.array(["setosa", "versicolor", "virginica"])[y]
    return SMLRClassifier(rate=3.0).fit(X, labels), labels


def test_weights_are_comparable_whatever_the_units(data):
    """Per standard deviation of the feature: multiplied columns have other coefficients, the same weights."""
    factor = 10.0 ** np.resize([-3, 0, 3], 300)
    first = SparseClassifier().fit(data.X, data.y)
    second = SparseClassifier().fit(data.X * factor, data.y)
    ours, theirs = weights_of(summary_of(first)), weights_of(summary_of(second))
    assert ours.per == "standard deviation"
    np.testing.assert_allclose(ours.mean, theirs.mean, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(ours.std, theirs.std, rtol=1e-5)
    assert np.abs(first.coef_ / second.coef_).max() > 100
    np.testing.assert_allclose(ours.mean[0], first.sparse_coef_[0] * data.X.std(axis=0), rtol=1e-6)


def test_weights_of_models_that_know_no_scale_are_as_they_are(three):
    _, labels = three
    X, _ = load_iris(return_X_y=True)
    plain = SMLRClassifier(rate=3.0, standardize=False).fit(X, labels)
    weights = weights_of(summary_of(plain))
    assert weights.per == "unit of the feature"
    assert weights.std is None
    np.testing.assert_array_equal(weights.mean, plain.coef_)
    assert weights.mean.shape == (3, 4)
    np.testing.assert_array_equal(np.abs(weights.at_largest), np.abs(plain.coef_).max(axis=0))


def test_ranking_is_by_probability_then_size(model):
    order = ranking(summary_of(model))
    probability = model.inclusion_probability_[order]
    assert np.all(np.diff(probability) <= 0)
    assert sorted(order) == list(range(300))


def test_weight_display_draws_the_surest_features(model, ax):
    display = WeightDisplay.from_estimator(model, n_features=7, names=[f"g{j}" for j in range(300)], ax=ax)
    assert display.ax_ is ax
    top = ranking(summary_of(model))[:7]
    (bars,) = display.bars_
    points, _, (intervals,) = bars.lines
    expected = model.sparse_coef_[0, top] * model._scale[top]
    np.testing.assert_allclose(points.get_xdata(), expected)
    reach = 1.645 * model.sparse_coef_std_[0, top] * model._scale[top]
    drawn = np.array([segment[:, 0] for segment in intervals.get_segments()])
    np.testing.assert_allclose(drawn, np.column_stack([expected - reach, expected + reach]))
    assert [t.get_text() for t in ax.get_yticklabels()] == [f"g{j}" for j in top]
    assert display.legend_ is None
    display.figure_.canvas.draw()


def test_heat_map_orders_samples_by_class_then_probability(model, data, ax):
    top, codes = ranking(summary_of(model))[:5], (data.y > 0).astype(int)
    options = {"proba": model.loo_proba_, "names": HOSTILE[:5]}
    display = HeatMapDisplay(data.X[:, top], codes, model.classes_, **options).plot(ax)
    drawn = np.asarray(display.image_.get_array())
    np.testing.assert_allclose(drawn, data.X[display.order_][:, top].T)
    assert np.all(np.diff(codes[display.order_]) >= 0)
    for code in (0, 1):
        own = display.order_[codes[display.order_] == code]
        assert np.all(np.diff(model.loo_proba_[own, 1]) >= 0)
    display.figure_.canvas.draw()
    assert ax.get_legend() is None
    with pytest.raises(ValueError, match="codes has 59 entries for 60 samples"):
        HeatMapDisplay(data.X[:, top], codes[:-1], model.classes_)


def test_names_of_classes_that_would_meet_above_a_heat_map_are_in_its_legend(ax):
    classes = ["AT/RT", "glioma, malignant", "medulloblastoma", "normal cerebellum"]
    codes = np.repeat(np.arange(4), [10, 10, 10, 2])
    HeatMapDisplay(np.zeros((32, 3)), codes, classes).plot(ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == classes
    assert not ax.texts


def test_strips_show_every_value_and_the_medians(data, ax):
    codes = (data.y > 0).astype(int)
    display = StripDisplay(data.X[:, :3], codes, ["$a$", "b"], names=HOSTILE[:3]).plot(ax)
    for code, points in enumerate(display.points_):
        values = np.sort(np.asarray(points.get_offsets())[:, 1])
        np.testing.assert_allclose(values, np.sort(data.X[codes == code, :3].ravel()))
        np.testing.assert_allclose(display.medians_[:, code], np.median(data.X[codes == code, :3], axis=0))
    # Points of a class stay at their feature.
    assert all(np.abs(x - np.round(x)).max() < 0.5 for x in (p.get_offsets()[:, 0] for p in display.points_))
    display.figure_.canvas.draw()


def test_displays_know_more_than_two_classes(three, ax):
    model, labels = three
    display = WeightDisplay.from_estimator(model, ax=ax)
    assert len(display.bars_) == 3
    assert [t.get_text() for t in display.legend_.get_texts()] == list(model.classes_)
    # Exact zeros are no points: they would hide the others.
    drawn = [np.isfinite(bars.lines[0].get_xdata()).sum() for bars in display.bars_]
    assert drawn == [np.sum(row != 0) for row in model.coef_]
    display.figure_.canvas.draw()

    figure = Figure(figsize=(12, 5), layout="constrained")
    left, right = figure.subplots(1, 2)
    samples = LeaveOneOutDisplay.from_estimator(model, labels, ax=left)
    assert [len(points.get_offsets()) for points in samples.recorded_] == [50, 50, 50]
    missed = model.classes_[np.argmax(model.loo_proba_, axis=1)] != labels
    assert len(samples.marks_["missed"].get_offsets()) == missed.sum() > 0
    assert "taken for another class" in left.get_title(loc="left")
    heights = samples.recorded_[1].get_offsets()[:, 1]
    np.testing.assert_allclose(np.sort(heights), np.sort(model.loo_proba_[labels == "versicolor", 1]))
    included = InclusionDisplay(
        model.coef_, np.full(4, 0.9), np.ones(4, bool), classes=model.classes_, names=list("abcd")
    ).plot(right)
    assert all(t.get_text().partition(": ")[2] in model.classes_ for t in included.labels_)
    assert "any class" in right.get_xlabel()
    figure.canvas.draw()


def test_calibration_display_shares_are_of_the_labels(ax):
    """Probabilities that are right by construction: the curve is near the diagonal, and in its intervals."""
    rng = np.random.default_rng(0)
    predicted = rng.uniform(size=4000)
    happened = rng.uniform(size=4000) < predicted
    display = CalibrationDisplay(predicted, happened, n_bins=8).plot(ax)
    x, share = display.line_.get_data()
    assert len(x) == 8
    order = np.argsort(predicted)[:500]
    assert share[0] == happened[order].mean()
    assert x[0] == pytest.approx(predicted[order].mean())
    assert np.abs(share - x).max() < 5 * 0.5 / np.sqrt(500)
    (segments,) = display.intervals_.lines[2]
    for (_, low), (_, high) in segments.get_segments():
        assert high - low == pytest.approx(2 * 1.645 * 0.5 / np.sqrt(500), abs=0.05)
    assert [t.get_text() for t in display.legend_.get_texts()][-1] == "90 % interval"


def test_calibration_display_of_models(model, data, three):
    figure = Figure(figsize=(10, 5), layout="constrained")
    left, right = figure.subplots(1, 2)
    binary = CalibrationDisplay.from_estimator(model, data.y, ax=left)
    assert binary.happened.sum() == np.sum(data.y == 1)
    assert 1 <= len(binary.line_.get_xdata()) <= 5
    many, labels = three
    display = CalibrationDisplay.from_estimator(many, labels, ax=right)
    right_ones = many.classes_[np.argmax(many.loo_proba_, axis=1)] == labels
    np.testing.assert_array_equal(display.happened, right_ones)
    assert "the class predicted" in right.get_xlabel()
    figure.canvas.draw()
    with pytest.raises(ValueError, match="3 labels for 60 samples"):
        CalibrationDisplay.from_estimator(model, data.y[:3])
    with pytest.raises(ValueError, match="one entry for each"):
        CalibrationDisplay([0.1, 0.2], [True])


def test_calibration_of_certainty_has_intervals_within_bounds(ax):
    display = CalibrationDisplay(np.full(30, 1.0), np.ones(30, bool)).plot(ax)
    (segments,) = display.intervals_.lines[2]
    ((_, low), (_, high)) = segments.get_segments()[0]
    assert 0.8 < low < high == 1.0
    assert len(display.line_.get_xdata()) == 1


def test_convergence_display(model, ax):
    display = ConvergenceDisplay.from_estimator(model, ax=ax)
    np.testing.assert_array_equal(display.change_.get_ydata(), model.history_.change)
    np.testing.assert_array_equal(display.step_.get_ydata(), model.history_.step)
    assert ax.get_yscale() == "log"
    assert "converged" in ax.get_title(loc="left")
    assert ConvergenceDisplay([1.0, 0.1], [1.0, 1.0]).plot(ax).tol_ is None
    display.figure_.canvas.draw()


def test_displays_make_their_own_figure(model, data):
    import matplotlib.pyplot as plt

    for display in (
        InclusionDisplay.from_estimator(model),
        LeaveOneOutDisplay.from_estimator(model, data.y),
        ConvergenceDisplay.from_estimator(model),
        WeightDisplay.from_estimator(model),
        CalibrationDisplay.from_estimator(model, data.y),
    ):
        assert isinstance(display.figure_, Figure)
        plt.close(display.figure_)


def test_wrong_lengths_are_told():
    with pytest.raises(ValueError, match="names has 2 entries for 3 features"):
        InclusionDisplay(np.zeros(3), np.zeros(3), np.zeros(3, bool), names=["a", "b"])
    with pytest.raises(ValueError, match="labels has 1 entries for 2 samples"):
        LeaveOneOutDisplay([0.1, 0.2], [1], [0, 1])
    with pytest.raises(ValueError, match="names has 2 entries for 3 features"):
        WeightDisplay(np.zeros(3), names=["a", "b"])
    with pytest.raises(ValueError, match="std has shape"):
        WeightDisplay(np.zeros(3), np.zeros(2))
    with pytest.raises(ValueError, match="classes has 3 entries"):
        WeightDisplay(np.zeros(3), classes=["a", "b", "c"])


@pytest.mark.parametrize(
    ("display", "said"),
    [
        (InclusionDisplay, "has no inclusion_probability_. WeightDisplay draws weights alone"),
        (ConvergenceDisplay, "has no history_. Its outcome_ and n_iter_"),
    ],
)
def test_what_a_model_lacks_is_told_with_a_way_out(three, display, said):
    model, _ = three
    with pytest.raises(ValueError, match=f"SMLRClassifier {said}"):
        display.from_estimator(model)
    with pytest.raises(ValueError, match="This SMLRClassifier is not fitted"):
        display.from_estimator(SMLRClassifier())


def test_models_without_leave_one_out_are_told_what_to_do():
    X, y = load_iris(return_X_y=True)
    model = OneBitCS(sparsity=2).fit(X[50:], y[50:])
    with pytest.raises(ValueError, match=r"OneBitCS has no loo_proba_\. Cross-validation"):
        LeaveOneOutDisplay.from_estimator(model, y[50:])
    with pytest.raises(ValueError, match=r"OneBitCS has no loo_proba_\. Use sklearn's CalibrationDisplay"):
        CalibrationDisplay.from_estimator(model, y[50:])
    with pytest.raises(ValueError, match="This OneBitCS is not fitted"):
        WeightDisplay.from_estimator(OneBitCS())


def test_hostile_names_are_drawn_as_they_are(tmp_path):
    """No mathtext, no control characters; a name that is not TeX must not break the picture."""
    n = len(HOSTILE)
    figure = Figure(figsize=(20, 5), layout="constrained")
    left, right, third, fourth = figure.subplots(1, 4)
    display = InclusionDisplay(np.ones(n), np.full(n, 0.9), np.ones(n, bool), names=HOSTILE).plot(left)
    LeaveOneOutDisplay(np.full(4, 0.3), ["$a$", "$\\frac{"] * 2, ["$a$", "$\\frac{"]).plot(right)
    WeightDisplay(np.ones((2, n)), names=HOSTILE, classes=["$a$", "$\\frac{"]).plot(third)
    CalibrationDisplay(np.full(20, 0.3), np.arange(20) < 6, event="$\\frac{").plot(fourth)
    shown = {t.get_text() for t in display.labels_}
    assert {
        "[red]",
        "$x_1$",
        "<script>alert(1)</script>",
        r"\x1b[2J\x1b]0;owned\x07",
        r"a\nb",
        r"\u202e",
    } <= shown
    assert not any(t.get_parse_math() for t in display.labels_)
    for suffix in ("png", "svg"):
        save(figure, tmp_path / f"names.{suffix}")
    assert "<script>" not in (tmp_path / "names.svg").read_text()


@given(st.text(max_size=60))
def test_printable_names_are_printable_and_short(name):
    shown = printable(name)
    assert shown.isprintable()
    assert len(shown) <= 28
    if name.isprintable() and len(name) <= 28:
        assert shown == name


def test_a_failed_write_leaves_the_old_picture_whole(tmp_path: Path):
    class Failing:
        def savefig(self, file, **_):
            file.write(b"half a pict")
            raise OSError(28, "No space left on device")

    old = tmp_path / "picture.png"
    old.write_bytes(b"the old picture")
    with pytest.raises(OSError, match="No space"):
        save(Failing(), old)
    assert old.read_bytes() == b"the old picture"
    assert list(tmp_path.iterdir()) == [old]


def test_plots_import_matplotlib_only_to_draw():
    code = "import foldless.plots, sys; sys.exit(bool({'matplotlib', 'sklearn'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_bounds_are_drawn_as_given():
    rates = np.array([1.0, 10.0, 100.0])
    display = BoundDisplay(rates, [0.5, 0.3, 0.4], [0.2, 0.1, 0.2], sample_risk=[0.1, 0.1, 0.3], chosen=10.0)
    display.plot()
    np.testing.assert_array_equal(display.bound_.get_ydata(), [0.5, 0.3, 0.4])
    np.testing.assert_array_equal(display.test_error_.get_xdata(), rates)
    assert display.sample_risk_ is not None
    assert display.ax_.get_xscale() == "log"
    with pytest.raises(ValueError, match="one for each"):
        BoundDisplay(rates, [0.5], [0.2, 0.1, 0.2])
