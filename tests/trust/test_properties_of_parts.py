"""What holds for any question to the parts of a fit: priors, channels, operators, tests, files."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse

from foldless.channels import FlippedLabels, Hinge, Logistic, Probit, Step
from foldless.evaluation import exact_interval
from foldless.io.files import write_whole
from foldless.io.journal import BadJournal, journal
from foldless.io.rows import row_source
from foldless.io.tsv import read_tsv, write_tsv
from foldless.operators import Dense, RowBlocks, Sparse, Standardized, WithIntercept
from foldless.priors import ElasticNet, Gaussian, GaussianMixture, Laplace, SpikeAndSlab
from foldless.problem import Problem
from foldless.selection.fdr import select
from foldless.selection.marginal import class_sums, q_values
from foldless.solvers import EP, solve
from foldless.special import mills
from reference.dask_matrices import IN_TURN, dask_operator
from trust.properties import Table, property_of, same, tables

PRIORS = st.sampled_from(
    [
        Gaussian(2.0, mean=0.5),
        Laplace(3.0),
        ElasticNet(),
        GaussianMixture(),
        SpikeAndSlab(),
        SpikeAndSlab(Laplace(0.5), 0.02),
    ]
)
CHANNELS = st.sampled_from(
    [Logistic(), Logistic(3.0), Probit(0.2), Hinge(), Step(0.1), FlippedLabels(Logistic(), 0.05)]
)
means = st.floats(-1e6, 1e6)
variances = st.floats(1e-10, 1e8)
probabilities = st.lists(st.floats(0, 1), min_size=1, max_size=30)


# ---------------------------------------------------------------- order, units, labels


@property_of(20)
@given(probabilities, st.floats(0, 1), st.randoms(use_true_random=False))
def test_selection_goes_by_probability_not_by_place(values: list[float], fdr: float, random: Any) -> None:
    order = list(range(len(values)))
    random.shuffle(order)
    assert_array_equal(select(np.array(values)[order], fdr), select(np.array(values), fdr)[order])


@property_of(20)
@given(probabilities, st.floats(0, 1))
def test_what_is_selected_is_surer_than_the_rest_and_within_its_rate(values: list[float], fdr: float) -> None:
    probability = np.array(values)
    kept = select(probability, fdr)
    if kept.any():
        assert (1 - probability[kept]).mean() <= fdr + 1e-12
        assert probability[kept].min() > probability[~kept].max(initial=-1.0)


@property_of(5)
@given(tables())
def test_marginal_tests_move_with_their_columns(table: Table) -> None:
    order = table.rng.permutation(table.X.shape[1])
    one = np.ones(table.y.size)
    before = class_sums(Standardized.fit(Dense(table.X)), table.y, one, 2)
    after = class_sums(Standardized.fit(Dense(table.X[:, order])), table.y, one, 2)
    same(after.p_value, before.p_value[order], 1e-9)


@property_of(5)
@given(tables())
def test_marginal_tests_have_no_units(table: Table) -> None:
    factor = 2.0 ** table.rng.integers(-200, 200, table.X.shape[1])
    one = np.ones(table.y.size)
    before = class_sums(Standardized.fit(Dense(table.X)), table.y, one, 2)
    after = class_sums(Standardized.fit(Dense(table.X * factor)), table.y, one, 2)
    same(after.p_value, before.p_value, 1e-9)


@property_of(5)
@given(tables())
def test_a_standardised_column_has_no_units(table: Table) -> None:
    p = table.X.shape[1]
    factor = 2.0 ** table.rng.integers(-200, 200, p)
    weights = table.rng.standard_normal(p)
    expected = Standardized.fit(Dense(table.X)).scores(weights)
    same(Standardized.fit(Dense(table.X * factor)).scores(weights), expected, 1e-9)


@property_of(20)
@given(CHANNELS, means, variances)
def test_channels_are_the_same_from_the_other_side(channel: Any, mean: float, var: float) -> None:
    here, there = channel.respond(mean, var, 1.0), channel.respond(-mean, var, -1.0)
    same(np.array([there.log_z, -there.slope, there.curvature]), np.array(here), 1e-9)


# ---------------------------------------------------------------- weights


@property_of(5)
@given(tables())
def test_moments_count_rows_by_their_weight(table: Table) -> None:
    times = table.rng.integers(1, 5, table.y.size)
    weighted = Dense(table.X).column_moments(times.astype(float))
    repeated = Dense(np.repeat(table.X, times, axis=0)).column_moments(np.ones(times.sum()))
    same(np.array(weighted), np.array(repeated), 1e-11)


@property_of(5)
@given(PRIORS, st.integers(0, 2**32 - 1))
def test_em_counts_weights_as_repetitions(prior: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    r, tau, times = 2 * rng.standard_normal(20), rng.uniform(0.1, 2.0, 20), rng.integers(1, 4, 20)
    weighted = prior.em_update(r, tau, weight=times.astype(float))
    repeated = prior.em_update(np.repeat(r, times), np.repeat(tau, times))
    grid = np.linspace(-3, 3, 13)
    same(np.array(weighted.tilted(grid, 0.5)), np.array(repeated.tilted(grid, 0.5)), 1e-8)


# ---------------------------------------------------------------- more columns


@property_of(5)
@given(tables(), st.floats(-1e9, 1e9))
def test_a_constant_column_differs_from_nothing(table: Table, value: float) -> None:
    wider = np.column_stack([table.X, np.full(table.y.size, value)])
    sums = class_sums(Standardized.fit(Dense(wider)), table.y, np.ones(table.y.size), 2)
    assert sums.p_value[-1] == 1.0
    assert q_values(sums.p_value)[-1] == 1.0


# ---------------------------------------------------------------- storages and precision


def products(operator: Any, rng: np.random.Generator) -> list[np.ndarray]:
    n, p = operator.shape
    w, slopes = rng.standard_normal(p), rng.standard_normal(n)
    return [operator.scores(w), operator.adjoint(slopes), operator.score_variances(w * w)]


def same_products(one: Any, other: Any, table: Table, tolerance: float = 1e-11) -> None:
    seed = int(table.rng.integers(2**31))
    for a, b in zip(
        products(one, np.random.default_rng(seed)), products(other, np.random.default_rng(seed)), strict=True
    ):
        same(a, b, tolerance * max(1.0, float(np.abs(b).max())))


@property_of(5)
@given(tables(), st.sampled_from([sparse.csr_array, sparse.csc_array, sparse.csr_matrix, sparse.csc_matrix]))
def test_sparse_products_are_dense_ones(table: Table, kind: Any) -> None:
    same_products(Sparse(kind(table.X)), Dense(table.X), table)


@property_of(5)
@given(tables(), st.integers(1, 4000))
def test_products_of_rows_on_disk(table: Table, block_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "X.npy", table.X)
        rows = RowBlocks(row_source(Path(folder) / "X.npy"), block_bytes=block_bytes)
        same_products(rows, Dense(table.X), table)


@property_of(3)
@given(tables(), st.integers(1, 20))
def test_products_by_dask(table: Table, rows: int) -> None:
    same_products(dask_operator(table.X, rows, IN_TURN), Dense(table.X), table)


@property_of(5)
@given(tables())
def test_products_of_small_integers(table: Table) -> None:
    counts = np.clip(np.round(3 * table.X), -128, 127).astype(np.int8)
    same_products(Dense(counts), Dense(counts.astype(float)), table, 1e-6)


@property_of(5)
@given(tables())
def test_products_of_any_layout(table: Table) -> None:
    wide = np.zeros((2 * table.X.shape[0], 3 * table.X.shape[1]))
    wide[::2, ::3] = table.X
    for stored in (np.asfortranarray(table.X), wide[::2, ::3], table.X[::-1][::-1]):
        same_products(WithIntercept(Dense(stored)), WithIntercept(Dense(table.X)), table)


@property_of(20)
@given(PRIORS, st.floats(-1e3, 1e3, width=32), st.floats(2**-10, 2**10, width=32))
def test_priors_in_single_precision(prior: Any, mean: float, var: float) -> None:
    single = prior.tilted(np.array([mean], np.float32), np.array([var], np.float32))
    double = prior.tilted(np.array([mean]), np.array([var]))
    for a, b in zip(single, double, strict=True):
        assert a.dtype == np.float32
        same(a, b, 1e-4 * max(1.0, abs(mean)))


@property_of(20)
@given(CHANNELS, st.floats(-1e3, 1e3, width=32), st.floats(2**-10, 2**10, width=32))
def test_channels_in_single_precision(channel: Any, mean: float, var: float) -> None:
    single = channel.respond(
        np.array([mean], np.float32), np.array([var], np.float32), np.ones(1, np.float32)
    )
    double = channel.respond(np.array([mean]), np.array([var]), np.ones(1))
    for a, b in zip(single, double, strict=True):
        assert a.dtype == np.float32
        same(a, b, 1e-5)


# ---------------------------------------------------------------- evidence and ranges


@property_of(5)
@given(tables())
def test_evidence_falls_with_every_sample(table: Table) -> None:
    """Each label has a probability below one, given those before it."""
    y = 2.0 * table.y - 1.0
    evidence = []
    for n in (table.y.size // 2, table.y.size):
        problem = Problem(Dense(table.X[:n]), y[:n], np.ones(n), Probit(), Gaussian(0.3))
        solution = solve(problem, EP())
        assume(solution.outcome.trustworthy)
        evidence.append(solution.posterior.log_evidence)
    assert evidence[1] < evidence[0] + 1e-6
    assert evidence[0] < 0


@property_of(5)
@given(PRIORS, st.integers(0, 2**32 - 1))
def test_em_climbs(prior: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    r, tau = 3 * rng.standard_normal(40), rng.uniform(0.05, 2.0, 40)
    after = prior.em_update(r, tau)
    before_evidence, evidence = (float(np.sum(each.tilted(r, tau).log_z)) for each in (prior, after))
    assert evidence >= before_evidence - 1e-9 * abs(before_evidence)


@property_of(50)
@given(PRIORS, means, variances)
def test_posteriors_of_weights_have_a_variance(prior: Any, mean: float, var: float) -> None:
    tilted = prior.tilted(np.array([mean]), np.array([var]))
    assert all(np.all(np.isfinite(part)) for part in tilted)
    assert tilted.var[0] > 0
    inclusion = prior.inclusion_probability(np.array([mean]), np.array([var]))[0]
    assert 0 <= inclusion <= 1


@property_of(50)
@given(st.floats(-1e300, 1e300))
def test_the_cut_normal_is_a_distribution(c: float) -> None:
    found = mills(c)
    assert all(np.isfinite(part) for part in found)
    assert found.log_cdf <= 0
    assert found.hazard >= 0
    assert found.mean > 0
    assert 0 < found.var <= 1


@property_of(20)
@given(st.integers(1, 10_000), st.floats(0, 1))
def test_exact_intervals_hold_the_share(n: int, share: float) -> None:
    hits = round(share * n)
    lower, upper = exact_interval(hits, n)
    assert 0 <= lower <= hits / n <= upper <= 1


# ---------------------------------------------------------------- files


@property_of(10)
@given(st.lists(st.binary(max_size=50), max_size=8), st.integers(0, 2**30))
def test_a_journal_that_was_cut_has_its_first_records(records: list[bytes], place: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        with suppress(KeyError), journal(path, {"a": "b"}) as book:
            assert book.read() is None
            for record in records:
                book.append([record])
            raise KeyError  # only what ends badly leaves a journal
        content = path.read_bytes()
        path.write_bytes(content[: place % (len(content) + 1)])
        found = []
        try:
            with journal(path, {"a": "b"}) as book:
                while (record := book.read()) is not None:
                    found.append(record)
        except BadJournal:
            return
        assert found == records[: len(found)]


@property_of(10)
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_a_file_is_the_old_one_or_the_new_one(old: bytes, new: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        write_whole(path, old)
        write_whole(path, new)
        assert path.read_bytes() == new
        assert [each.name for each in Path(folder).iterdir()] == ["file"]


@property_of(20)
@given(st.lists(st.text(max_size=10), max_size=10), st.sampled_from(["\t", ","]))
def test_names_and_numbers_of_a_table_come_back(names: list[str], delimiter: str) -> None:
    # Surrogates have no place in a file; NUL none in a table.
    assume(not any("\0" in name or any("\ud800" <= c <= "\udfff" for c in name) for name in names))
    numbers = np.random.default_rng(len(names)).standard_normal(len(names)) * 1e-17
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table"
        write_tsv(path, [("name", names), ("number", numbers)], delimiter=delimiter)
        _, rows = read_tsv(path, delimiter=delimiter)
    assert [row[0] for row in rows] == names
    assert [float(row[1]) for row in rows] == numbers.tolist()
