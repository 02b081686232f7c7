"""The Bayes point study at a small size: its table, its outlier, its posterior."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def repository_on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def study(name):
    return importlib.import_module(f"benchmarks.studies.bayes_point_table1.{name}")


@pytest.fixture
def source(tmp_path):
    """Data of the study's form, made up."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("liver", "contraceptive"):
        X = rng.normal(size=(90, 3))
        y = np.where(X[:, 0] - X[:, 1] + 0.5 * rng.normal(size=90) > 0, "b", "a")
        np.savez(folder / f"{name}.npz", X=X, y=y, y_binary=y)
    return folder


def test_the_table_runs(source, tmp_path, capsys):
    out = tmp_path / "out"
    options = ["--quick", "--bins", "12", "--only", "contraceptive"]
    study("run").main([*options, "--data", str(source), "--out", str(out)])
    results = pd.read_csv(out / "results.csv")
    assert set(results.method) == {"SVM", "EP", "knapsack", "knapsack, β = ∞"}
    assert results.error.between(0, 0.4).all()
    assert "SVM − knapsack" in capsys.readouterr().out
    assert (out / "figure.png").stat().st_size > 10_000


def test_the_studys_knapsack_is_the_librarys(source):
    """The study shares folds and runs between its two rows; each must be what the library fits alone."""
    from foldless.solvers.knapsack import Machine
    from foldless.solvers.knapsack.settings import BETAS, Choices, fit_knapsack

    run = study("run")
    split = run.random_split(source, "liver", 3, small=True)
    found = run.knapsacks(split, 12, Choices(costs=(0.5, 2.0), sweeps=(1, 3)))
    design, test = (np.column_stack([X, np.ones(len(X))]) for X in (split.X, split.X_test))
    for method, betas in (("knapsack", BETAS), ("knapsack, β = ∞", (np.inf,))):
        choices = Choices(costs=(0.5, 2.0), sweeps=(1, 3), betas=betas)
        alone = fit_knapsack(design, split.y, np.ones(split.y.size), Machine(n_bins=12), choices)
        scores = test @ alone.histograms.mean
        assert_allclose(found[method]["error"], np.mean(np.sign(scores) != split.y_test))


def test_paired_differences_are_told(tmp_path):
    rows = [
        {"data": "liver", "split": s, "method": m, "error": e + 0.01 * s}
        for s in range(6)
        for m, e in (("SVM", 0.32), ("EP", 0.30), ("knapsack", 0.30), ("knapsack, β = ∞", 0.30 + 0.001 * s))
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "results.csv")
    told = study("plot").report(tmp_path)
    assert "+2.00 (0.00)" in told
    assert "+0.00 (0.00)" in told


def test_the_outlier_and_the_pictures(tmp_path):
    checks = study("checks")
    checks.main(["outlier", "posterior", "--quick", "--out", str(tmp_path)])
    table = pd.read_csv(tmp_path / "check_outlier.csv")
    assert {"SVM", "EP", "knapsack", "knapsack, quartiles scaled"} <= set(table.method)
    assert table["without"].between(7.86, 12).all()
    change = (table["with"] - table["without"]).set_axis(table.method)
    assert abs(change["knapsack"]) < change["SVM"]
    assert (tmp_path / "posterior.png").stat().st_size > 10_000


def test_the_posterior_of_figure_1a_is_that_of_the_formula():
    checks = study("checks")
    X, y = checks.two_clouds(0)
    angles, offsets, surface, length = checks.posterior_surface(X, y, 1.5, 9)
    for i, k in ((0, 0), (4, 4), (7, 2)):
        w = length * np.array([np.cos(angles[i]), np.sin(angles[i])])
        b = length * offsets[k]
        violated = np.sum(y * (X @ w + b) < 1.0)
        assert_allclose(surface[i, k], -0.5 * (w @ w + b * b) - 1.5 * violated)
    best = np.unravel_index(np.argmax(surface), surface.shape)
    assert abs(angles[best[0]] - np.pi / 4) < 0.6
    assert_allclose(checks.as_angle(np.array([1.0, 1.0, 0.5])), [np.pi / 4, 0.5 / np.sqrt(2)])
    assert_allclose(checks.true_error(np.array([2.0, 2.0]), 0.0), 7.865, atol=1e-3)


def test_ways_of_choosing_are_shares_of_settings():
    choices = study("choices")
    settings = choices.Choices(costs=(1.0, 3.0), sweeps=(50,), betas=(1.0,)).settings
    # Errors on three left-out samples: 0, 1, 2 and 3.
    left_out = np.array([[1, 1, 1], [1, 1, -1], [1, -1, -1], [-1, -1, -1]], dtype=float)
    every = np.ones(4, dtype=bool)
    shares = choices.shares(settings, left_out, every, 1.0)
    np.testing.assert_allclose(shares, np.exp(-np.arange(4.0)) / np.exp(-np.arange(4.0)).sum())
    best = choices.shares(settings, left_out, np.array([False, True, True, True]), np.inf)
    np.testing.assert_array_equal(best, [0, 1, 0, 0])
