"""Tests of single columns where samples come in groups or have weights."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import ttest_ind, ttest_rel

from foldless import SparseClassifier
from foldless.operators import Standardized, operator_from
from foldless.selection.marginal import class_sums


def sums_of(X, codes, weight=None, group=None, covariates=()):
    weight = np.ones(len(X)) if weight is None else np.asarray(weight, dtype=float)
    columns = Standardized.fit(operator_from(X), weight)
    return class_sums(columns, codes, weight, int(codes.max()) + 1, covariates, group)


def test_pairs_have_the_paired_t_test():
    rng = np.random.default_rng(0)
    pair, codes = np.repeat(np.arange(12), 2), np.tile([0, 1], 12)
    X = 3.0 * rng.standard_normal((12, 6))[pair] + rng.standard_normal((24, 6))
    expected = ttest_rel(X[codes == 1], X[codes == 0])
    found = sums_of(X, codes, group=pair)
    assert_allclose(found.t[:, 1], expected.statistic, rtol=1e-9)
    assert_allclose(found.p_value, expected.pvalue, rtol=1e-9)


def test_groups_of_one_class_have_the_t_test_of_their_means():
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(14), 5)
    X = rng.standard_normal((14, 6))[group] + rng.standard_normal((70, 6))
    means = X.reshape(14, 5, 6).mean(axis=1)
    expected = ttest_ind(means[7:], means[:7])
    found = sums_of(X, (group >= 7).astype(int), group=group)
    assert_allclose(found.t[:, 1], expected.statistic, rtol=1e-9)
    assert_allclose(found.p_value, expected.pvalue, rtol=1e-9)


@pytest.mark.parametrize("factor", [1.0, 0.01, 30.0])
def test_class_weights_leave_the_t_test_of_welch(factor):
    """Up to its degrees of freedom, which here do not depend on the column."""
    rng = np.random.default_rng(2)
    codes = np.repeat([0, 1], [40, 6])
    X = rng.standard_normal((46, 5))
    expected = ttest_ind(X[codes == 1], X[codes == 0], equal_var=False)
    found = sums_of(X, codes, weight=factor * np.where(codes == 1, 7.0, 1.5))
    assert_allclose(found.t[:, 1], expected.statistic, rtol=1e-9)
    parts = 1 / 40, 1 / 6  # of the variance, were it the same in both
    assert_allclose(found.freedom_of_groups[1], sum(parts) ** 2 / (parts[0] ** 2 / 39 + parts[1] ** 2 / 5))


@pytest.mark.parametrize("covariates", [[], [0]])
def test_single_rows_are_groups_of_one(covariates):
    rng = np.random.default_rng(3)
    codes, weight = np.arange(60) % 3, rng.uniform(0.5, 2.0, 60)
    X = rng.standard_normal((60, 7)) + 50.0
    alone = sums_of(X, codes, weight, None, covariates)
    grouped = sums_of(X, codes, weight, np.arange(60), covariates)
    assert_allclose(alone.t[1:], grouped.t[1:], rtol=1e-6)
    assert_allclose(alone.freedom_of_groups, grouped.freedom_of_groups, rtol=1e-9)


def test_a_row_twice_is_a_row_of_weight_two():
    rng = np.random.default_rng(4)
    codes, twice = np.arange(40) % 2, rng.random(40) < 0.4
    X = rng.standard_normal((40, 5))
    rows = np.concatenate([np.arange(40), np.flatnonzero(twice)])
    weighted, repeated = sums_of(X, codes, 1.0 + twice), sums_of(X[rows], codes[rows], group=rows)
    assert_allclose(weighted.t, repeated.t, rtol=1e-9)


def test_what_cannot_be_tested_has_no_small_p():
    rng = np.random.default_rng(5)
    codes = np.repeat([0, 1], 10)
    X = rng.standard_normal((20, 4)) + 5.0 * codes[:, np.newaxis]
    whole = np.r_[np.arange(10), np.full(10, 10)]  # the second class is one group
    assert np.all(sums_of(X, codes, group=whole).p_value == 1.0)
    X[:, 0] = codes  # a covariate that is the class
    assert np.all(sums_of(X, codes, group=np.arange(20), covariates=[0]).p_value == 1.0)


@pytest.mark.parametrize("kind", ["patients", "centred pairs", "three classes", "class weights"])
def test_columns_of_nothing_have_p_values_that_are_uniform(kind):
    rng = np.random.default_rng(6)
    group, weight = np.repeat(np.arange(24), 4), None
    if kind == "patients":
        codes = (group % 2).astype(int)
    elif kind == "three classes":
        codes = (group % 3).astype(int)
    elif kind == "centred pairs":
        group, codes = np.repeat(np.arange(40), 2), np.tile([0, 1], 40)
    else:
        codes, group = np.repeat([0, 1], [120, 12]), None
        weight = np.where(codes == 1, 5.5, 0.55)
    X = rng.standard_normal((codes.size, 4000))
    if group is not None:
        X += 2.0 * rng.standard_normal((group.max() + 1, 4000))[group]
    if kind == "centred pairs":
        X -= np.repeat(X.reshape(40, 2, -1).mean(axis=1), 2, axis=0)
    p = sums_of(X, codes, weight, group).p_value
    assert 0.035 < np.mean(p < 0.05) < 0.06
    assert np.mean(p < 0.001) < 0.003


def test_a_fit_counts_a_patient_once():
    rng = np.random.default_rng(7)
    patient = np.repeat(np.arange(20), 5)
    X = rng.standard_normal((20, 300))[patient] + rng.standard_normal((100, 300))
    y = np.where(patient % 2, "ill", "well")
    model = SparseClassifier().fit(X, y, groups=patient)
    table = model.feature_table()
    assert table.q.min() > 0.1
    again = model.feature_table(X, y, groups=patient)
    assert_allclose(again[["p", "q", "difference"]], table[["p", "q", "difference"]], rtol=1e-6)
    assert model.feature_table(X, y).q.min() < 0.01
