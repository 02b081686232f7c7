"""Messages from samples to weights: equal to the linear programme, and to enumeration where messages dent."""

import itertools
from importlib.util import find_spec

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import linprog

from foldless.solvers.knapsack.factors import (
    CompiledFactors,
    ExactFactors,
    LinearFactors,
    Piecewise,
    increments,
)
from foldless.solvers.knapsack.histograms import grid

TOLERANCE = 1e-10
SHAPES = ("concave", "bimodal", "rough")
N_CASES = 80  # of each shape, every one with a whole message to a weight

linear_forms = pytest.mark.parametrize("form", ["numpy", "compiled"])


def linear_factors(form):
    if form == "numpy":
        return LinearFactors
    pytest.importorskip("numba")
    return CompiledFactors


def random_case(shape, seed):
    """Signed features of one sample, points, a cost, and a message from each of up to four weights."""
    rng = np.random.default_rng([seed, SHAPES.index(shape)])
    n_weights, n_bins = int(rng.integers(2, 5)), 2 * int(rng.integers(1, 4)) + 1
    points = grid(n_weights, n_bins, 2.0)
    rows = rng.normal(size=(1, n_weights))
    if seed % 5 == 0:
        rows[0, rng.integers(n_weights)] = 0.0  # a feature that says nothing
    centre, width = rng.normal(size=(n_weights, 1)), rng.uniform(0.3, 2.0, size=(n_weights, 1))
    if shape == "concave":
        inputs = -np.square(points - centre) / width - rng.uniform(0, 1, size=(n_weights, 1)) * np.abs(points)
    elif shape == "bimodal":
        apart = rng.uniform(0.5, 2.0, size=(n_weights, 1))
        inputs = np.logaddexp(-np.square(points - apart) / width, -np.square(points + apart) / width)
        inputs = 3.0 * inputs + 0.3 * rng.normal(size=(n_weights, 1)) * points
    else:
        inputs = rng.normal(size=points.shape)
    return rows, points, float(rng.uniform(0.5, 6.0)), inputs


def sent(factors, inputs):
    for i, message in enumerate(inputs):
        factors.receive(i, message[np.newaxis])
    return np.array([factors.send(i)[0] for i in range(len(inputs))]), float(factors.best()[0])


def by_linear_programme(rows, points, inputs, need, others):
    """max Σ_j Σ_k α_jk U_jk with Σ_k α_jk = 1, Σ a_j w_jk α_jk ≥ need, 0 ≤ α; -∞ if that cannot be."""
    n_bins = points.shape[1]
    profit = np.concatenate([inputs[j] for j in others])
    share = np.concatenate([rows[0, j] * points[j] for j in others])
    one_each = np.kron(np.eye(len(others)), np.ones(n_bins))
    solved = linprog(-profit, A_ub=-share[np.newaxis], b_ub=[-need], A_eq=one_each, b_eq=np.ones(len(others)))
    return -solved.fun if solved.status == 0 else -np.inf


def by_enumeration(rows, points, inputs, need, others):
    """The same where messages are lines between their points: all but one weight sit at a point.

    With the others at points, the one left out needs at least a given share of the score; its best is a point
    beyond that share, or just that share, between two points.
    """
    best = -np.inf
    for free in others:
        share, value = rows[0, free] * points[free], inputs[free]
        if share[0] > share[-1]:
            share, value = share[::-1], value[::-1]
        rest = [j for j in others if j != free]
        for choice in itertools.product(range(points.shape[1]), repeat=len(rest)):
            lacks = need - sum(rows[0, j] * points[j, k] for j, k in zip(rest, choice, strict=True))
            if lacks > share[-1]:
                continue
            own = [*value[share >= lacks]]
            if lacks >= share[0]:
                own.append(np.interp(lacks, share, value))
            best = max(best, max(own) + sum(inputs[j, k] for j, k in zip(rest, choice, strict=True)))
    return best


def expected(solve, rows, points, cost, inputs, weight):
    """The message to a weight at every bin, and the best value of the factor, by another way of solving."""
    everyone = list(range(len(points)))
    others = [j for j in everyone if j != weight]
    most = sum(inputs[j].max() for j in others)
    needs = 1.0 - rows[0, weight] * points[weight]
    message = [max(solve(rows, points, inputs, need, others) - most, -cost) for need in needs]
    best = max(solve(rows, points, inputs, 1.0, everyone), most + inputs[weight].max() - cost)
    return np.array(message), best


@pytest.mark.parametrize("shape", SHAPES)
def test_linear_messages_are_the_linear_programmes(shape):
    forms = [LinearFactors, *([CompiledFactors] if find_spec("numba") else [])]
    at_the_floor = above_the_floor = dented = 0
    for seed in range(N_CASES):
        rows, points, cost, inputs = random_case(shape, seed)
        weight = seed % len(points)
        message, value = expected(by_linear_programme, rows, points, cost, inputs, weight)
        for form in forms:
            found, best = sent(form(rows, points, cost), inputs)
            assert_allclose(found[weight], message, rtol=0, atol=TOLERANCE)
            assert_allclose(best, value, rtol=0, atol=TOLERANCE)
        at_the_floor += np.any(message == -cost)
        above_the_floor += np.any((message > -cost) & (message < 0))
        dented += np.any(np.diff(inputs, 2, axis=1) > 1e-9)
    assert min(at_the_floor, above_the_floor) > N_CASES // 10
    assert (dented > 0) == (shape != "concave")


