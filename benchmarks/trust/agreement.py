"""Does the same problem have the same answer: in other units, by other means, on other numbers of threads?

    python -m benchmarks.trust.agreement

- *units*: columns in units from 1e-100 to 1e100, and far from zero by up to 1e8 standard deviations. Values
  are whole parts of 1024, so that nothing is rounded away before a fit begins. `PrunedBayesClassifier` may
  choose not to standardise, where units count; here it may not.
- *enumeration*, *Gibbs*: EP with a spike-and-slab prior against all supports, each integrated numerically,
  and against a Gibbs sampler; correlated columns in two of three cases.
- *threads*: bytes of coefficients and probabilities of fits that are repeated, in processes of their own with
  other numbers of threads for BLAS and compiled loops, and with other `n_jobs`.
- *processors*: coefficients and probabilities of the same fits with the kernels that OpenBLAS has for other
  processors, which sum in other orders; as numbers, since bytes differ there. And what is decided by them:
  features that are selected, classes that are predicted. Where products with X are most of a fit its plan has
  them in single precision, which is then what processors differ by.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.trust.estimators import every_estimator

ROOT = Path(__file__).parents[2]
OFFSETS = (1e2, 1e4, 1e6, 1e8)
OURS = ("SparseClassifier", "GAMPClassifier", "SMLRClassifier", "PanelClassifier", "PrunedBayesClassifier",
        "EPBayesPointClassifier", "BayesPointClassifier")  # fmt: skip
TOLERANCE = 1e-6
# Threads of BLAS and compiled loops, by the environment and by a parameter.
WIDTHS, JOBS = ("1", "2"), (None, 1, 2)
PROCESSORS = ("Haswell", "SkylakeX", "Zen", "Sandybridge", "Nehalem")
DECIDED, SINGLE = ": decided", ": in single precision"
# Of a mean in units of the slab, an inclusion probability and the log evidence. Few weights are as far from
# Gaussian as a posterior gets: these are the bounds of tests/solvers/test_ep.py, for at most five.
AT_MOST = (0.2, 0.17, 0.42)


# ------------------------------------------------------------------------------- units and offsets


def _answers(model: Any, X: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    from sklearn.base import clone

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = clone(model).fit(X, y)
        found = [model.predict_proba(X) if hasattr(model, "predict_proba") else model.decision_function(X)]
    if hasattr(model, "inclusion_probability_"):
        found.append(np.asarray(model.inclusion_probability_))
    return found


def units(name: str, n_tables: int, seed: int = 0) -> dict[str, Any]:
    model = every_estimator()[name]
    if "standardize" in model.get_params():
        model.set_params(standardize=True)
    worst: dict[str, float] = {}
    cells = good = 0
    for number in range(n_tables):
        rng = np.random.default_rng([seed, number])
        X = np.round(1024 * rng.standard_normal((30, 20))) / 1024
        y = rng.permutation(30) % 2
        X[:, 0] += y
        expected = _answers(model, X, y)
        changed = {"units": X * 10.0 ** rng.integers(-100, 101, 20)}
        changed |= {f"offset {far:.0e}": X + far * rng.choice([-1.0, 1.0], 20) for far in OFFSETS}
        for what, other in changed.items():
            found = _answers(model, other, y)
            error = max(
                float(np.max(np.abs(a - b) / np.maximum(np.abs(b), 1e-3)))
                for a, b in zip(found, expected, strict=True)
            )
            worst[what] = max(worst.get(what, 0.0), error)
            cells += 1
            good += error <= TOLERANCE
    return {"cells": cells, "good": good, "worst": {k: float(f"{v:.2g}") for k, v in worst.items()}}


# ------------------------------------------------------------------------------- exact posteriors


def _case(n: int, p: int, rng: np.random.Generator, n_factors: int, inclusion: float, slab_var: float) -> Any:
    X = rng.standard_normal((n, p)) + rng.standard_normal((n, n_factors)) @ rng.standard_normal(
        (n_factors, p)
    )
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    w = np.where(rng.random(p) < inclusion, rng.normal(0, np.sqrt(slab_var), p), 0.0)
    return X, np.where(X @ w + rng.standard_normal(n) > 0, 1.0, -1.0)


def _ep(X: np.ndarray, labels: np.ndarray, inclusion: float, slab_var: float) -> tuple[Any, np.ndarray]:
    from foldless.channels import Probit
    from foldless.operators import Dense
    from foldless.priors import Gaussian, SpikeAndSlab
    from foldless.problem import Problem
    from foldless.solvers import EP, Stopping, solve

    prior = SpikeAndSlab(Gaussian(slab_var), inclusion)
    problem = Problem(Dense(X), labels, np.ones(labels.size), Probit(), prior)
    solution = solve(problem, EP(), stopping=Stopping(tol=1e-9, max_iter=3000, patience=300))
    at = solution.posterior
    return solution, np.asarray(prior.inclusion_probability(at.cavity_mean, at.cavity_var))


def enumeration(n_cases: int, seed: int = 0) -> dict[str, Any]:
    from tests.reference.exact_probit import exact_spike_and_slab

    errors, alike, ended = [], [], 0
    for case in range(n_cases):
        rng = np.random.default_rng([seed, case])
        n, p = int(rng.integers(4, 31)), int(rng.integers(2, 9))
        inclusion, slab_var = float(rng.uniform(0.05, 0.6)), float(rng.uniform(0.3, 3.0))
        X, labels = _case(n, p, rng, case % 3, 0.5, slab_var)
        exact = exact_spike_and_slab(X, labels, inclusion, slab_var, n_draws=2**9)
        solution, found = _ep(X, labels, inclusion, slab_var)
        ended += solution.outcome.trustworthy
        alike.append(float(np.max(np.abs(np.triu(np.corrcoef(X.T), 1)))))
        errors.append(
            (
                float(np.max(np.abs(solution.posterior.mean - exact.mean))) / np.sqrt(slab_var),
                float(np.max(np.abs(found - exact.inclusion))),
                abs(float(solution.posterior.log_evidence) - exact.log_evidence),
            )
        )
    beyond = np.flatnonzero(np.any(np.array(errors) >= AT_MOST, axis=1))
    shown = [{"case": int(k), "largest correlation": round(alike[k], 2)} for k in beyond]
    return _held_to(np.array(errors), ended, AT_MOST) | {"beyond": shown}


def gibbs(n_cases: int, seed: int = 0) -> dict[str, Any]:
    """Beyond what the sampler's own noise explains: twice its standard error is taken off."""
    from tests.reference.spike_and_slab_gibbs import spike_and_slab_gibbs

    errors, ended = [], 0
    for case in range(n_cases):
        rng = np.random.default_rng([seed, 1, case])
        n, p = int(rng.integers(20, 61)), int(rng.integers(10, 61))
        inclusion, slab_var = float(rng.uniform(0.05, 0.2)), float(rng.uniform(0.5, 2.0))
        X, labels = _case(n, p, rng, case % 3, inclusion, slab_var)
        chains = spike_and_slab_gibbs(
            X, labels, inclusion, slab_var, n_chains=100, n_sweeps=500, burn_in=150, seed=case
        )
        solution, found = _ep(X, labels, inclusion, slab_var)
        ended += solution.outcome.trustworthy
        of_mean = np.abs(solution.posterior.mean - chains.mean) - 2 * chains.mean_error
        of_inclusion = np.abs(found - chains.inclusion) - 2 * chains.inclusion_error
        errors.append(
            (max(float(of_mean.max()), 0.0) / np.sqrt(slab_var), max(float(of_inclusion.max()), 0.0))
        )
    return _held_to(np.array(errors), ended, AT_MOST[:2])


