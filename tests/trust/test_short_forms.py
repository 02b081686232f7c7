"""What `make trust` runs at length, in seconds: hostile inputs, kills, mutations, calibration."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

# Modules of the repository, not of the package.
sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.trust import agreement, fuzz, hostile, kills, mutants, numerics, page, references, sbc

CELLS = list(hostile.cells())
# Every input meets at least three estimators, in storages and precisions that take turns. A class for each of
# 26 samples takes seconds in some.
SAMPLE = [
    cell
    for k, cell in enumerate(CELLS)
    if (k // 9 + k // 225) % 9 == k % 9 and (k // 9 + k // 225) % 3 == 0 and cell[2] != "a class each"
]


def test_the_sample_has_every_input_and_storage_for_several_estimators() -> None:
    assert len(hostile.INPUTS) == 25
    for given in set(hostile.INPUTS) - {"a class each"}:
        assert sum(cell[2] == given for cell in SAMPLE) >= 3, given
    assert {cell[0] for cell in SAMPLE} == {cell[0] for cell in CELLS}
    assert {cell[3] for cell in SAMPLE} == set(hostile.STORAGES)


@pytest.mark.parametrize("name", dict.fromkeys(cell[0] for cell in SAMPLE))
def test_hostile_inputs_are_fitted_or_refused_with_a_reason(name: str) -> None:
    hostile.PATIENCE = 60.0  # a busy machine, or a loop that is compiled, is no hang
    verdicts = [hostile.judged(*cell) for cell in SAMPLE if cell[0] == name]
    assert [verdict for verdict in verdicts if not verdict.good] == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_kill_leaves_whole_files_and_the_same_result() -> None:
    found = kills.run(3)
    assert found["truncated"] == []
    assert found["different after resuming"] == 0


# Those of a cluster have tests in tests/estimators/test_dask.py.
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs fork and limits of a process")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "name",
    ["full disk for the model", "full disk for the checkpoint", "input output error", "permission lost",
     "clock jumps", "memory runs out", "interrupted", "damaged checkpoint"],
)  # fmt: skip
def test_a_fault_ends_in_the_right_result_or_an_error_with_a_name(name: str) -> None:
    from benchmarks.trust import faults

    found = faults.run(name, 1)
    assert found["good"] == 1, found


def test_units_and_exact_posteriors_agree() -> None:
    for name in ("SparseClassifier", "SMLRClassifier", "PrunedBayesClassifier"):
        found = agreement.units(name, 1)
        assert found["good"] == found["cells"] == 5, found
    exact = agreement.enumeration(3)
    assert exact["good"] == exact["settled"] == 3, exact


DATA = Path(os.environ["FOLDLESS_DATA"]) if os.environ.get("FOLDLESS_DATA") else None


CHAINS = json.loads((references.STORED / "chains.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", CHAINS)
def test_means_are_those_of_long_chains(name: str) -> None:
    chains = CHAINS[name]
    assert chains["draws"] == 10_000
    assert chains["rhat"] < 1.01
    found = references.compared(name, DATA)
    if found is None:
        pytest.skip("needs FOLDLESS_DATA")
    assert found["outcome"] == "converged"
    assert found["weights"] == chains["shape"][1]
    # Of a weight the chains are surer than a third of what is asked of EP.
    assert found["error of the chains"] < 0.03
    assert found["within .1 sd"] >= 0.95
    # As near as to enumerations of five columns.
    assert found["farthest inclusion"] < agreement.AT_MOST[1]


def test_effective_sizes_of_chains_whose_sizes_are_known() -> None:
    rng = np.random.default_rng(0)
    correlation = np.array([0.0, 0.5, 0.9])
    x = rng.standard_normal((10, 1000, 3))
    for t in range(1, 1000):
        x[:, t] = correlation * x[:, t - 1] + np.sqrt(1 - correlation**2) * x[:, t]
    found = references.diagnostics(x)
    expected = 10_000 * (1 - correlation) / (1 + correlation)
    np.testing.assert_allclose(found["bulk"], expected, rtol=0.15)
    assert found["rhat"].max() < 1.05
    assert found["rhat"].iloc[0] < 1.002
    x[0] += 1.0  # one chain is elsewhere
    assert references.diagnostics(x)["rhat"].min() > 1.02


@pytest.mark.study
def test_chains_draw_from_posteriors_that_are_known() -> None:
    pytest.importorskip("numba")
    from scipy.special import expit
    from tests.reference.exact_probit import exact_spike_and_slab

    rng = np.random.default_rng(4)
    X = rng.standard_normal((25, 5)) + rng.standard_normal((25, 1))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    labels = np.where(X[:, 0] + rng.standard_normal(25) > 0, 1.0, -1.0)
    of = references.Case(X, labels, 0.3, 1.5, False, 5)
    _, found = references.chains(of)
    exact = exact_spike_and_slab(X, labels, 0.3, 1.5, n_draws=2**11)
    # Four standard errors, and what importance sampling leaves.
    assert np.all(np.abs(found["mean"] - exact.mean) < 4 * found["mean_error"] + 5e-4)
    assert np.all(np.abs(found["inclusion"] - exact.inclusion) < 4 * found["inclusion_error"] + 5e-4)

    # One column and logit labels: a sum over a line.
    of = references.Case(X[:, :1], labels, 0.3, 1.5, True, 5)
    _, found = references.chains(of)
    line = np.linspace(-8, 8, 4001)
    density = np.exp(np.log(expit(labels * np.multiply.outer(line, X[:, 0]))).sum(axis=1) - line**2 / 3)
    density *= (line[1] - line[0]) / np.sqrt(2 * np.pi * 1.5)
    active = 0.3 * density.sum()
    expected = active / (active + 0.7 * 0.5**25)
    assert abs(found["inclusion"][0] - expected) < 4 * found["inclusion_error"][0] + 1e-9
    mean = expected * (density @ line) / density.sum()
    assert abs(found["mean"][0] - mean) < 4 * found["mean_error"][0] + 1e-9


def test_changed_models_and_tables_are_refused_and_nothing_is_run() -> None:
    found = fuzz.models(100)
    assert found["refused"] == 100
    assert found["wrong"] == found["executed"] == {}
    for suffix in fuzz.SUFFIXES:
        of_tables = fuzz.tables(suffix, 12)
        assert of_tables["wrong"] == of_tables["executed"] == {}, suffix


@pytest.mark.study
def test_ranks_of_true_values_are_uniform() -> None:
    for k in range(len(sbc.SETTINGS)):
        assert sbc.run(k, 150)["inside"] == 3
    # A posterior that is too sure of itself would be noticed.
    rng = np.random.default_rng(0)
    sure = [sbc._rank(w, 0.5 * w, 0.05, 1.0, rng) for w in rng.standard_normal(150)]
    assert sbc.kstest(sure, "uniform").pvalue < 1e-6


def test_scalar_functions_agree_with_long_arithmetic() -> None:
    found = numerics.run(200)
    assert found["NaN"] == []
    assert max(max(errors) for errors in found["worst relative error"].values()) < 1e-12


def test_a_mutant_differs_in_one_place() -> None:
    import ast

    source = "def f(a, b):\n    return a + b if a < b else 2.0 * a\n"
    assert len(mutants.sites(ast.parse(source))) == 4
    for k in range(4):
        tree = ast.parse(source)
        mutants.change(mutants.sites(tree)[k])
        assert ast.unparse(tree) != ast.unparse(ast.parse(source))


def test_a_mutant_is_in_place_wherever_its_function_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ast
    import importlib

    source = """
