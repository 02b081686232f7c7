"""Each study runs at tiny sizes and leaves its table, its figure and the name of its machine."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

# Studies are modules of the repository, not of the package.
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def repository_on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def run_quick(study: str, out: Path, *more: str) -> pd.DataFrame:
    main = importlib.import_module(f"benchmarks.studies.{study}.run").main
    assert main(["--quick", "--out", str(out), *more]) == out
    assert (out / "figure.png").stat().st_size > 10_000
    assert json.loads((out / "machine.json").read_text())["versions"]["numpy"] == np.__version__
    results = pd.read_csv(out / "results.csv")
    assert results.error.between(0, 0.6).all()
    assert (results.seconds > 0).all()
    return results


def test_gamp_sparsity_runs_without_celer(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "celer", None)
    monkeypatch.setattr("benchmarks.studies._rivals.has_celer", lambda: False)
    results = run_quick("gamp_sparsity", tmp_path, "--trials", "1")
    printed = capsys.readouterr().out
    assert "celer is not installed" in printed
    assert "to the fastest" in printed
    assert {"foldless", "foldless (discriminative)", "liblinear L1"} < set(results.method)
    assert {"GAMP, class-mean slabs", "one-bit, s by folds"} < set(results.method)
    ours = results[results.method == "foldless"]
    assert (ours.error < 0.15).all()
    assert (ours.kept_false <= ours.kept).all()


def test_celer_and_liblinear_choose_alike():
    pytest.importorskip("celer")
    from benchmarks.studies._rivals import celer_cv, liblinear_cv

    from foldless.datasets import make_class_means

    data = make_class_means(100, 200, 5, random_state=0)
    by_celer, by_liblinear = celer_cv(data.X, data.y), liblinear_cv(data.X, data.y)
    assert by_celer.penalty == pytest.approx(by_liblinear.penalty)
    correlation = np.corrcoef(by_celer.coef, by_liblinear.coef)[0, 1]
    assert correlation > 0.99  # the same optimum, but for liblinear's penalised intercept and tolerances


def test_gamp_robust_runs(tmp_path, capsys):
    results = run_quick("gamp_robust", tmp_path, "--trials", "1")
    assert "above theory" in capsys.readouterr().out
    robust = results[results.method == "robust logistic"]
    assert (robust.error < robust.theory + 0.03).all()
    assert ((robust.flip_prob - robust.flipped).abs() < 0.1).all()


def test_class_means_theory_has_the_published_values_and_holds():
    from benchmarks.studies.gamp_robust.plot import BAYES_ERROR, class_means_error
    from benchmarks.studies.gamp_robust.run import equal_weights

    theory = [class_means_error(f, 8192, 512, BAYES_ERROR) for f in (0.0, 0.1, 0.2, 0.3, 0.4)]
    np.testing.assert_allclose(theory, [0.052, 0.053, 0.055, 0.062, 0.095], atol=6e-4)

    simulated = [equal_weights(1024, 64, 0.3, seed) for seed in range(20)]
    errors = np.array([data.test_error(data.y @ data.X) for data in simulated])
    noise = errors.std(ddof=1) / np.sqrt(errors.size)
    assert abs(errors.mean() - class_means_error(0.3, 1024, 64, BAYES_ERROR)) < 5 * noise


def test_small_real_runs_on_files_of_the_right_form(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    rng = np.random.default_rng(0)
    # Labels without noise would be separable, which is a slow and unusual case.
    noise = 0.3 * rng.standard_normal(120)
    dense = rng.standard_normal((80, 6))
    np.savez(folder / "sonar.npz", X=dense, y=np.where(dense[:, 0] + noise[:80] > 0, "M", "R"))
    text = sp.random_array((120, 50), density=0.2, format="csr", rng=rng)
    word = text[:, :2].toarray().sum(axis=1) - 0.2 + noise
    np.savez(
        folder / "rcv1_small.npz",
        data=text.data,
        indices=text.indices,
        indptr=text.indptr,
        shape=text.shape,
        y=np.where(word > 0, 1, -1),
        split=np.repeat(["train", "test"], [80, 40]),
    )
    results = run_quick("small_real", tmp_path / "out", "--data", str(folder), "--trials", "1")
    assert set(results.data) == {"sonar", "rcv1_small"}
    best = results[results.data == "sonar"].error.min()
    assert best < 0.3
    assert np.isfinite(results.log_loss).all()


@pytest.mark.parametrize("arguments", [[], ["--data", "nowhere"]], ids=["not given", "not there"])
def test_small_real_says_what_it_needs(arguments, monkeypatch):
    from benchmarks.studies.small_real.run import main

    monkeypatch.delenv("FOLDLESS_DATA", raising=False)
    with pytest.raises(SystemExit, match="FOLDLESS_DATA"):
        main(["--quick", *arguments])


def test_gamp_tables_run_on_files_of_the_right_form(tmp_path):
    from benchmarks.studies.gamp_tables.plot import L1, by_table, results_of
    from benchmarks.studies.gamp_tables.run import PAIRS, main

    rng, folder = np.random.default_rng(0), tmp_path / "data"
    folder.mkdir()
    text = sp.random_array((90, 60), density=0.3, format="csr", rng=rng)
    word = text[:, :2].toarray().sum(axis=1) - 0.3 + 0.2 * rng.standard_normal(90)
    parts = {"data": text.data, "indices": text.indices, "indptr": text.indptr, "shape": text.shape}
    split = np.repeat(["train", "test"], 45)
    np.savez(folder / "rcv1_small.npz", **parts, y=np.where(word > 0, 1, -1), split=split)
    objects = sorted({name for pair in PAIRS for name in pair})
    y, run = np.tile(np.repeat(objects, 8), 3), np.repeat(np.arange(3), 8 * len(objects))
    voxels = rng.standard_normal((y.size, 20)) + 2.0 * (y[:, np.newaxis] == np.resize(objects, 20))
    np.savez(folder / "haxby_slice.npz", X=voxels, y=y, run=run)
    methods = ["max-sum, L1, learnt", "one-bit, by folds", L1]
    main(["--quick", "--out", str(tmp_path), "--data", str(folder), "--methods", *methods])
    found = by_table(results_of(tmp_path), "X")
    assert (found.error < 20).all()
    assert found.consistency.between(20, 100).all()
    assert (found.density < 100).all()
    assert set(results_of(tmp_path).table) == {"VIII", "IX", "X"}


def test_smlr_table2_runs_on_files_of_the_right_form(tmp_path):
    folder, out = tmp_path / "data", tmp_path / "out"
    folder.mkdir()
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 5))
    y = np.where(X[:, 0] + 0.4 * rng.standard_normal(60) > 0, "F", "M")
    np.savez(folder / "crabs.npz", X=X, y=y, split=np.repeat(["train", "test"], 30))
    wide = rng.standard_normal((60, 40))
    label = np.where(wide[:, 0] + 0.4 * rng.standard_normal(60) > 0, "ALL", "AML")
    np.savez(folder / "leukemia.npz", X=wide, y=label, split=np.repeat(["train", "test"], 30))
    main = importlib.import_module("benchmarks.studies.smlr_table2.run").main
    main(["--quick", "--out", str(out), "--data", str(folder), "--only", "crabs", "leukemia"])
    assert (out / "figure.png").stat().st_size > 10_000
    results = pd.read_csv(out / "results.csv")
    assert set(results.method) >= {"SMLR", "RMLR", "RVM", "SVM", "SMLR features"}
    assert (results.wrong <= results.tested / 2).all()
    assert (results.seconds > 0).all()


def test_smlr_fits_as_printed_arrive_if_they_are_not_ended(tmp_path, monkeypatch):
    pytest.importorskip("numba")
    warm_starts = importlib.import_module("benchmarks.studies.smlr_table2.warm_starts")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((48, 6))
    code = np.argmax(X[:, :3] + 0.3 * rng.standard_normal((48, 3)), axis=1)
    np.savez(tmp_path / "yeast.npz", X=X, y=np.array(["a", "b", "c"])[code])
    main = warm_starts.main
    main(["--quick", "--out", str(tmp_path), "--data", str(tmp_path), "--only", "yeast"])
    results = pd.read_csv(tmp_path / "warm_starts.csv")
    assert set(results.way) == set(warm_starts.WAYS)
    # Ended early, the same algorithm keeps more than the optimum has; to the end, it finds the optimum.
    kept = results.groupby("way").kept.sum()
    assert kept["from zero"] > kept["optimum"]
    monkeypatch.setattr(warm_starts, "TOL", 1e-9)
    columns, y = np.asfortranarray(X @ X.T), code
    arrived = warm_starts.as_printed(columns, y, 2.0, np.zeros((48, 2)))
    np.testing.assert_allclose(
        columns @ arrived.weights, columns @ warm_starts.optimum(columns, y, 2.0).weights, atol=2e-2
    )


def test_smlr_features_reports_every_way(tmp_path):
    rng = np.random.default_rng(0)
    X = np.exp(rng.standard_normal((60, 40)) + 6)
    label = np.where(np.log(X[:, 0]) + 0.4 * rng.standard_normal(60) > 6, "ALL", "AML")
    np.savez(tmp_path / "leukemia.npz", X=X, y=label, split=np.repeat(["train", "test"], 30))
    main = importlib.import_module("benchmarks.studies.smlr_table2.features").main
    main(["--quick", "--out", str(tmp_path), "--data", str(tmp_path)])
    results = pd.read_csv(tmp_path / "features.csv")
    assert len(results) == 6
    assert (results.wrong < results.tested / 3).all()


def test_smlr_checks_run_and_bounds_hold(tmp_path):
    rng = np.random.default_rng(0)
    wide = rng.standard_normal((60, 40))
    label = np.where(wide[:, 0] + 0.4 * rng.standard_normal(60) > 0, "ALL", "AML")
    for name in ("colon", "leukemia"):
        np.savez(tmp_path / f"{name}.npz", X=wide, y=label, split=np.repeat(["train", "test"], 30))
    main = importlib.import_module("benchmarks.studies.smlr_table2.checks").main
    main(["--quick", "--out", str(tmp_path), "--data", str(tmp_path), "--part", "loo", "bounds"])
    assert (tmp_path / "bounds.png").stat().st_size > 5_000
    loo = pd.read_csv(tmp_path / "check_loo.csv")
    assert (loo.difference.abs() < 0.02).all()
    held = pd.read_csv(tmp_path / "check_bounds.csv")
    assert (held[held.what.str.contains("held of 5")].ours == 5).all()


def test_honesty_runs_and_goes_on_where_it_ended(tmp_path, capsys):
    from benchmarks.studies.honesty.designs import DESIGNS, drawn
    from benchmarks.studies.honesty.run import main

    def run(designs):
        assert main(["--quick", "--trials", "1", "--out", str(tmp_path), "--designs", *designs]) == tmp_path
        return pd.read_csv(tmp_path / "results.csv")

    designs = [
        "independent, logistic",
        "null, factors",
        "four classes",
        "groups",
        "weights, balanced",
        "10:90",
    ]
    first = run(designs[:3])
    assert set(first.design) == set(designs[:3])
    results = run(designs)
    assert len(results) == len(designs)
    assert results[results.design.isin(designs[:3])].seconds.equals(first.seconds)
    assert "null runs" in capsys.readouterr().out
    assert (tmp_path / "README.md").read_text().count("\n| ") > len(designs)
    for name in ("loo_error", "test_error", "p_value"):
        assert results[name].between(0, 1).all()
    for name in DESIGNS:
        of, again = drawn(name, 0, 60, 70), drawn(name, 0, 60, 70)
        assert np.array_equal(of.X, again.X)
        assert of.X.shape == (60, 70)
        assert set(np.unique(of.y)) <= set(range(6)), "designs have at most six classes"


def test_leave_one_out_is_compared_with_refits_of_the_same_samples(tmp_path, capsys):
    from benchmarks.studies.honesty.paired import REFITS, main

    designs = ["null, independent", "four classes"]
    main(["--quick", "--out", str(tmp_path), "--designs", *designs])
    rows = pd.read_csv(tmp_path / "paired.csv")
    assert list(rows.design) == designs
    assert (rows.refits == REFITS).all()
    assert (rows.loo_log_loss - rows.refit_log_loss).abs().max() < 0.3
    assert "all designs" in capsys.readouterr().out


def test_honesty_of_noise_with_factors_at_few_columns():
    """Where informed ridges once found labels in noise: an error of 0.07 left out, of 0.49 in truth."""
    from benchmarks.studies.honesty.run import QUICK, measured

    found = [measured("null, factors", run, QUICK) for run in range(6)]
    bias = np.mean([one["loo_error"] - one["test_error"] for one in found])
    assert bias > -0.1
    assert np.mean([one["loo_log_loss"] - one["test_log_loss"] for one in found]) > -0.1
