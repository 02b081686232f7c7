"""The study of state evolution runs, agrees with itself, and its committed results agree too."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

STUDY = Path(__file__).resolve().parents[2] / "benchmarks" / "studies" / "state_evolution"
# The figure of a study is looked at in a browser next to its text.
LARGEST_FIGURE = 300_000


@pytest.fixture(scope="module")
def study() -> ModuleType:
    spec = importlib.util.spec_from_file_location("state_evolution_study", STUDY / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_quick_variant_agrees_and_draws(study: ModuleType, tmp_path: Path):
    compared = study.main(["--quick", "--out", str(tmp_path)])
    assert all(row.agrees for row in compared)
    assert {p.name for p in tmp_path.iterdir()} == {
        "results.csv",
        "iterations.csv",
        "surface.csv",
        "figure.png",
    }
    assert (tmp_path / "results.csv").read_text().startswith("# machine:")


def test_committed_results_agree(study: ModuleType):
    points = study.read_csv(STUDY / "results.csv", study.Comparison)
    steps = study.read_csv(STUDY / "iterations.csv", study.Comparison)
    assert len(points) >= 12
    assert all(p.active_ratio < p.sample_ratio for p in points)
    # Without the quick variant's allowance for few trials: weight errors are far below 0.01 at easy points.
    for row in points + steps:
        assert abs(row.error_difference) <= study.STANDARD_ERRORS * row.measured_error_se
        assert abs(row.mse_difference) <= study.STANDARD_ERRORS * row.measured_mse_se
    assert (STUDY / "figure.png").stat().st_size <= LARGEST_FIGURE