@pytest.mark.parametrize("shape", SHAPES)
def test_exact_messages_are_those_of_enumeration(shape):
    below_the_hull = 0
    for seed in range(N_CASES):
        rows, points, cost, inputs = random_case(shape, seed)
        weight = seed % len(points)
        found, best = sent(ExactFactors(rows, points, cost), inputs)
        message, value = expected(by_enumeration, rows, points, cost, inputs, weight)
        assert_allclose(found[weight], message, rtol=0, atol=TOLERANCE)
        assert_allclose(best, value, rtol=0, atol=TOLERANCE)
        hull, _ = sent(LinearFactors(rows, points, cost), inputs)
        assert np.all(found <= hull + TOLERANCE)
        below_the_hull += np.any(found < hull - 1e-6)
    # Concave messages have no dents: there the linear problem is exact.
    assert (below_the_hull > 0) == (shape != "concave")


def test_the_two_case_rule_of_the_paper_is_incomplete_and_ours_is_not():
    """p1 = w + 0.2 w², p2 = 1 - (w - 1)², w1 + w2 ≤ 0.8: the optimum is inside both, at (0.375, 0.425)."""
    w = np.linspace(0.0, 1.0, 81)  # in steps of 0.0125, so that the optimum is a point
    profits = (w + 0.2 * w**2, 1.0 - np.square(w - 1.0))
    # At most 0.8 of weight is at least -0.8 of score; values relative to the largest, as messages are.
    functions = [Piecewise.of_message(-w, p - p.max(), np.inf) for p in profits]
    together = functions[0].combined(functions[1], np.inf)
    most = sum(p.max() for p in profits)
    assert_allclose(together.at(np.array([-0.8])) + most, 1.0725, rtol=0, atol=1e-4)
    ends = max(profits[0][0] + profits[1][64], profits[0][64] + profits[1][0])
    assert ends < 0.97


@linear_forms
def test_a_message_can_be_replaced_again_and_again(form):
    """The kept list of moves is that of the last messages, whatever came before and in whatever order."""
    rng = np.random.default_rng(5)
    rows, points = rng.normal(size=(6, 4)), grid(4, 16, 3.0)
    often, once = (linear_factors(form)(rows, points, 4.0) for _ in range(2))
    inputs = rng.normal(size=(30, 6, points.shape[1])).cumsum(axis=2)
    for n, message in enumerate(inputs):
        often.receive(n % 4, message)
    for i in (2, 0, 3, 1):
        once.receive(i, inputs[i + 24 if i >= 2 else i + 28])
    for i in range(4):
        assert_allclose(often.send(i), once.send(i), rtol=0, atol=1e-12)
    assert_allclose(often.best(), once.best(), rtol=0, atol=1e-12)


def test_compiled_and_numpy_moves_agree_on_many_samples():
    pytest.importorskip("numba")
    rng = np.random.default_rng(7)
    rows, points = rng.normal(size=(50, 6)), grid(6, 64, 4.0)
    by_loops, by_numpy = CompiledFactors(rows, points, 3.0), LinearFactors(rows, points, 3.0)
    for i in range(6):
        message = -np.square(points[i] - rng.normal(size=(50, 1))) + 0.2 * rng.normal(
            size=(50, points.shape[1])
        )
        by_loops.receive(i, message)
        by_numpy.receive(i, message)
    for i in range(6):
        assert_allclose(by_loops.send(i), by_numpy.send(i), rtol=0, atol=1e-12)
    assert_allclose(by_loops.best(), by_numpy.best(), rtol=0, atol=1e-12)


def test_moves_lie_on_the_hull():
    """The message 0, 2, 1, 3, -3 at shares 0 to 4 of the score: one move is left, from the maximum down."""
    moves = increments(
        np.array([1.0, -1.0]), np.arange(5.0), np.array([[0.0, 2.0, 1.0, 3.0, -3.0]] * 2), 100.0
    )
    assert_allclose(moves.start, [3.0, -3.0])
    assert_allclose(moves.peak, 3.0)
    assert_allclose(moves.width[0], [0, 0, 0, 1])
    assert_allclose(moves.slope[0, 3], -6.0)
    # Read the other way round, the way leads from 3 down to 2, over the dent at 1, and on to 0.
    used = moves.width[1] > 0
    assert_allclose(moves.width[1, used].sum(), 3.0)
    assert_allclose(moves.slope[1, used], [-0.5, -0.5, -2.0])


def test_only_corners_that_turn_nothing_are_left_out():
    # Pieces of unequal widths: two of one slope, two of one fall over unlike slopes.
    score, value = np.array([0.0, 1.0, 3.0, 3.5, 5.5]), np.array([0.0, -1.0, -3.0, -5.0, -5.5])
    found = Piecewise(score, value).simplified(10.0)
    assert_allclose(found.score, [0.0, 3.0, 3.5, 5.5])
    assert_allclose(found.value, [0.0, -3.0, -5.0, -5.5])
    # Below the cost nothing counts, beyond the piece that leads there.
    assert_allclose(Piecewise(score, value).simplified(2.0).score, [0.0, 3.0])
