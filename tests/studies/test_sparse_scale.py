"""The benchmark of sparse tables runs at a tiny size, and its text is what it says."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

# Benchmarks are modules of the repository, not of the package.
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def without_celer(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setattr("benchmarks.scale.sparse.has_celer", lambda: False)


def test_iterations_and_fits_are_measured_in_every_form(tmp_path):
    module = importlib.import_module("benchmarks.scale.sparse")
    (tmp_path / "sparse.md").write_text(f"Before.\n{module.common.TABLE_BEGINS}{module.common.TABLE_ENDS}\n")
    assert module.main(["--quick", "--trials", "1", "--out", str(tmp_path)]) == tmp_path
    iterations = pd.read_csv(tmp_path / "sparse_iteration.csv")
    assert "NumPy" in set(iterations.form)
    np.testing.assert_allclose(iterations.ratio, iterations.iteration_ms / iterations.products_ms, rtol=1e-4)
    fits = pd.read_csv(tmp_path / "sparse_fit.csv")
    assert {"foldless (NumPy)", "SGD, L1, grid", "liblinear, L1, CV"} <= set(fits.method)
    assert fits.accuracy.between(0.5, 1.0).all()
    page = (tmp_path / "sparse.md").read_text()
    assert page.startswith("Before.")
    assert "liblinear" in page

    # Rows of rivals stay as they were, to the last digit.
    module.main(["--quick", "--only", "fit", "--ours", "--out", str(tmp_path)])
    again = pd.read_csv(tmp_path / "sparse_fit.csv")
    assert set(again.method) == set(fits.method)
    rivals = [rows[~rows.method.str.startswith("foldless")].reset_index(drop=True) for rows in (fits, again)]
    pd.testing.assert_frame_equal(*rivals)


def test_labels_follow_a_sparse_model_of_documents_of_unit_length():
    module = importlib.import_module("benchmarks.scale.sparse")
    text = module.make_text(500, 300, 400, seed=3)
    lengths = np.sqrt(np.asarray(text.X.multiply(text.X).sum(axis=1)).ravel())
    np.testing.assert_allclose(lengths, 1.0)
    # Scores of standard deviation 3 are right about five times in six.
    assert 0.75 < text.bayes_accuracy < 0.92
    assert 0.2 < text.y.mean() < 0.8
