"""How many threads a fit uses is its user's choice, and not part of the answer."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from foldless import GAMPClassifier, SparseClassifier, kernels
from foldless.datasets import make_class_means
from foldless.kernels import bounded_threads


@pytest.fixture(scope="module")
def study():
    return make_class_means(n_samples=80, n_features=600, n_active=5, random_state=0)


@pytest.mark.parametrize("estimator", [SparseClassifier, GAMPClassifier])
def test_answers_do_not_depend_on_threads_beyond_rounding(study, estimator):
    one, two = (estimator(n_jobs=n).fit(study.X, study.y) for n in (None, 2))
    np.testing.assert_allclose(two.coef_, one.coef_, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("n_jobs", "width"), [(None, 1), (1, 1), (2, 2), (-1, kernels.n_cores())])
def test_blas_is_bounded_while_a_fit_runs(n_jobs, width):
    before = [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]
    with bounded_threads(n_jobs):
        assert {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"} == {width}
    assert [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"] == before


def test_compiled_loops_are_bounded_too():
    pytest.importorskip("numba")
    unbounded = kernels.n_threads()
    with bounded_threads(1):
        assert kernels.n_threads() == 1
    assert kernels.n_threads() == unbounded


@pytest.mark.parametrize("n_jobs", [0, -2, 1.5, True, "two"])
def test_what_is_no_number_of_threads_is_refused(study, n_jobs):
    with pytest.raises(ValueError, match="n_jobs must be"):
        SparseClassifier(n_jobs=n_jobs).fit(study.X, study.y)
