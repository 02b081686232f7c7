"""Fits of Dask arrays and frames: as in memory, with a cluster and without, and when workers are lost."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from foldless import SparseClassifier
from foldless.datasets import make_class_means
from foldless.operators import ClusterLost, RowsLost, operator_from
from reference.dask_matrices import dask_array, threaded_client

da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")

# Another way of cutting rows into blocks changes nothing but rounding.
ROUNDING = 1e-10


@pytest.fixture(scope="module")
def study():
    return make_class_means(n_samples=90, n_features=400, n_active=5, random_state=0)


@pytest.fixture(scope="module")
def in_memory(study):
    return SparseClassifier().fit(study.X, study.y)


@pytest.fixture(params=["cluster", "no cluster"])
def place(request):
    """With the client of a cluster as the current one, or without."""
    if request.param == "no cluster":
        yield request.param
        return
    with threaded_client().as_current():
        yield request.param


@pytest.fixture
def processes():
    """Two workers that are processes and come back when killed."""
    dask = pytest.importorskip("dask")
    # A cluster gives up workers that are not back in time, and a busy machine may take longer than it grants.
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "10 minutes"}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.CRITICAL
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def same(model, other):
    assert_allclose(model.coef_, other.coef_, rtol=ROUNDING, atol=ROUNDING * np.abs(other.coef_).max())
    assert_allclose(model.inclusion_probability_, other.inclusion_probability_, rtol=1e-7, atol=1e-12)
    assert_array_equal(model.get_support(), other.get_support())


def test_an_array_is_fitted_and_predicted_as_in_memory(study, in_memory, place):
    # Chunks of columns are joined, chunks of rows need not be equal.
    X = da.from_array(study.X, chunks=((40, 31, 19), 150))
    model = SparseClassifier().fit(X, da.from_array(study.y, chunks=45))
    same(model, in_memory)
    assert_allclose(model.predict_proba(X), in_memory.predict_proba(study.X), rtol=1e-9)
    assert_allclose(in_memory.predict_proba(X), in_memory.predict_proba(study.X), rtol=1e-12)


def test_a_frame_brings_names_and_labels(study, in_memory, place):
    frame = pd.DataFrame(study.X, columns=[f"gene {j}" for j in range(400)])
    frame["tissue"] = np.where(study.y > 0, "tumour", "healthy")
    table = dd.from_pandas(frame, npartitions=3)
    model = SparseClassifier(always_keep=["gene 7"]).fit(table.drop(columns="tissue"), table["tissue"])
    same(model, SparseClassifier(always_keep=[7]).fit(study.X, study.y))
    assert list(model.classes_) == ["healthy", "tumour"]
    assert list(model.feature_names_in_) == list(frame.columns[:400])
    with pytest.raises(ValueError, match="column 0 is 'gene 399' instead of 'gene 0'"):
        model.predict(table[list(frame.columns[399::-1])])


def test_rows_whose_number_is_not_known_are_counted(study, in_memory, place):
    frame = pd.DataFrame(study.X).assign(label=study.y)
    table = dd.from_pandas(frame, npartitions=4)
    everything = table[table["label"] != 99]  # as many rows as there were, which Dask does not know
    empty = table[table["label"] == 99]
    table = dd.concat([empty, everything], interleave_partitions=True)
    X = table.drop(columns="label").to_dask_array()
    assert np.isnan(X.shape[0])
    assert operator_from(X).shape == (90, 400)
    same(SparseClassifier().fit(X, table["label"]), in_memory)


def test_sparse_chunks_are_not_made_dense(study, place):
    X = study.X * (np.random.default_rng(0).random(study.X.shape) < 0.2)
    expected = SparseClassifier().fit(sparse.csr_array(X), study.y)
    same(SparseClassifier().fit(dask_array(sparse.csr_array(X), 30), study.y), expected)


def test_float32_stays_float32(study, place):
    X = study.X.astype(np.float32)
    model = SparseClassifier().fit(da.from_array(X, chunks=(30, -1)), study.y)
    assert model.coef_.dtype == np.float32
    assert operator_from(dd.from_pandas(pd.DataFrame(X), npartitions=2)).dtype == np.float32
    expected = SparseClassifier().fit(X, study.y)
    assert_allclose(model.coef_, expected.coef_, atol=1e-4 * np.abs(expected.coef_).max())


def test_many_classes_and_exact_covariances(place):
    rng = np.random.default_rng(0)
    common = rng.standard_normal((60, 1))
    X = rng.standard_normal((60, 40)) + 2 * common
    y = np.digitize(X[:, 0] - X[:, 1] + 0.3 * rng.standard_normal(60), [-1, 1])
    for labels in (y, y > 0):
        model = SparseClassifier().fit(da.from_array(X, chunks=(17, -1)), labels)
        assert model.solver_ == "EP"
        expected = SparseClassifier().fit(X, labels)
        assert_allclose(model.coef_, expected.coef_, atol=1e-8 * np.abs(expected.coef_).max())


def test_what_cannot_be_fitted_is_said_before_any_work(study, place):
    y = study.y
    texts = dd.from_pandas(pd.DataFrame({"a": np.arange(90.0), "b": ["x"] * 90}), npartitions=2)
    with pytest.raises(ValueError, match=r"column 'b' of X holds .*Leave it out: X.drop\(columns=\['b'\]\)"):
        SparseClassifier().fit(texts, y)
    with pytest.raises(ValueError, match="samples by features"):
        SparseClassifier().fit(da.zeros(90), y)
    with pytest.raises(TypeError, match="real numbers"):
        SparseClassifier().fit(da.zeros((90, 3), dtype=complex), y)
    with pytest.raises(TypeError, match="Dask array or data frame"):
        SparseClassifier().fit(dd.from_pandas(pd.Series(y), npartitions=2).to_bag(), y)
    X = study.X.copy()
    X[70, 17] = np.nan
    frame = dd.from_pandas(pd.DataFrame(X, columns=[f"gene {j}" for j in range(400)]), npartitions=3)
    with pytest.raises(ValueError, match="column 17, 'gene 17', has no finite mean"):
        SparseClassifier().fit(frame, y)


def test_an_error_in_the_data_keeps_its_name(study, place):
    def spoilt(part):
        raise FileNotFoundError(2, "No such file", "shard-7.npy")

    X = da.from_array(study.X, chunks=(30, -1)).map_blocks(spoilt, meta=np.empty((0, 0)))
    with pytest.raises(FileNotFoundError, match="shard-7"):
        SparseClassifier().fit(X, study.y)


def test_dask_is_imported_by_nobody_who_does_not_use_it():
    code = (
        "import sys, numpy as np; from foldless import SparseClassifier; rng = np.random.default_rng(0);"
        "SparseClassifier().fit(rng.standard_normal((20, 5)), np.arange(20) % 2);"
        "sys.exit(bool({'dask', 'distributed'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=False).returncode == 0


# ------------------------------------------------------------------ what is lost


def at_iteration(number, act):
    seen = []

    def watch(iteration, line):
        seen.append(iteration)
        if len(seen) == number:
            act()

    return watch


def one_worker(client):
    return next(iter(client.run(os.getpid).values()))


def test_a_killed_worker_costs_time_but_no_digit(study, processes):
    X = da.from_array(study.X, chunks=(15, -1))
    undisturbed = SparseClassifier().fit(X, study.y)
    model = SparseClassifier()
    # Between two sweeps: the next one asks a worker that is dead.
    model._on_iteration = at_iteration(2, lambda: os.kill(one_worker(processes), signal.SIGKILL))
    model.fit(X, study.y)
    assert_array_equal(model.coef_, undisturbed.coef_)

    operator = operator_from(X)
    expected = operator.scores(np.ones(400))
    victim = one_worker(processes)

    def killed_while_asked(block, weights):
        if os.getpid() == victim:
            os.kill(victim, signal.SIGKILL)
        return block.scores(weights)

    own = dict.fromkeys(range(6), ())
    answers = operator._blocks.ask(killed_while_asked, (np.ones(400),), own)
    assert_array_equal(np.concatenate(answers), expected)


def test_scattered_rows_that_are_gone_are_an_error(study, processes):
    halves = processes.scatter([study.X[:45], study.X[45:]])
    delayed = pytest.importorskip("dask.delayed").delayed
    X = da.concatenate([da.from_delayed(delayed(half), (45, 400), float) for half in halves])
    holder = processes.who_has(halves[:1])[halves[0].key][0]
    victim = processes.run(os.getpid, workers=[holder])[holder]
    model = SparseClassifier()
    model._on_iteration = at_iteration(2, lambda: os.kill(victim, signal.SIGKILL))
    with pytest.raises(RowsLost, match=r"client\.scatter"):
        model.fit(X, study.y)


def scheduler_and_worker(port_file):
    """Processes of their own, so that the scheduler can be killed without the test."""
    code = (
        "import sys, time\nfrom distributed import LocalCluster\n"
        "if __name__ == '__main__':\n"
        "    cluster = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=':0')\n"
        "    open(sys.argv[1] + '.part', 'w').write(cluster.scheduler_address)\n"
        "    import os; os.replace(sys.argv[1] + '.part', sys.argv[1])\n"
        "    time.sleep(600)\n"
    )
    script = port_file.with_suffix(".py")
    script.write_text(code)
    process = subprocess.Popen(
        [sys.executable, str(script), str(port_file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    for _ in range(600):
        if port_file.exists():
            return process, port_file.read_text()
        assert process.poll() is None
        time.sleep(0.1)
    raise AssertionError("the cluster did not start")


def test_a_fit_that_lost_its_scheduler_goes_on_with_another(study, tmp_path):
    X = da.from_array(study.X, chunks=(30, -1))
    process, address = scheduler_and_worker(tmp_path / "address")
    client = distributed.Client(address, set_as_default=False)
    model = SparseClassifier(checkpoint=tmp_path / "fit.journal")
    try:
        model._on_iteration = at_iteration(4, process.kill)
        with client.as_current(), pytest.raises(ClusterLost, match=r"scheduler.*same checkpoint"):
            model.fit(X, study.y)
    finally:
        process.kill()
        process.wait()
        client.close(timeout=1)
    with threaded_client().as_current():
        undisturbed = SparseClassifier().fit(X, study.y)
        passes = counting(X)
        resumed = SparseClassifier(checkpoint=tmp_path / "fit.journal").fit(passes, study.y)
        from_the_start = counting(X)
        SparseClassifier().fit(from_the_start, study.y)
    assert_array_equal(resumed.coef_, undisturbed.coef_)
    # What had been computed was not computed again.
    assert passes.n_sweeps <= from_the_start.n_sweeps - 3


def counting(X):
    """The operator of X, with a count of its sweeps."""
    operator = operator_from(X)
    sweep = operator.sweep
    operator.n_sweeps = 0

    def counted(*arguments, **options):
        operator.n_sweeps += 1
        return sweep(*arguments, **options)

    operator.sweep = counted
    return operator
