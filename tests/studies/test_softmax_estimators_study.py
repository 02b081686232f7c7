"""The study of the softmax estimators runs, and its default is the most accurate of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).parents[2]


def test_quick_run(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.studies.softmax_estimators.run import main

    assert main(["--quick", "--out", str(tmp_path)]) == tmp_path
    table = pd.read_csv(tmp_path / "results.csv")
    errors = table[table.kind == "error"]
    ours = errors[errors.estimator == "gumbel"]
    # Within the noise of the reference, and one per cent of a standard deviation.
    assert (ours.error < 3 * ours.sampling_error + 0.01).all()
    assert errors[errors.estimator == "taylor"].error.max() > 0.1
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_settings(tmp_path, monkeypatch):
    """A grid that is fine and wide enough is exact, the cavity mean has its whole variance left over."""
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.studies.softmax_estimators import settings

    from foldless.channels import softmax_estimators as estimators

    def no_answer(mean, var, labels):
        return estimators.taylor_response(mean, var, labels)._replace(slope=np.zeros_like(mean))

    for variance in (0.1, 1.0, 100.0):
        assert abs(settings.judged(no_answer, variance)["mse"] - 1.0) < 1e-3
    assert settings.main(["--quick", "--out", str(tmp_path)]) == tmp_path
    table = pd.read_csv(tmp_path / "settings.csv", dtype={"figure": str})
    assert set(table.figure) == {f"3.{k}" for k in range(1, 7)}
    grids = table[table.figure == "3.1"].set_index(["reach", "points"]).excess
    assert grids[5.0, 12] < 1e-6 < 1e-2 < grids[1.0, 12]
    # The package's own constants came from elsewhere, and are no closer to the softmax.
    line = np.random.default_rng(0).uniform(-5, 7, (2000, 3))
    target = 1.0 / (1.0 + np.exp(-line).sum(axis=1))
    own = settings.of_mixture(settings.fitted(2), line) - target
    package = settings.of_mixture(tuple(map(np.array, estimators.MIXTURES[4])), line) - target
    assert np.abs(own).max() <= 1.1 * np.abs(package).max()
    assert (tmp_path / "settings.png").stat().st_size > 10_000
