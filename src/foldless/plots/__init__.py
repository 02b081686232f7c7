"""Pictures of fitted models, in the style of scikit-learn's displays: they draw, and compute nothing.

    InclusionDisplay.from_estimator(model, fdr=0.1).figure_.savefig("features.png")

Matplotlib is imported when something is drawn, so that importing this package costs nothing.
"""

from foldless.plots.curves import (
    BoundDisplay,
    ConvergenceDisplay,
    LearningCurveDisplay,
    PanelDisplay,
    PlanDisplay,
)
from foldless.plots.drawing import journal, save
from foldless.plots.inclusion import InclusionDisplay
from foldless.plots.left_out import CalibrationDisplay, LeaveOneOutDisplay, RocDisplay
from foldless.plots.values import HeatMapDisplay, StripDisplay
from foldless.plots.weights import WeightDisplay

__all__ = [
    "BoundDisplay",
    "CalibrationDisplay",
    "ConvergenceDisplay",
    "HeatMapDisplay",
    "InclusionDisplay",
    "LearningCurveDisplay",
    "LeaveOneOutDisplay",
    "PanelDisplay",
    "PlanDisplay",
    "RocDisplay",
    "StripDisplay",
    "WeightDisplay",
    "journal",
    "save",
]
