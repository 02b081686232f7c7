"""The study of inclusion probabilities: its designs, its measures, and a quick run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit

# Studies are modules of the repository, not of the package.
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def repository_on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def test_quick_run_leaves_everything_and_keeps_what_it_has(tmp_path, capsys):
    from benchmarks.studies.background.run import main

    quick = ["--quick", "--out", str(tmp_path), "--designs", "colon", "Toeplitz 0.9"]
    assert main([*quick, "--trials", "1", "--revision", "old"]) == tmp_path
    first = pd.read_csv(tmp_path / "results.csv")
    assert list(first.design) == ["colon", "Toeplitz 0.9"]
    main([*quick, "--trials", "2", "--revision", "old"])
    second = pd.read_csv(tmp_path / "results.csv")
    assert len(second) == 4
    # A column of zeros alone is read as whole numbers.
    pd.testing.assert_frame_equal(second[:2], first, check_dtype=False)
    main([*quick, "--trials", "1", "--revision", "new"])
    third = pd.read_csv(tmp_path / "results.csv")
    assert list(third.revision) == ["old"] * 4 + ["new"] * 2
    # The same fits, but for the clock.
    assert_array_equal(third.best[4:], first.best)
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    for text in third.true:
        assert sum(map(float, text.split())) == 3
    printed = capsys.readouterr().out
    assert "Against the bars of issue 18" in printed
    assert "foldless (new)" in printed


def test_needs_the_real_matrices(monkeypatch):
    from benchmarks.studies.background.run import main

    monkeypatch.delenv("FOLDLESS_DATA", raising=False)
    with pytest.raises(SystemExit, match="FOLDLESS_DATA"):
        main(["--designs", "colon"])


def test_designs_have_the_correlations_they_are_named_for():
    from benchmarks.studies.background.designs import SIMULATED

    rng = np.random.default_rng(0)

    def neighbours(design):
        X = SIMULATED[design](rng, 4000, 40)
        return np.corrcoef(X.T).diagonal(1)

    for correlation in (0.5, 0.7, 0.9, 0.95):
        assert_allclose(neighbours(f"Toeplitz {correlation:g}"), correlation, atol=0.06)
    assert_allclose(neighbours("equicorrelated 0.5"), 0.5, atol=0.06)
    within_blocks = np.arange(1, 40) % 10 != 0
    assert_allclose(neighbours("blocks 0.9")[within_blocks], 0.9, atol=0.03)
    assert (neighbours("LD genotypes") > 0.4).all()
    counts = SIMULATED["counts"](rng, 50, 30)
    assert_array_equal(counts, np.round(counts))


def test_every_six_runs_have_each_setting_and_both_kinds_of_effects():
    from benchmarks.studies.background.designs import SETTINGS, task

    drawn = [task("10 factors", run, None, 0.2) for run in range(12)]
    for six in (drawn[:6], drawn[6:]):
        assert {(int(one.active.sum()), one.score_sd) for one in six} == set(SETTINGS)
        assert {one.effects for one in six} == {"equal", "normal"}
    assert all(early.effects != late.effects for early, late in zip(drawn[:6], drawn[6:], strict=True))
    again = task("10 factors", 3, None, 0.2)
    assert_array_equal(again.X, drawn[3].X)
    assert_array_equal(again.y, drawn[3].y)


def test_labels_follow_the_true_features_alone():
    from benchmarks.studies.background.designs import task

    drawn = task("Toeplitz 0.5", 1, None, 4.0)  # 600 samples, three features, scores of s.d. 3
    X = (drawn.X - drawn.X.mean(axis=0)) / drawn.X.std(axis=0)
    # 0.2 of the deviance of a fair coin: by far more than three wrong features could explain.
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1e3).fit(X[:, drawn.active], drawn.y)
    scores = model.decision_function(X[:, drawn.active])
    assert scores.std() == pytest.approx(3.0, rel=0.2)
    assert np.mean(np.log(expit(drawn.y * scores))) > 0.8 * np.log(0.5)


def test_bins_selection_and_ranking_are_counted():
    from benchmarks.studies.background.methods import Found
    from benchmarks.studies.background.run import judged

    probability = np.array([0.95, 0.05, 0.55, 1.0, 0.0, 0.1])
    active = np.array([True, False, True, False, True, False])
    row = judged(Found(probability, probability, lambda fdr: probability > 0.6 - fdr), active)
    assert row["count"] == "2 1 0 0 0 1 0 0 0 2"
    assert row["true"] == "1 0 0 0 0 1 0 0 0 1"
    assert row["promised"].split()[-1] == "1.95"
    assert (row["selected_0.1"], row["false_0.1"]) == (3, 1)
    assert row["in_k_best"] == pytest.approx(2 / 3)
    assert row["best"] == "1 0.95+ 0.55+ 0.1 0.05 0+"
    assert "groups" not in row


def test_groups_are_counted_and_null_runs_have_no_truth():
    from benchmarks.studies.background.designs import task
    from benchmarks.studies.background.methods import Found, gain_over_frequencies
    from benchmarks.studies.background.run import judged

    probability = np.linspace(1, 0, 6)
    active = np.array([True, True, False, False, True, False])
    groups = [(np.array([0]), 1.0), (np.array([1, 4]), 0.95), (np.array([2, 3]), 0.9)]
    row = judged(Found(probability, probability, lambda fdr: active, groups=groups, gain=3.0), active)
    assert (row["groups"], row["groups_right"], row["group_sizes"]) == (3, 2, "1 2 2")
    assert (row["in_groups"], row["groups_promised"]) == (3, pytest.approx(2.85))
    drawn = task("10 factors, null", 0, None, 0.2)
    assert not drawn.active.any()
    row = judged(Found(probability, probability, lambda fdr: ~active, groups=[]), np.zeros(6, dtype=bool))
    assert row["groups"] == 0
    assert row["in_k_best"] is None
    y = np.repeat([-1, 1], 20)
    sure = np.where((y > 0)[:, np.newaxis] == np.array([False, True]), 0.9, 0.1)
    sure[::5] = 0.5
    assert gain_over_frequencies(sure, y) > 5
    assert gain_over_frequencies(1 - sure, y) < 0


def test_power_is_taken_at_the_true_false_share():
    from benchmarks.studies.background.plot import power_at

    runs = pd.DataFrame({"best": ["0.9+ 0.8 0.3+", "0.7+ 0.6+ 0.1"], "n_active": [3, 3]})
    # In order: + - + + + -. One in five false is reached at 0.3; one in ten only at the top.
    assert power_at(runs, 0.2) == pytest.approx(4 / 6)
    assert power_at(runs, 0.1) == pytest.approx(1 / 6)
    tied = pd.DataFrame({"best": ["0.9+ 0.9"], "n_active": [1]})
    assert power_at(tied, 0.1) == 0.0


def test_pooled_bins_count_only_full_ones():
    from benchmarks.studies.background.plot import pooled

    zeros = " 0" * 8
    runs = pd.DataFrame(
        {"count": [f"20 5{zeros}"] * 2, "promised": [f"1 1{zeros}"] * 2, "true": [f"2 5{zeros}"] * 2}
    )
    bins = pooled(runs)
    assert_allclose(bins.promised[:2], [0.05, 0.2])
    assert_allclose(bins.gap, [-0.05])  # ten features are too few for a verdict


def test_runs_are_the_units_of_a_gaps_standard_error():
    from benchmarks.studies.background.plot import Bins, pooled

    zeros = " 0" * 9
    # Four features of each of ten runs: true together, or half of each.
    true = [f"{4 * (k % 2)}{zeros}" for k in range(10)]
    together = pd.DataFrame({"count": f"4{zeros}", "promised": f"2{zeros}", "true": true})
    halves = together.assign(true=f"2{zeros}")
    assert_allclose(pooled(together).error[0], np.sqrt(0.25 / 10))
    assert_allclose(pooled(halves).error[0], 0.0)
    full = np.full(3, 40.0)
    bins = Bins(full, np.array([0.1, 0.4, 0.8]), np.array([0.14, 0.3, 0.7]), np.array([0.01, 0.06, 0.04]))
    assert bins.clear_misses == 1  # one is within the bar, another within two standard errors
    # Normal: 5 standard errors, 0.83 and 1.25.
    assert bins.expected_within == pytest.approx(1.0 + 0.5953 + 0.7887, abs=1e-3)


def test_methods_are_compared_on_the_runs_that_all_have():
    from benchmarks.studies.background.plot import _beside

    def row(who, run, selected, false):
        chosen = {
            f"{name}_{rate}": n
            for name, n in (("selected", selected), ("false", false))
            for rate in (0.1, 0.2)
        }
        about = {"design": "counts", "who": who, "run": run, "n_active": 4, "average_precision": 0.5}
        return about | chosen | {"best": "0.9+ 0.1"}

    table = _beside(pd.DataFrame([row("ours", 0, 4, 2), row("ours", 1, 0, 0), row("rival", 0, 1, 0)]))
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    assert [line[1:3] for line in cells] == [["ours", "1"], ["rival", "1"]]
    assert cells[0][3:7] == ["0.500", "0.500", "0.500", "0.500"]
    assert cells[1][3:7] == ["0.250", "0.250", "0.000", "0.000"]
    assert _beside(pd.DataFrame([row("ours", 0, 4, 2)])) == ""


def test_the_active_set_has_the_inclusion_probabilities_of_all_features(capsys):
    from benchmarks.studies.background.active_set import BAR, main

    assert main(["--trials", "9"]) <= BAR
    assert "9 problems" in capsys.readouterr().out


def test_held_weights_that_stay_hardly_matter():
    from benchmarks.studies.background.active_set import SHARE, difference
    from benchmarks.studies.background.designs import task

    # With more of what held weights move left where it was, these were off by .001 or more.
    for design, run in (("equicorrelated 0.5", 15), ("Toeplitz 0.5", 1), ("counts", 5)):
        drawn = task(design, run, None, SHARE)
        assert difference(drawn.X, drawn.y).inclusion < 2e-4


def test_averages_over_parameters_weigh_them_by_evidence():
    from benchmarks.studies.background.parameters import AVERAGES, OTHERS, PLAIN, compared, drawn, fitted

    of = {row["parameters"]: row for row in compared(3, 0)}
    assert len(of) == 1 + len(OTHERS) + len(AVERAGES)
    X, y, active = drawn(3, 0)
    assert of[str(PLAIN)]["n_active"] == active.sum()
    fits = [fitted(X, y, own, None)[:2] for own in AVERAGES["slabs 1, 4"]]
    weight = np.exp(fits[0][1] - np.logaddexp(fits[0][1], fits[1][1]))
    expected = weight * fits[0][0] + (1 - weight) * fits[1][0]
    best = float(of["average: slabs 1, 4"]["best"].split()[0].rstrip("+"))
    # From other starts: to the tolerance of fits.
    assert best == pytest.approx(expected.max(), abs=0.01)
    assert abs(fits[0][0].max() - expected.max()) > 0.02


def test_several_classes_are_compared_at_other_backgrounds(monkeypatch):
    from benchmarks.studies.background import several_classes

    monkeypatch.setattr(several_classes, "DESIGNS", ("ten factors",))
    table = several_classes.main(["--trials", "1", "--backgrounds", "3", "20"])
    assert table.shape == (2, len(several_classes.COLUMNS))
    assert np.isfinite(table).all()
    X, y, matters, n = several_classes.drawn("ten factors", 0)
    assert X.shape == (n + several_classes.N_NEW, matters.size)
    assert matters.size < n < y.size
    # Another background is another model, with other probabilities and another log loss.
    narrow, wide = table[:, several_classes.COLUMNS.index("log loss")]
    assert narrow != wide
