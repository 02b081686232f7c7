"""Screened runs: the answers of whole ones, by way of few visits to most weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import expit

from foldless import GAMPClassifier, open_rows
from foldless.channels import Logistic, Multinomial
from foldless.operators import Dense, Standardized, WithIntercept
from foldless.operators.partly_visited import PartlyVisited
from foldless.priors import Blocks, Gaussian, Pruned, Ridged, SpikeAndSlab
from foldless.priors.wrappers import WithScreenedOut
from foldless.problem import Outcome, Problem
from foldless.solvers import GAMP, Stopping, screening, solve
from foldless.solvers.screening import Screening, _Gathered, _small_problem, solve_screened
from foldless.tuning.em import EM, tunable_names
from foldless.tuning.plan import plan, requested
from foldless.tuning.table import Facts, assembled
from reference.planned import table_of

# As for millions of features, but that a few thousand are the many, of which a larger share is few.
SCREENING = Screening(least_weights=1000, largest_share=0.3, largest_length=40)
NEVER = Screening(least_weights=10**12)


class Screened(GAMPClassifier):
    """GAMPClassifier, told when to screen."""

    screening = SCREENING

    def _choices(self, n_classes: int) -> Any:
        return replace(super()._choices(n_classes), screening=self.screening)


class Whole(Screened):
    screening = NEVER


def study(
    n_samples: int = 120, n_features: int = 4000, rho: float = 0.0, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Six features that decide, neighbours correlated by rho."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_samples, n_features))
    for j in range(1, n_features if rho else 0):
        X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho**2) * X[:, j]
    active = rng.choice(n_features, 6, replace=False)
    scores = X[:, active] @ (2.0 * np.array([1, -1, 1, -1, 1, -1]))
    return X, np.where(rng.random(n_samples) < expit(scores), 1, -1)


def visited(model: Any) -> list[int]:
    return [line.visited for line in model.history_.iterations if line.visited is not None]


def distance(model: Any, other: Any) -> float:
    """Between weights, as a share of their size."""
    difference = model.coef_ - other.coef_
    return float(np.linalg.norm(difference) / np.linalg.norm(other.coef_))


def same_answer(model: Any, other: Any, within: float) -> None:
    assert distance(model, other) < within
    assert_array_equal(model.get_support(), other.get_support())
    assert_allclose(model.inclusion_probability_, other.inclusion_probability_, atol=within)
    assert model.loo_log_loss_ == pytest.approx(other.loo_log_loss_, abs=within)
    assert model.prior_.inclusion == pytest.approx(other.prior_.inclusion, rel=10 * within)


# ---------------------------------------------------------------- the same answer


@pytest.mark.parametrize("generative_weight", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("rho", [0.0, 0.3])
def test_screened_fits_are_those_of_whole_iterations(rho: float, generative_weight: float) -> None:
    X, y = study(rho=rho)
    parameters: dict[str, Any] = {"channel": "robust-logistic", "generative_weight": generative_weight}
    model = Screened(**parameters, tol=1e-6).fit(X, y)
    other = Whole(**parameters, tol=1e-8, max_iter=5000).fit(X, y)
    assert model.outcome_ is Outcome.CONVERGED
    same_answer(model, other, 1e-4)
    # Most weights were left out, most of the time.
    assert max(visited(model)) < X.shape[1] * SCREENING.largest_share
    assert len(visited(model)) > 0.6 * len(model.history_)
    assert visited(other) == []


def test_a_weight_chosen_by_leave_one_out() -> None:
    X, y = study(n_samples=150)
    model = Screened(tol=1e-5).fit(X, y)
    other = Whole(tol=1e-5).fit(X, y)
    assert model.generative_weight_ == other.generative_weight_
    same_answer(model, other, 1e-3)
    assert visited(model)


class Noted(Screening):
    """Remembers whom it let in."""

    let_in: ClassVar[list[np.ndarray]] = []

    def may_move(self, problem: Problem, state: Any) -> Any:
        columns = super().may_move(problem, state)
        self.let_in.append(columns)
        return columns


def test_a_feature_that_only_shows_beside_another_comes_in_late() -> None:
    # Class means do not differ in the late one: what it adds to the score, its correlation takes away.
    rng = np.random.default_rng(1)
    X = rng.standard_normal((400, 3000))
    late = 7
    X[:, late] = -0.4 * X[:, 0] + np.sqrt(1 - 0.4**2) * X[:, late]
    scores = 4.0 * X[:, 0] + 1.6 * X[:, late]
    y = np.where(scores > 0, 1, -1)
    # Whatever chance has left of a difference.
    X[:, late] -= (y @ X[:, late]) / y.size * y

    class Watched(Screened):
        screening = Noted(least_weights=1000, largest_share=0.6)

    Noted.let_in.clear()
    model = Watched(generative_weight=0.0, tol=1e-5, max_iter=5000).fit(X, y)
    assert late not in Noted.let_in[0]
    assert late in Noted.let_in[-1]
    assert model.inclusion_probability_[late] > 0.99
    assert model.outcome_ is Outcome.CONVERGED
    other = Whole(generative_weight=0.0, tol=1e-5, max_iter=5000).fit(X, y)
    same_answer(model, other, 1e-3)


# ---------------------------------------------------------------- wherever the data are, whatever is asked


def on_disk(X: np.ndarray, folder: Any) -> Any:
    np.save(folder / "X.npy", X)
    return open_rows(folder / "X.npy", block_bytes=30 * X.itemsize * X.shape[1])


def on_dask(X: np.ndarray, folder: Any) -> Any:
    return pytest.importorskip("dask.array").from_array(X, chunks=(30, -1))


STORED = {
    "by columns": lambda X, folder: np.asfortranarray(X),
    "float32": lambda X, folder: X.astype(np.float32),
    "sparse": lambda X, folder: sparse.csr_array(X * (np.abs(X) > 1)),
    "on disk": on_disk,
    "dask": on_dask,
}


@pytest.mark.parametrize("stored", STORED)
def test_every_operator(stored: str, tmp_path: Any) -> None:
    X, y = study()
    data = STORED[stored](X, tmp_path)
    model = Screened(generative_weight=0.5).fit(data, y)
    same_answer(model, Whole(generative_weight=0.5, tol=1e-6).fit(data, y), 2e-3)
    assert visited(model)
    assert model.coef_.dtype == (np.float32 if stored == "float32" else np.float64)


ASKED: dict[str, dict[str, Any]] = {
    "covariates": {"always_keep": [3, 5]},
    "no intercept": {"fit_intercept": False},
    "mean removal": {"mean_removal": True},
    "uniform variances": {"variances": "uniform"},
    "constant damping": {"damping": 0.7},
    "parameters given": {"prior": SpikeAndSlab(Gaussian(2.0), 1e-3), "tune": False},
    "plain EM": {"hyper_prior": None},
    "probit": {"channel": "probit"},
}


@pytest.mark.parametrize("asked", ASKED)
def test_every_choice(asked: str) -> None:
    X, y = study(n_samples=150)
    X[:, 100] = 4.0  # a column that never varies
    weight = np.where(np.arange(y.size) < 10, 2.0, 1.0)
    parameters = {"generative_weight": 0.0 if asked == "probit" else 0.5} | ASKED[asked]
    model, other = (
        kind(**parameters, tol=1e-6, max_iter=5000).fit(X, y, weight) for kind in (Screened, Whole)
    )
    assert model.outcome_ is Outcome.CONVERGED
    same_answer(model, other, 1e-3)
    assert visited(model)


def test_a_prior_that_leaves_nobody_out_is_not_screened() -> None:
    X, y = study()
    model, other = (kind("gaussian").fit(X, y) for kind in (Screened, Whole))
    assert visited(model) == []
    assert_array_equal(model.coef_, other.coef_)
    assert model.n_iter_ == other.n_iter_


def test_the_small_share_of_columns_is_meant() -> None:
    class Stingy(Screened):
        screening = replace(SCREENING, largest_share=1e-3)

    X, y = study()
    model, other = (kind(generative_weight=0.5).fit(X, y) for kind in (Stingy, Whole))
    assert visited(model) == []
    assert_array_equal(model.coef_, other.coef_)


def test_copies_are_small_beside_what_is_in_memory(tmp_path: Any) -> None:
    X, _ = study()
    n_samples, n_features = X.shape
    stored, read = Standardized.fit(Dense(X)), Standardized.fit(on_disk(X, tmp_path))
    rule = Screening(largest_share=0.3, largest_length=20)
    assert rule.may_gather(stored, int(0.3 * n_features))
    assert not rule.may_gather(stored, int(0.3 * n_features) + 1)
    # Of the rows on disk nothing is in memory but vectors over features.
    most = 20 * n_features // n_samples
    for operator in (read, WithIntercept(read)):
        assert rule.may_gather(operator, most)
        assert not rule.may_gather(operator, most + 1)
    assert rule.may_gather(WithIntercept(stored), most + 1)


@pytest.mark.parametrize("at_once", [1, 10**4, 10**9])
def test_columns_are_gathered_alike_in_any_number_of_pieces(at_once: int, monkeypatch: Any) -> None:
    X, _ = study(n_features=1000)
    operator, columns = Standardized.fit(Dense(X.astype(np.float32))), np.arange(3, 900, 7)
    monkeypatch.setattr(screening, "GATHERED_AT_ONCE", at_once)
    gathered = _Gathered.of(operator, columns)
    assert gathered.operator.dtype == np.float32
    assert_array_equal(
        gathered.operator.columns(np.arange(columns.size)), operator.columns(columns).astype("f4")
    )


def problem_of(X: np.ndarray, y: np.ndarray, **changes: Any) -> Problem:
    problem = assembled(table_of(X, y), Logistic(), SpikeAndSlab(Gaussian(2.0), 1e-3))
    return problem.but(**changes)


def test_where_screening_does_not_apply() -> None:
    problem = problem_of(*study())
    assert SCREENING.applies(problem, GAMP())
    assert not Screening().applies(problem, GAMP())
    assert not SCREENING.applies(problem, GAMP(rule="max-sum"))
    assert not SCREENING.applies(problem, GAMP(variances="per-coordinate"))
    assert not SCREENING.applies(problem.but(channel=Multinomial(3)), GAMP())
    assert not SCREENING.applies(problem.but(prior=SpikeAndSlab()), GAMP())
    assert not SCREENING.applies(problem.but(prior=Blocks(Pruned(0.1))), GAMP())
    own = Blocks(SpikeAndSlab(Ridged(Gaussian(), np.ones(problem.operator.shape[1]))))
    assert not SCREENING.applies(problem.but(prior=own), GAMP())


# ---------------------------------------------------------------- how runs end


@pytest.mark.parametrize("max_iter", [1, 2, 3, 100])
def test_runs_end_with_all_weights_visited(max_iter: int) -> None:
    X, y = study()
    seen: list[Any] = []
    solution = solved(
        X, y, Stopping(tol=1e-5, max_iter=max_iter), watch=lambda n, line: seen.append((n, line))
    )
    lines = solution.history.iterations
    assert lines[-1].visited is None
    whole = [line for line in lines if line.visited is None]
    assert solution.outcome is (Outcome.CONVERGED if max_iter == 100 else Outcome.BUDGET)
    assert len(whole) == max_iter or max_iter == 100
    assert solution.posterior.mean.size == X.shape[1] + 1
    assert isinstance(solution.problem.prior, Blocks)
    assert isinstance(solution.problem.prior.base, SpikeAndSlab)
    assert solution.problem.operator.shape == (X.shape[0], X.shape[1] + 1)
    # One course of parameters under one name, and one count of iterations.
    assert solution.history.tuned("prior__base__inclusion").shape == (len(lines),)
    assert [n for n, _ in seen] == list(range(1, len(lines) + 1))
    assert [line for _, line in seen] == lines


def test_an_interrupt_in_a_small_problem_leaves_all_weights() -> None:
    X, y = study()

    def interrupt(n: int, line: Any) -> None:
        if line.visited is not None:
            raise KeyboardInterrupt

    solution = solved(X, y, Stopping(), watch=interrupt)
    assert solution.outcome is Outcome.INTERRUPTED
    assert solution.posterior.mean.size == X.shape[1] + 1
    assert np.all(np.isfinite(solution.posterior.mean))


class InterruptedScores(Dense):
    """Ctrl-C in the pass that makes scores of all columns, the second time."""

    left = 2

    def scores(self, weights: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return super().scores(weights)


def test_an_interrupt_between_iterations_leaves_all_weights() -> None:
    X, y = study()
    problem = problem_of(X, y)
    whole = problem.operator
    assert isinstance(whole, WithIntercept)
    inner = whole.operator
    assert isinstance(inner, Standardized)
    slow = WithIntercept(Standardized(InterruptedScores(X), inner.center, inner.scale))
    solution = solved(X, y, Stopping(), problem=problem.but(operator=slow))
    assert solution.outcome is Outcome.INTERRUPTED
    assert solution.posterior.mean.size == X.shape[1] + 1
    assert solution.history.iterations[-1].visited is None


def test_the_same_bits_twice() -> None:
    X, y = study()
    first, second = (Screened().fit(X, y) for _ in range(2))
    assert_array_equal(first.coef_, second.coef_)
    assert_array_equal(first.coef_std_, second.coef_std_)
    assert_array_equal(first.inclusion_probability_, second.inclusion_probability_)


def test_a_fit_that_ends_early_is_resumed_to_the_same_bits(tmp_path: Any) -> None:
    X, y = study()
    rows = on_disk(X, tmp_path)
    whole = Screened().fit(rows, y)
    for after in (2, 30):
        left = [after]

        def stop(n: int, line: Any, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise ZeroDivisionError

        model = Screened(checkpoint=tmp_path / "fit.journal")
        model._on_iteration = stop
        with pytest.raises(ZeroDivisionError):
            model.fit(rows, y)
        resumed = Screened(checkpoint=tmp_path / "fit.journal").fit(rows, y)
        assert_array_equal(resumed.coef_, whole.coef_)
        assert_array_equal(resumed.coef_std_, whole.coef_std_)
        assert resumed.n_iter_ == whole.n_iter_


def test_verbose_fits_say_how_many_weights_they_visit(capsys: Any) -> None:
    X, y = study()
    Screened(generative_weight=0.5, verbose=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert "visited" not in lines[0]
    assert "weights visited" in lines[1]
    assert "visited" not in lines[-1]


def test_default_estimators_screen_from_a_million_on() -> None:
    facts = Facts(100, 999_999, 2, 100.0, 999_999, 99_999_900, 1.0, 1.0)
    assert not plan(facts).sparse.screened
    assert plan(replace(facts, n_features=1_000_000)).sparse.screened
    for n_features, screened in ((999_999, False), (1_000_000, True)):
        asked = requested("spike-and-slab", "GAMP", (100, n_features), searched=True)
        assert asked.sparse.screened == screened
    for prior, solver, n_classes in (
        ("laplace", "GAMP (max-sum)", 2),
        ("spike-and-slab", "EP", 2),
        ("Pruned", "GAMP", 2),
        ("row-sparse", "GAMP", 4),
    ):
        asked = requested(prior, solver, (100, 10**7), searched=True, n_classes=n_classes)
        assert not asked.sparse.screened


# ---------------------------------------------------------------- parts


def tuner_for(problem: Problem, columns: Any = None, *, delay: int = 0, learn: bool = True) -> EM:
    return EM(tunable_names(problem) if learn else frozenset(), delay=delay)


def solved(
    X: np.ndarray, y: np.ndarray, stopping: Stopping, watch: Any = None, problem: Problem | None = None
) -> Any:
    return solve_screened(
        problem_of(X, y) if problem is None else problem,
        GAMP(),
        SCREENING,
        stopping=stopping,
        small_stopping=Stopping(tol=1e-5),
        tuner_for=tuner_for,
        watch=watch,
    )


def mid_run(X: np.ndarray, y: np.ndarray) -> tuple[Problem, Any]:
    problem = problem_of(X, y)
    solution = solve(problem, GAMP(), stopping=Stopping(max_iter=4))
    return problem, solution.state


def test_a_small_problem_has_the_next_iteration_of_the_whole_one() -> None:
    problem, state = mid_run(*study())
    columns = SCREENING.may_move(problem, state)
    assert 5 < columns.size < 1000
    scores = problem.operator.scores(state.weights)
    gathered = _Gathered.of(problem.operator, columns)
    small = GAMP().step(_small_problem(problem, state, gathered, scores), state.of_columns(columns))
    whole = GAMP().step(problem, state)
    assert_allclose(small.score_cavity_mean, whole.score_cavity_mean, rtol=1e-9, atol=1e-12)
    assert_allclose(small.score_cavity_var, whole.score_cavity_var, rtol=1e-9)
    assert_allclose(small.weights, whole.weights[columns], rtol=1e-9, atol=1e-12)
    assert_allclose(small.weight_var, whole.weight_var[columns], rtol=1e-9)
    # That of the weights is of the last visit.
    assert small.log_evidence - small.weight_evidence == pytest.approx(
        whole.log_evidence - whole.weight_evidence, rel=1e-9
    )
    assert small.weight_evidence == pytest.approx(whole.weight_evidence, abs=0.5)


def test_left_out_weights_do_not_answer_to_a_jump_of_their_cavities() -> None:
    problem, state = mid_run(*study())
    columns = SCREENING.may_move(problem, state)
    out = np.setdiff1d(np.arange(state.weights.size), columns)
    prior = problem.prior.base
    jumped = state.cavity_mean + SCREENING.jump * np.sqrt(state.cavity_var) * np.sign(state.cavity_mean)
    inclusion = prior.inclusion_probability(jumped, state.cavity_var)
    assert inclusion[out].max() < SCREENING.notable
    # And it is not caution alone: some of the others would be in.
    assert inclusion[columns].max() > SCREENING.notable


@pytest.mark.parametrize(
    "base",
    [SpikeAndSlab(Gaussian(0.7), 1e-5), SpikeAndSlab(Gaussian(0.7, mean=0.3), 1e-5), Gaussian(0.1)],
    ids=repr,
)
# Bins of weights whose cavities differ in width, too, are less exact: by the square of the difference.
@pytest.mark.parametrize(("spread", "within"), [(0.0, 1e-4), (0.2, 0.1**2)])
def test_screened_out_weights_count_in_em(base: Any, spread: float, within: float) -> None:
    rng = np.random.default_rng(0)
    var = 0.02 * (1 + spread * (rng.random(200_000) < 0.5))
    mean = np.sqrt(var) * rng.standard_normal(var.size)
    mean[:5] = 1.0
    screened_out = np.abs(mean) < 2.5 * np.sqrt(var)
    assert 1e3 < np.sum(~screened_out) < 1e4
    learning = WithScreenedOut.counting(base, mean, var, screened_out)
    assert learning.count.sum() == screened_out.sum()
    assert learning.count.size < 1000
    names = base.tunable_params()
    learnt = learning.em_update(
        mean[~screened_out], var[~screened_out], names=frozenset(f"base__{name}" for name in names)
    ).base.get_params()
    expected = base.em_update(mean, var, names=frozenset(names)).get_params()
    alone = base.em_update(mean[~screened_out], var[~screened_out], names=frozenset(names)).get_params()
    for name in names:
        assert learnt[name] == pytest.approx(expected[name], rel=within)
        assert alone[name] != pytest.approx(expected[name], rel=0.05)
    total = float(np.sum(base.tilted(mean[screened_out], var[screened_out]).var))
    assert learning.screened_out_variance() == pytest.approx(total, rel=within)


def test_half_a_sweep_is_a_sweep_where_the_rest_is_known() -> None:
    rng = np.random.default_rng(0)
    operator = Dense(rng.standard_normal((30, 50)))
    weights, columns = rng.standard_normal(50), np.array([2, 3, 40])
    others = weights.copy()
    others[columns] = 0.0
    partly = PartlyVisited(operator, columns, Dense(operator.columns(columns)), operator.scores(others))

    def row_step(rows: slice, scores: np.ndarray, score_var: Any) -> Any:
        return np.tanh(scores), None

    assert_allclose(
        partly.sweep(weights, None, row_step).slopes,
        operator.sweep(weights, None, row_step).slopes,
        rtol=1e-12,
    )
    assert_allclose(partly.scores(weights), operator.scores(weights), rtol=1e-12)
    with pytest.raises(NotImplementedError, match="all columns"):
        partly.sweep(weights, weights**2, row_step)