def _held_to(errors: np.ndarray, ended: int, at_most: Any) -> dict[str, Any]:
    worst, mean = errors.max(axis=0), errors.mean(axis=0)
    return {
        "cases": len(errors),
        "good": int(np.all(errors < at_most, axis=1).sum()),
        "settled": int(ended),
        "worst": [float(f"{e:.2g}") for e in worst],
        "mean": [float(f"{e:.2g}") for e in mean],
    }


# ------------------------------------------------------------------------------- bytes


def _tables() -> dict[str, tuple[Any, np.ndarray]]:
    """Of each way a fit can go: GAMP, EP, several classes, sparse columns."""
    from scipy import sparse

    rng = np.random.default_rng(5)
    y = np.arange(80) % 2
    plain = rng.standard_normal((80, 1500))
    plain[:, :4] += 0.8 * y[:, np.newaxis]
    factors = rng.standard_normal((80, 5)) @ rng.standard_normal((5, 1500))
    words = sparse.csr_array(np.abs(plain) * (rng.random(plain.shape) < 0.05))
    return {
        "independent": (plain, y),
        "correlated": (plain + 2 * factors, y),
        "three classes": (plain, (np.arange(80) + y) % 3),
        "sparse": (words, y),
    }


def digests(repeats: int) -> dict[str, list[str]]:
    """Of the fits of this process, by table and `n_jobs`."""
    from foldless import SparseClassifier

    found: dict[str, list[str]] = {}
    for name, (X, y) in _tables().items():
        for n_jobs in JOBS:
            for _ in range(repeats):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    model = SparseClassifier(n_jobs=n_jobs).fit(X, y)
                parts = (model.coef_, model.inclusion_probability_, model.predict_proba(X))
                content = b"".join(np.ascontiguousarray(part).tobytes() for part in parts)
                found.setdefault(f"{name}, n_jobs={n_jobs}", []).append(hashlib.sha256(content).hexdigest())
    return found


