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
from matplotlib.figure import Figure
from numpy.testing import assert_array_equal

from foldless import SparseClassifier
from foldless.datasets import make_class_means
from foldless.io import printable
from foldless.plots import (
    BoundDisplay,
    ConvergenceDisplay,
    InclusionDisplay,
    LeaveOneOutDisplay,
    save,
)

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
    counts = {what: len(points.get_offsets()) for what, points in display.points_.items()}
    assert counts["first"] + counts["second"] == data.y.size
    assert counts["mislabelled"] == wrong.sum()
    assert counts["suspected"] == np.sum(model.mislabel_probability_ > 0.5)
    assert f"{100 * model.loo_error_:.1f} %" in ax.get_title(loc="left")
    display.figure_.canvas.draw()


def test_more_than_two_classes(ax):
    rng = np.random.default_rng(0)
    y = np.arange(45) % 3
    X = rng.standard_normal((45, 6))
    X[np.arange(45), y] += 3.0
    model = SparseClassifier().fit(X, y)
    display = InclusionDisplay.from_estimator(model, ax=ax)
    assert display.weight.size == 6
    assert_array_equal(np.abs(display.weight), np.abs(model.coef_).max(axis=0))
    with pytest.raises(ValueError, match="two classes; the model has 3"):
        LeaveOneOutDisplay.from_estimator(model, y)


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
    ):
        assert isinstance(display.figure_, Figure)
        plt.close(display.figure_)


def test_wrong_lengths_are_told():
    with pytest.raises(ValueError, match="names has 2 entries for 3 features"):
        InclusionDisplay(np.zeros(3), np.zeros(3), np.zeros(3, bool), names=["a", "b"])
    with pytest.raises(ValueError, match="labels has 1 entries for 2 samples"):
        LeaveOneOutDisplay([0.1, 0.2], [1], [0, 1])


def test_hostile_names_are_drawn_as_they_are(tmp_path):
    """No mathtext, no control characters; a name that is not TeX must not break the picture."""
    n = len(HOSTILE)
    figure = Figure(figsize=(9, 5), layout="constrained")
    left, right = figure.subplots(1, 2)
    display = InclusionDisplay(np.ones(n), np.full(n, 0.9), np.ones(n, bool), names=HOSTILE).plot(left)
    LeaveOneOutDisplay(np.full(4, 0.3), ["$a$", "$\\frac{"] * 2, ["$a$", "$\\frac{"]).plot(right)
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
