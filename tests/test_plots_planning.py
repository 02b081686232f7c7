"""Pictures of plans, learning curves and panels."""

from __future__ import annotations

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from foldless.plots import LearningCurveDisplay, PanelDisplay, PlanDisplay
from foldless.theory.learning_curve import Seen, extrapolated
from foldless.theory.planning import plan
from foldless.theory.study import Study

matplotlib.use("Agg")


def test_a_plan_is_drawn_with_the_number_needed_among_its_sizes():
    answer = plan(Study(500, 10), [40, 160], error=0.2)
    axes = Figure().subplots()
    display = PlanDisplay.from_plan(answer, simulated=([80], [0.1], [0.01]), ax=axes)
    assert display.ax_ is axes
    assert answer.needed is not None
    np.testing.assert_array_equal(display.error_.get_xdata(), sorted([40, 160, answer.needed.n_samples]))
    np.testing.assert_allclose(display.error_.get_ydata()[-1], answer.rows[-1].error)
    np.testing.assert_allclose(display.power_.get_ydata()[-1], answer.rows[-1].power)
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert f"needed: {answer.needed.n_samples} samples" in labels
    assert "error of simulated fits (95 %)" in labels
    axes.figure.canvas.draw()


def test_a_learning_curve_is_drawn_with_its_band_and_its_model():
    curve = extrapolated(Seen(60, 0.1, 15.0, 0.02), Study(500, 10), [120])
    display = LearningCurveDisplay.from_curve(curve, ax=Figure().subplots())
    np.testing.assert_array_equal(display.line_.get_ydata(), curve.error)
    np.testing.assert_array_equal(display.seen_.get_xydata(), [[60, 0.1]])
    assert display.band_.get_label() == "90 % band of the left-out error"


def test_a_panel_is_drawn_beside_the_full_model():
    display = PanelDisplay([0, 5, 10], [0.5, 0.2, 0.1], [0.1, 0.05, 0.05], full=(0.1, 0.05), chosen=10)
    display.plot(Figure().subplots())
    np.testing.assert_array_equal(display.line_.get_ydata(), [0.5, 0.2, 0.1])
    np.testing.assert_array_equal(display.chosen_.get_xydata(), [[2, 0.1]])
    assert [tick.get_text() for tick in display.ax_.get_xticklabels()] == ["0", "5", "10"]
    none = PanelDisplay([0, 5], [0.5, 0.5], [0.1, 0.1], full=(0.5, 0.1)).plot(Figure().subplots())
    assert none.chosen_.get_label() == "no panel"
    with pytest.raises(ValueError, match="one for each"):
        PanelDisplay([0, 5], [0.5], [0.1, 0.1], full=(0.5, 0.1))


def test_lines_of_other_lengths_are_refused():
    with pytest.raises(ValueError, match="one for each"):
        PlanDisplay([1, 2], [0.1], [0.1, 0.2], [0, 0])
    with pytest.raises(ValueError, match="one for each"):
        LearningCurveDisplay([1, 2], [0.1, 0.1], [0.1], [0.2, 0.2], seen=(1, 0.1))