ONE = 1
def plain(a):
    return a + 1
class Counter:
    def __init__(self, by):
        self.by = by
    @property
    def twice(self):
        return [2 * each for each in (self.by,)][0]
kept = plain
"""
    path = tmp_path / "mutated_module.py"
    path.write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("mutated_module")
    gc.freeze()  # as before a fork
    # What is computed at import is left alone.
    assert [name for name, _ in mutants.places(ast.parse(source))] == [
        "plain", "plain", "Counter.twice", "Counter.twice", "Counter.twice",
    ]  # fmt: skip
    answers = []
    for k in range(5):
        after = ast.parse(source)
        mutants.change(mutants.places(after)[k][1])
        assert mutants.put_in_place(ast.parse(source), after, path) == 1
        with contextlib.suppress(IndexError):
            answers.append((module.kept(5), module.Counter(4).twice))
        mutants.put_in_place(after, ast.parse(source), path)
        assert (module.kept(5), module.Counter(4).twice) == (6, 8)
    gc.unfreeze()
    assert answers == [(4, 8), (7, 8), (6, 0.5), (6, 12)]


def test_the_page_is_that_of_the_committed_results() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.text(page.results())
    for path in page.RESULTS.glob("*.json"):
        assert {"pieces", "command"} <= json.loads(path.read_text()).keys(), path.name
