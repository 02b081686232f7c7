"""The studies of many classes: their simulators tell the truth, their rivals work, quick runs leave all."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

# Studies are modules of the repository, not of the package.
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def repository_on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    # Children of the studies find the repository by this.
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=":")


def left_behind(folder: Path) -> pd.DataFrame:
    assert (folder / "figure.png").stat().st_size > 10_000
    assert json.loads((folder / "machine.json").read_text())["versions"]["numpy"] == np.__version__
    return pd.read_csv(folder / "results.csv")


# ---------------------------------------------------------------------- shygamp_synthetic


def test_orthogonal_means_have_the_error_asked_for():
    from benchmarks.studies.shygamp_synthetic.data import bayes_error_of, make_orthogonal_means

    # Two means at a right angle are √2 lengths apart: Φ(-length/√2).
    assert bayes_error_of(2.0, 2) == pytest.approx(0.0786496, abs=1e-6)
    data = make_orthogonal_means(400, 50, 6, seed=0)
    products = data.active_means @ data.active_means.T
    assert_allclose(products, np.eye(4) * products[0, 0], atol=1e-12)
    assert np.bincount(data.y).tolist() == [100] * 4
    coef = np.zeros((4, 50))
    coef[:, data.active] = data.active_means
    assert data.linear_error(coef, np.zeros(4)) == pytest.approx(0.1, abs=5e-4)
    assert data.linear_error(0 * coef, np.zeros(4)) == pytest.approx(0.75)
    assert_allclose(data.X[data.y == 2].mean(axis=0)[data.active], data.active_means[2], atol=0.5)


def test_predictions_are_judged_by_what_they_change():
    from benchmarks.studies.shygamp_synthetic.data import make_orthogonal_means

    data = make_orthogonal_means(40, 20, 4, seed=1)

    class Model:
        coef_ = np.zeros((4, 20))
        intercept_ = np.zeros(4)

        def predict(self, X):
            return np.argmax(X[:, data.active] @ data.active_means.T, axis=1)

    # The linear rule of this model knows nothing, its predictions are the best ones.
    assert data.test_error(Model(), 20_000) == pytest.approx(0.1, abs=0.02)


def test_synthetic_study_runs_and_resumes(tmp_path, capsys):
    from benchmarks.studies.shygamp_synthetic.run import main

    quick = ["--quick", "--out", str(tmp_path), "--sweeps", "M"]
    assert main([*quick, "--methods", "foldless"]) == tmp_path
    first = left_behind(tmp_path)
    assert first.n_samples.tolist() == [60, 120]
    assert (first.error < 0.3).all()
    assert (first.cpu_seconds > 0).all()
    main([*quick, "--methods", "foldless"])
    pd.testing.assert_frame_equal(left_behind(tmp_path), first)
    assert "Slopes of log time" in capsys.readouterr().out


def test_genies_are_told_the_weights_that_are_best():
    from benchmarks.studies.shygamp_synthetic.data import make_orthogonal_means
    from benchmarks.studies.shygamp_synthetic.run import GENIES, fit_of

    data = make_orthogonal_means(200, 500, 5, seed=0)
    for method, prior in GENIES.items():
        told = fit_of(method, data)().prior_
        assert isinstance(told, prior)
        assert told.inclusion == 5 / 500
        # Orthogonal means of equal length, spread over the five features.
        length = np.sum(data.active_means**2, axis=1)
        assert told.slab.variance == pytest.approx(length.mean() / 5)


def test_slope_of_linear_growth_is_one():
    from benchmarks.studies.shygamp_synthetic.plot import slope

    rows = pd.DataFrame({"n_samples": [100, 100, 300, 1000], "cpu_seconds": [0.9, 1.1, 3.0, 10.0]})
    assert slope(rows, "n_samples") == pytest.approx(1.0, abs=0.01)
    fixed_cost = rows.assign(cpu_seconds=[3.0, 3.0, 3.0, 10.0])
    assert slope(fixed_cost, "n_samples") < 0.6
    assert slope(fixed_cost, "n_samples", largest=2) == pytest.approx(1.0, abs=1e-6)


def test_a_setting_is_larger_only_within_its_sweep_and_method():
    from benchmarks.studies.shygamp_synthetic.run import is_larger

    stopped = ("M", "300", "10000", "10", "0", "saga L1")
    assert is_larger(("M", "1000", "10000", "10", "1", "saga L1"), stopped)
    assert not is_larger(("M", "100", "10000", "10", "1", "saga L1"), stopped)
    assert not is_larger(("M", "1000", "10000", "10", "1", "adelie"), stopped)
    assert not is_larger(("N", "1000", "10000", "10", "1", "saga L1"), stopped)


# ---------------------------------------------------------------------- many_classes


def test_real_study_runs_on_stand_ins_and_says_what_it_needs(tmp_path, monkeypatch):
    from benchmarks.studies.many_classes.data import NAMES
    from benchmarks.studies.many_classes.run import METHODS, main

    monkeypatch.delenv("FOLDLESS_DATA", raising=False)
    few = ["fgl", "haxby 5"]
    assert main(["--quick", "--out", str(tmp_path), "--only", *few]) == tmp_path
    results = left_behind(tmp_path)
    assert set(zip(results.data, results.method, strict=True)) == {(d, m) for d in few for m in METHODS}
    assert (results.error < 0.5).all()
    assert (results.log_loss < np.log(results.n_classes)).all()
    assert set(few) < set(NAMES)
    with pytest.raises(SystemExit, match="FOLDLESS_DATA"):
        main([])


def test_methods_are_compared_on_the_splits_that_both_saw():
    from benchmarks.studies.many_classes.plot import paired

    rows = [("a", 0, "foldless"), ("a", 0, "ridge"), ("a", 1, "foldless"), ("b", 0, "ridge")]
    results = pd.DataFrame(rows, columns=["data", "split", "method"])
    results = results.assign(error=[0.1, 0.2, 0.9, 0.9], log_loss=1.0, cpu_seconds=1.0)
    (both,) = paired(results, "ridge").to_dict("records")
    assert (both["error_ours"], both["error_rival"]) == (0.1, 0.2)


def test_ridge_and_saga_agree_with_their_own_objectives():
    from benchmarks.studies._multinomial import largest_penalty, ridge_cv, saga_cv

    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = rng.standard_normal((90, 200))
    X[:, :3] += 2.0 * np.eye(3)[y]
    # Just above the largest penalty nothing is left; just below, something is.
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    from sklearn.linear_model import LogisticRegression

    largest = largest_penalty(scaled, y)
    for share, some in ((1.05, False), (0.8, True)):
        options = {"l1_ratio": 1.0, "solver": "saga", "tol": 1e-6, "max_iter": 5000}
        model = LogisticRegression(C=1 / (share * largest), **options)
        assert np.any(np.abs(model.fit(scaled, y).coef_) > 1e-6) == some
    for model in (ridge_cv(X, y, 3, 4), saga_cv(X, y, 3, 4)):
        assert model.coef.shape == (3, 200)
        assert np.mean(model.predict(X) != y) < 0.2
        assert_allclose(np.exp(model.log_proba(X)).sum(axis=1), 1.0)
    kept = np.any(saga_cv(X, y, 3, 4).coef != 0, axis=0)
    assert kept[:3].all()
    assert kept.sum() < 150


# ---------------------------------------------------------------------- text_many_classes


def test_documents_follow_zipf_and_the_true_frequencies_classify_best():
    from benchmarks.studies.text_many_classes.data import class_frequencies, make_documents

    data = make_documents(600, 300, 2000, 4, seed=0)
    assert data.X.shape == (600, 2000)
    assert_allclose(sp.linalg.norm(data.X, axis=1), 1.0)
    used = np.bincount(data.X.indices, minlength=2000)
    assert used[:20].mean() > 10 * used[500:].mean()
    centroids = np.stack([np.asarray(data.X[data.y == k].mean(axis=0)).ravel() for k in range(4)])
    by_centroid = np.mean(np.argmax(data.X_test @ centroids.T, axis=1) != data.y_test)
    assert data.bayes_error < by_centroid < 0.75
    frequency = class_frequencies(np.random.default_rng(0), 2000, 4)
    assert_allclose(frequency.sum(axis=1), 1.0)


def test_text_study_runs(tmp_path, capsys):
    from benchmarks.studies.text_many_classes.run import main

    methods = ["foldless", "saga ridge, C = 10"]
    assert main(["--quick", "--out", str(tmp_path), "--methods", *methods]) == tmp_path
    results = left_behind(tmp_path)
    assert results.method.tolist() == methods
    assert (results.error < 0.5).all()
    assert (results.peak_mb >= results.loaded_mb).all()
    assert "before the fit, MB" in capsys.readouterr().out


def test_equal_accuracy_compares_only_the_accurate():
    from benchmarks.studies.text_many_classes.plot import equal_accuracy

    results = pd.DataFrame(
        [
            ("foldless", 0.20, 10.0),
            ("saga L1, fast and wrong", 0.30, 1.0),
            ("saga L1, slow", 0.20, 40.0),
            ("saga L1, slower", 0.19, 60.0),
        ],
        columns=["method", "error", "cpu_seconds"],
    )
    assert "(saga L1, slow) takes 4.00 times" in equal_accuracy(results)
    assert "No saga" in equal_accuracy(results.iloc[:2])


# ---------------------------------------------------------------------- a process of its own


def _slow() -> dict[str, float]:
    time.sleep(60)
    return {}


def _greedy(n_bytes: int) -> dict[str, float]:
    return {"sum": float(np.ones(n_bytes, dtype=np.uint8)[::4096].sum())}


def _wrong() -> dict[str, float]:
    raise ValueError("a mistake of its own")


def test_what_takes_too_long_or_too_much_is_given_up():
    from benchmarks.studies._isolated import isolated

    assert isolated(_slow, patience=0.2) == {"stopped": "over 0 s"}
    assert isolated(_greedy, 2**30, memory=2**28)["stopped"] == "over 0.2 GB"
    assert isolated(_greedy, 2**26, memory=2**28)["peak_mb"] > 64
    with pytest.raises(RuntimeError, match="a mistake of its own"):
        isolated(_wrong)


# ---------------------------------------------------------------------- large_tables


def test_large_tables_are_what_they_say():
    from benchmarks.studies.large_tables.data import TABLES

    for name, make in TABLES.items():
        table = make(np.random.default_rng(0), 0.05)
        assert np.unique(np.concatenate([table.y, table.y_test])).size == int(name.split()[-2]), name
        assert table.X.shape[1] == table.X_test.shape[1]
        if sp.issparse(table.X):
            assert_allclose(table.X.multiply(table.X).sum(axis=1), 1.0)
            assert table.X.indices.dtype == np.int32  # liblinear takes no others


def test_large_tables_run_quickly(tmp_path):
    from benchmarks.studies.large_tables.run import main

    words = "1500 words a class, 2 classes"
    both = ["--quick", "--out", str(tmp_path), "--tables", words, "--methods", "foldless", "L1"]
    assert main(both) == tmp_path
    results = left_behind(tmp_path)
    assert set(results.method) == {"foldless", "L1"}
    assert results.error.between(0, 1).all()
    ours = results[results.method == "foldless"].iloc[0]
    assert 0 < ours.loo_log_loss < 1
    # What has been measured stays.
    main(both)
    assert left_behind(tmp_path).equals(results)
