"""Pictures of fitted models, in the style of scikit-learn's displays: they draw, and compute nothing.

    InclusionDisplay.from_estimator(model, fdr=0.1).figure_.savefig("features.png")

Matplotlib is imported when something is drawn, so that importing this package costs nothing.
"""

from foldless.plots.bounds import BoundDisplay
from foldless.plots.calibration import CalibrationDisplay
from foldless.plots.convergence import ConvergenceDisplay
from foldless.plots.drawing import journal, save
from foldless.plots.heat_map import HeatMapDisplay
from foldless.plots.inclusion import InclusionDisplay
from foldless.plots.leave_one_out import LeaveOneOutDisplay
from foldless.plots.panel import PanelDisplay
from foldless.plots.planning import LearningCurveDisplay, PlanDisplay
from foldless.plots.roc import RocDisplay
from foldless.plots.strips import StripDisplay
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