def threads(repeats: int = 3) -> dict[str, Any]:
    fits: dict[str, list[str]] = {}
    for width in WIDTHS:
        environment = {"OPENBLAS_NUM_THREADS": width, "OMP_NUM_THREADS": width, "NUMBA_NUM_THREADS": width}
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.trust.agreement", "--digests", str(repeats)],
            cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        for name, each in json.loads(done.stdout.splitlines()[-1]).items():
            fits.setdefault(name, []).extend(each)
    of_table: dict[str, set[str]] = {}
    for name, each in fits.items():
        of_table.setdefault(name.partition(",")[0], set()).update(each)
    return {
        "fits": sum(map(len, fits.values())),
        "threads": WIDTHS,
        "n_jobs": JOBS,
        "n_jobs that gave other bytes at times": [name for name, each in fits.items() if len(set(each)) > 1],
        "tables whose bytes depend on n_jobs": [name for name, each in of_table.items() if len(each) > 1],
    }


def kept_answers(path: Path) -> None:
    """Writes what the fits of this process have found."""
    from foldless import SparseClassifier

    found = {}
    for name, (X, y) in _tables().items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = SparseClassifier().fit(X, y)
        parts = (model.coef_, model.inclusion_probability_, model.predict_proba(X))
        found[name] = np.concatenate([np.ravel(part) for part in parts])
        found[f"{name}{DECIDED}"] = np.concatenate([model.get_support(), model.predict(X)])
        found[f"{name}{SINGLE}"] = np.array(model.plan_.sparse.single)
    np.savez(path, **found)


def processors() -> dict[str, Any]:
    """Largest differences from the first kind of kernels; relative, or to 0.001 where numbers are smaller."""
    worst: dict[str, float] = {}
    largest: dict[str, float] = {}
    first: dict[str, np.ndarray] = {}
    decided_otherwise: set[str] = set()
    for kind in PROCESSORS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "found.npz"
            subprocess.run(
                [sys.executable, "-m", "benchmarks.trust.agreement", "--answers", str(path)],
                cwd=ROOT, env=os.environ | {"OPENBLAS_CORETYPE": kind}, check=True,
            )  # fmt: skip
            with np.load(path) as stored:
                found = dict(stored)
        first = first or found
        for name in _tables():
            off = np.abs(found[name] - first[name])
            largest[name] = max(largest.get(name, 0.0), float(np.max(off)))
            off /= np.maximum(np.abs(first[name]), 1e-3)
            worst[name] = max(worst.get(name, 0.0), float(np.max(off)))
            if not np.array_equal(found[f"{name}{DECIDED}"], first[f"{name}{DECIDED}"]):
                decided_otherwise.add(name)
    return {
        "processors": PROCESSORS,
        "worst": {name: float(f"{off:.2g}") for name, off in worst.items()},
        "largest": {name: float(f"{off:.2g}") for name, off in largest.items()},
        "single": [name for name in _tables() if first[f"{name}{SINGLE}"]],
        "decided otherwise": sorted(decided_otherwise),
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--answers"]:
        kept_answers(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["--digests"]:
        print(json.dumps(digests(int(sys.argv[2]))))
    else:
        for name in OURS:
            print(name, units(name, 3))
        print("enumeration", enumeration(20))
        print("Gibbs", gibbs(3))
        print("threads", threads(1))
        print("processors", processors())
