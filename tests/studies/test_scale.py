"""The scripts of speed and scale run, and write what their tables are made of."""

from __future__ import annotations

import pandas as pd
import pytest
from benchmarks.peers import tuned_models
from benchmarks.scale import cold_start, cost_model, dense, growth, wide


def test_dense_iterations_beside_one_pass(tmp_path):
    dense.main(["--quick", "--out", str(tmp_path)])
    rows = pd.read_csv(tmp_path / "dense.csv")
    assert len(rows) == 6
    assert (rows[["pass_ms", "step_ms", "tune_ms", "extra"]] > 0).all(axis=None)
    assert rows.ratio.to_numpy() == pytest.approx((rows.step_ms + rows.tune_ms) / rows.pass_ms, rel=1e-3)


def test_growth(tmp_path, capsys):
    growth.main(["--quick", "--out", str(tmp_path)])
    rows = pd.read_csv(tmp_path / "growth.csv")
    assert set(rows.grows) == {"features", "samples"}
    assert rows.entries.max() == 10**7
    assert capsys.readouterr().out.count("slope in") == 2


def test_a_fit_where_nothing_can_be_written():
    first, second = cold_start.fits(1, unwritable=True)
    assert first > 0
    assert second > 0


def test_many_features(tmp_path, monkeypatch):
    monkeypatch.setattr(wide, "has_celer", lambda: False)
    wide.main(["--quick", "--out", str(tmp_path)])
    screened, whole = pd.read_csv(tmp_path / "wide.csv").itertuples()
    for row in (screened, whole):
        assert row.found == 10
        assert row.bytes_of_X == 4 * 200 * 20_000
    assert whole.n_whole == whole.n_iter
    assert screened.n_whole < whole.n_whole


def test_tuned_models_beside_rivals(tmp_path):
    tuned_models.main(["--quick", "--only", "60 x 2000", "--out", str(tmp_path)])
    rows = pd.read_csv(tmp_path / "tuned_models.csv")
    assert list(rows.method[:2]) == ["foldless", "liblinear, L1"]
    assert rows.over_foldless[0] == 1.0


def test_the_cost_model_adds_up():
    ones = cost_model.Constants(1.0, 1.0, 1.0, 1.0, 1.0)
    table = cost_model.Table("", samples=10, features=100, entries=1000, is_sparse=False)
    assert cost_model.seconds(table, ones, 1, 1) == 1110
    sent = cost_model.traffic(table, workers=2, blocks=4)
    assert sent == 8 * (100 * 6 + 20)
    latency = 4 * cost_model.LATENCY + sent / cost_model.BANDWIDTH
    assert cost_model.seconds(table, ones, 2, 4) == pytest.approx(500 + 110 + latency)
