"""Fits that are killed and resumed: the same bytes, whatever ends them, whatever is fitted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import killed_fit
import numpy as np
import pytest
from killed_fit import BLOCK_BYTES, fit_from_disk
from scipy import sparse
from sklearn.base import clone

import foldless
from foldless import GAMPClassifier, SparseClassifier, open_rows
from foldless.datasets import make_class_means, make_logistic
from foldless.io.journal import BadJournal
from foldless.operators import Dense


@pytest.fixture(scope="module")
def study() -> Any:
    return make_class_means(n_samples=80, n_features=500, n_active=5, random_state=0)


class Interrupt:
    """Ends a fit after some iterations, as Ctrl-C does or as an error does."""

    def __init__(self, after: int, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.left, self.error = after, error

    def __call__(self, iteration: int, line: Any) -> None:
        self.left -= 1
        if self.left == 0:
            raise self.error


def saved(model: Any, folder: Path) -> bytes:
    return model.save(folder / "model.safetensors").read_bytes()


def interrupted(model: Any, after: int, X: Any, y: Any, error: type[BaseException], **options: Any) -> Any:
    model._on_iteration = Interrupt(after, error)
    with pytest.raises(error):
        model.fit(X, y, **options)
    del model._on_iteration
    return model


CASES = {
    "dense": (SparseClassifier, lambda X: X),
    "float32": (SparseClassifier, lambda X: X.astype(np.float32)),
    "csr": (GAMPClassifier, lambda X: sparse.csr_array(X * (np.abs(X) > 1))),
    "operator": (GAMPClassifier, Dense),
}


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
@pytest.mark.parametrize("case", CASES)
def test_a_fit_that_ends_early_is_resumed_to_the_same_bytes(
    case: str, error: type[BaseException], study: Any, tmp_path: Path
) -> None:
    kind, stored = CASES[case]
    X, path = stored(study.X), tmp_path / "fit.journal"
    whole = saved(kind().fit(X, study.y), tmp_path)
    for after in (1, 7, 20):
        interrupted(kind(checkpoint=path), after, X, study.y, error)
        assert path.exists()
        resumed = kind(checkpoint=path).fit(X, study.y)
        assert not path.exists()
        assert saved(resumed, tmp_path) == whole


def test_correlated_columns_groups_and_many_classes_are_resumed_too(study: Any, tmp_path: Path) -> None:
    path = tmp_path / "fit.journal"
    correlated = make_logistic(60, 120, 4, size=2.0, correlation=0.9, random_state=0)
    three = np.where(study.X[:, 0] > 0.5, 2, study.y)
    groups = np.arange(60) // 4
    for X, y, options in (
        (correlated.X, correlated.y, {}),
        (correlated.X, correlated.y, {"groups": groups}),
        (study.X, three, {}),
    ):
        model = SparseClassifier().fit(X, y, **options)
        assert model.solver_ == ("EP" if X is correlated.X else "GAMP")
        whole = saved(model, tmp_path)
        for after in (2, 9):
            interrupted(SparseClassifier(checkpoint=path), after, X, y, ZeroDivisionError, **options)
            assert saved(SparseClassifier(checkpoint=path).fit(X, y, **options), tmp_path) == whole


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_process_that_is_killed_in_mid_sweep_loses_one_sweep_and_no_bit(study: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", study.X.astype(np.float32))
    np.save(tmp_path / "y.npy", study.y)
    model, journal = tmp_path / "model.safetensors", tmp_path / "fit.journal"
    blocks = -(-study.X.shape[0] // (BLOCK_BYTES // (4 * study.X.shape[1])))
    n_reads, whole = fit_from_disk(tmp_path), model.read_bytes()
    assert n_reads > 10 * blocks
    for deadly_read in np.random.default_rng(0).integers(2, n_reads, 3).tolist():
        model.unlink()
        command = [sys.executable, killed_fit.__file__, str(tmp_path), str(deadly_read)]
        killed = subprocess.run(command, capture_output=True, text=True)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert journal.exists()
        assert not model.exists()
        read_again = fit_from_disk(tmp_path)
        assert model.read_bytes() == whole
        # What was read before the kill is not read again, but for the pass that was under way.
        assert n_reads - deadly_read <= read_again <= n_reads - deadly_read + blocks
        assert not journal.exists()


def test_a_checkpoint_of_another_fit_is_refused_with_what_differs(study: Any, tmp_path: Path) -> None:
    path = tmp_path / "fit.journal"
    X, y, weight = study.X, study.y, np.ones(80)
    interrupted(SparseClassifier(checkpoint=path), 3, X, y, ZeroDivisionError)
    before = path.read_bytes()
    other_X, other_y, other_weight = X.copy(), y.copy(), weight.copy()
    other_X[41, 250] += 1e-9
    other_y[7] *= -1
    other_weight[3] = 2.0

    def refused(model: Any, difference: str, X: Any = X, y: Any = y, weight: Any = weight) -> None:
        with pytest.raises(BadJournal, match=difference):
            model.fit(X, y, weight)
        assert path.read_bytes() == before

    model = SparseClassifier(checkpoint=path)
    refused(SparseClassifier(checkpoint=path, tol=1e-3), "the parameter tol was 0.0001 and is 0.001")
    refused(GAMPClassifier(checkpoint=path), "the estimator was SparseClassifier and is GAMPClassifier")
    refused(model, "X was entries of checksum", X=other_X)
    refused(model, r"the shape of X was \(80, 500\) and is \(80, 499\)", X=X[:, 1:])
    refused(model, "the type of X was float64 and is float32", X=X.astype(np.float32))
    refused(model, "the checksum of labels was", y=other_y)
    refused(model, "the checksum of labels was", y=np.where(y > 0, "b", "a"))
    refused(model, "the checksum of sample weights was", weight=other_weight)
    # How much is printed, and what the file is called, do not matter.
    elsewhere = path.rename(tmp_path / "moved.journal")
    resumed = SparseClassifier(checkpoint=str(elsewhere), verbose=0).fit(X, y, weight)
    np.testing.assert_array_equal(resumed.coef_, SparseClassifier().fit(X, y, weight).coef_)


def test_a_file_that_was_written_since_is_another_file(study: Any, tmp_path: Path) -> None:
    path = tmp_path / "fit.journal"
    np.save(tmp_path / "X.npy", study.X)
    interrupted(
        SparseClassifier(checkpoint=path), 3, open_rows(tmp_path / "X.npy"), study.y, ZeroDivisionError
    )
    os.utime(tmp_path / "X.npy", ns=(0, 0))
    with pytest.raises(BadJournal, match=r"X was .* bytes of \d+"):
        SparseClassifier(checkpoint=path).fit(open_rows(tmp_path / "X.npy"), study.y)


def test_other_blocks_are_another_fit_since_their_sums_round_otherwise(study: Any, tmp_path: Path) -> None:
    path = tmp_path / "fit.journal"
    np.save(tmp_path / "X.npy", study.X)
    rows, others = (open_rows(tmp_path / "X.npy", block_bytes=n) for n in (40_000, 50_000))
    interrupted(SparseClassifier(checkpoint=path), 3, rows, study.y, ZeroDivisionError)
    with pytest.raises(BadJournal, match=r"in blocks of 40000 bytes and is .* in blocks of 50000 bytes"):
        SparseClassifier(checkpoint=path).fit(others, study.y)


def test_a_place_that_cannot_be_written_is_said_before_any_work(study: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        SparseClassifier(checkpoint=tmp_path / "nowhere" / "fit.journal").fit(study.X, study.y)
    with pytest.raises(IsADirectoryError):
        SparseClassifier(checkpoint=tmp_path).fit(study.X, study.y)


def test_a_checkpoint_is_a_parameter_and_no_part_of_a_model(study: Any, tmp_path: Path) -> None:
    model = SparseClassifier(checkpoint=tmp_path / "fit.journal")
    assert clone(model).checkpoint == tmp_path / "fit.journal"
    model.fit(study.X, study.y)
    loaded = foldless.load(model.save(tmp_path / "model.safetensors"))
    assert loaded.checkpoint is None
    np.testing.assert_array_equal(loaded.predict_proba(study.X), model.predict_proba(study.X))
