"""Reference posteriors of six spike-and-slab problems, by long Markov chains, and what EP makes of them.

    python -m benchmarks.trust.references --make                  # of simulated problems, minutes each
    python -m benchmarks.trust.references --make --data DIR       # of real tables, too
    python -m benchmarks.trust.references --data DIR              # EP against what is stored

The chains are held to the definition of posteriordb: 10 000 draws, thinned until they are nearly independent;
R-hat of every weight below 1.01; effective sizes where those of independent draws are. (Its fractions of
missing information and divergences are of Hamiltonian samplers.) Moments are averages over all sweeps after
the first fifth. tests/reference/posteriors holds them with their errors; seeds are fixed, so draws can be
made anew. posteriordb's own sparse problems, ovarian and prostate, have a regularised horseshoe, which
foldless has not; colon and 2000 genes of leukemia are of their size and kind.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit, ndtri
from scipy.stats import rankdata

STORED = Path(__file__).parents[2] / "tests" / "reference" / "posteriors"
N_CHAINS, KEPT = 10, 1000
WARM_UP = 0.2  # of what is kept, before it
INTERCEPT_VAR = 10.0
NEIGHBOURS = 20


class Case(NamedTuple):
    """Standardised columns, labels of ±1, and what the chains take for known."""

    X: np.ndarray
    labels: np.ndarray
    inclusion: float
    slab_var: float
    logit: bool
    thinning: int
    intercept: bool = False
    in_domain: bool = False


def _simulated(
    n: int,
    p: int,
    n_factors: int,
    n_active: int,
    logit: bool,
    thinning: int,
    seed: int,
    slab_var: float = 1.0,
) -> Case:
    rng = np.random.default_rng([9, seed])
    X = rng.standard_normal((n, p)) + rng.standard_normal((n, n_factors)) @ rng.standard_normal(
        (n_factors, p)
    )
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    inclusion = n_active / p
    w = np.where(rng.random(p) < inclusion, rng.normal(0, np.sqrt(slab_var), p), 0.0)
    score = X @ w
    noise = rng.logistic(size=n) if logit else rng.standard_normal(n)
    return Case(
        X, np.where(score + noise > 0, 1.0, -1.0), inclusion, slab_var, logit, thinning,
        in_domain=not n_factors,
    )  # fmt: skip


def _real(table: str, n_active: int, thinning: int, data: Path, most: int = 2000) -> Case:
    """The columns of largest variance."""
    with np.load(data / f"{table}.npz", allow_pickle=False) as stored:
        X, y = np.asarray(stored["X"], dtype=float), stored["y"]
    X = X[:, np.sort(np.argsort(-X.std(axis=0), kind="stable")[:most])]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    labels = np.where(y == np.unique(y)[0], -1.0, 1.0)
    return Case(X, labels, n_active / X.shape[1], 1.0, False, thinning, intercept=True)


SIMULATED: dict[str, Callable[[], Case]] = {
    "independent": lambda: _simulated(100, 200, 0, 8, False, 200, 0),
    "wide": lambda: _simulated(100, 1000, 0, 8, True, 50, 1, 2.0),
    "tall": lambda: _simulated(300, 150, 0, 15, True, 40, 2),
    "factors": lambda: _simulated(100, 200, 3, 8, False, 150, 3),
}
REAL: dict[str, Callable[[Path], Case]] = {
    "colon": lambda data: _real("colon", 8, 200, data),
    "leukemia": lambda data: _real("leukemia", 8, 100, data),
}
NAMES = (*SIMULATED, *REAL)


def case(name: str, data: Path | None = None) -> Case | None:
    """None of a real table where there are no data."""
    if name in SIMULATED:
        return SIMULATED[name]()
    return None if data is None else REAL[name](data)


# ------------------------------------------------------------------------------------------- chains


def chains(of: Case, seed: int = 0, kept: int = KEPT) -> tuple[np.ndarray, pd.DataFrame]:
    """Draws (chains x kept x weights), and for every weight its moments and their standard errors."""
    from benchmarks.trust import gibbs_loops

    X = np.column_stack([of.X, np.ones(of.labels.size)]) if of.intercept else of.X
    n_weights = X.shape[1]
    prior_log_odds = np.full(n_weights, np.log(of.inclusion) - np.log1p(-of.inclusion))
    slab_var = np.full(n_weights, of.slab_var)
    if of.intercept:
        prior_log_odds[-1], slab_var[-1] = np.inf, INTERCEPT_VAR
    draws = np.empty((N_CHAINS, kept, n_weights), dtype=np.float32)
    moments = np.empty((N_CHAINS, 3, n_weights))
    graph = _neighbours(of.X, n_weights)
    for k in range(N_CHAINS):
        rng = np.random.default_rng([seed, k])
        start = np.where(
            rng.random(n_weights) < expit(prior_log_odds),
            np.sqrt(slab_var) * rng.standard_normal(n_weights),
            0.0,
        )
        gibbs_loops.run(
            np.ascontiguousarray(X.T), of.labels, prior_log_odds, slab_var, of.logit, start, *graph,
            int(WARM_UP * kept), of.thinning, int(rng.integers(2**31)), draws[k], moments[k],
        )  # fmt: skip
    mean, square, inclusion = moments.mean(axis=0)
    error = moments.std(axis=0, ddof=1) / np.sqrt(N_CHAINS)
    table = pd.DataFrame(
        {
            "mean": mean, "sd": np.sqrt(np.maximum(square - mean**2, 0)), "inclusion": inclusion,
            "mean_error": error[0], "inclusion_error": error[2],
        }
    )  # fmt: skip
    return draws, table


def _neighbours(X: np.ndarray, n_weights: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of every column those that it has much in common with, and those that have it among theirs."""
    p = X.shape[1]
    linked: list[set[int]] = [set() for _ in range(n_weights)]
    for j in range(p):
        alike = np.abs(X.T @ X[:, j])
        for k in np.argsort(-alike)[1 : NEIGHBOURS + 1].tolist():
            linked[j].add(k)
            linked[k].add(j)
    of = [np.array(sorted(each - {j}), dtype=np.int64) for j, each in enumerate(linked)]
    first = np.cumsum([0, *(each.size for each in of)])
    signs = [np.where(X[:, each].T @ X[:, j] < 0, -1.0, 1.0) for j, each in enumerate(of) if each.size]
    return first, np.concatenate(of), np.concatenate([np.zeros(0), *signs])


def diagnostics(draws: np.ndarray) -> pd.DataFrame:
    """R-hat, and the effective sizes of bulk and tail, of every weight [Vehtari and others 2021].

    A weight that was zero in all draws, or whose tail was, has none of its own: nan.
    """
    rows = []
    for j in range(draws.shape[2]):
        x = draws[:, :, j].astype(float)
        x = np.concatenate(np.split(x, 2, axis=1))  # halves of chains
        far = np.abs(x - np.median(x))
        low, high = np.quantile(x, [0.05, 0.95])
        tails = [effective_size((x <= q).astype(float)) for q in (low, high)]
        rows.append(
            (
                max(_rhat(_normal_scores(x)), _rhat(_normal_scores(far))),
                effective_size(_normal_scores(x)),
                np.nan if np.all(np.isnan(tails)) else float(np.nanmin(tails)),
            )
        )
    return pd.DataFrame(rows, columns=["rhat", "bulk", "tail"])


def _normal_scores(x: np.ndarray) -> np.ndarray:
    return np.asarray(ndtri((rankdata(x).reshape(x.shape) - 0.375) / (x.size + 0.25)))


def _rhat(x: np.ndarray) -> float:
    n = x.shape[1]
    within = float(x.var(axis=1, ddof=1).mean())
    between = float(x.mean(axis=1).var(ddof=1))
    return np.nan if within == 0 else float(np.sqrt((n - 1) / n + between / within))


def effective_size(x: np.ndarray) -> float:
    """Of several chains: Geyer's initial monotone sequence of pairs of autocorrelations."""
    n = x.shape[1]
    centred = x - x.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(centred, 2 * n, axis=1)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, axis=1)[:, :n].mean(axis=0) / n
    within = covariance[0] * n / (n - 1)
    if within == 0:
        return np.nan
    total = covariance[0] + float(x.mean(axis=1).var(ddof=1))
    rho = 1 - (within - covariance * n / (n - 1)) / total
    rho[0] = 1.0
    pairs = rho[: n - n % 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs <= 0)
    pairs = np.minimum.accumulate(pairs[: negative[0] if negative.size else pairs.size])
    time = max(2 * float(pairs.sum()) - 1, 1 / np.log10(x.size))
    return x.size / time


def bounds(n_simulations: int = 400) -> dict[str, list[float]]:
    """Where 95 % of effective sizes of as many independent draws are."""
    found = diagnostics(np.random.default_rng(0).standard_normal((N_CHAINS, KEPT, n_simulations)))
    return {name: found[name].quantile([0.025, 0.975]).tolist() for name in ("bulk", "tail")}


def within_bounds(seen: pd.DataFrame) -> dict[str, float]:
    """The share of weights whose effective sizes are within these bounds."""
    limits = bounds().items()
    return {what: round(float(seen[what].dropna().between(*each).mean()), 3) for what, each in limits}


def of_independent_draws(name: str) -> dict[str, float]:
    """The same for independent draws with the stored inclusion and moments: most are zero, fewer within."""
    stored = pd.read_csv(STORED / f"{name}.csv")
    rng, inclusion = np.random.default_rng(0), stored["inclusion"].to_numpy()
    mean = stored["mean"].to_numpy() / inclusion
    var = np.maximum((stored["sd"] ** 2 + stored["mean"] ** 2).to_numpy() / inclusion - mean**2, 0.0)
    shape = (N_CHAINS, KEPT, inclusion.size)
    draws = mean + np.sqrt(var) * rng.standard_normal(shape)
    return within_bounds(diagnostics(np.where(rng.random(shape) < inclusion, draws, 0.0)))


def make(name: str, data: Path | None) -> dict[str, Any]:
    of = case(name, data)
    if of is None:
        raise SystemExit(f"{name} is a real table: --data DIR")
    draws, table = chains(of)
    seen = diagnostics(draws)
    inside = within_bounds(seen)
    STORED.mkdir(exist_ok=True)
    table.to_csv(STORED / f"{name}.csv", index=False, float_format="%.5g")
    summary = {
        "shape": list(of.X.shape), "inclusion": of.inclusion, "slab_var": of.slab_var,
        "channel": "logit" if of.logit else "probit", "thinning": of.thinning,
        "draws": draws.shape[0] * draws.shape[1], "rhat": float(f"{seen['rhat'].max():.5g}"),
        "within bounds of independent draws": inside,
        "smallest": {what: int(seen[what].min()) for what in inside},
    }  # fmt: skip
    path = STORED / "chains.json"
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(stored | {name: summary}, indent=1) + "\n", encoding="utf-8")
    return summary


# ----------------------------------------------------------------------------------------------- EP


def by_ep(of: Case) -> tuple[Any, np.ndarray, np.ndarray]:
    """The outcome, means and inclusion probabilities of EP with the prior and channel of the chains."""
    from foldless.channels import Logistic, Probit
    from foldless.operators import Dense, WithIntercept
    from foldless.priors import Blocks, Gaussian, SpikeAndSlab
    from foldless.problem import Problem
    from foldless.solvers import EP, Stopping, solve

    weights = SpikeAndSlab(Gaussian(of.slab_var), of.inclusion)
    p = of.X.shape[1]
    operator: Any = Dense(of.X)
    prior: Any = weights
    if of.intercept:
        operator = WithIntercept(operator)
        prior = Blocks(weights, ((slice(-1, None), Gaussian(INTERCEPT_VAR)),))
    channel = Logistic() if of.logit else Probit()
    problem = Problem(operator, of.labels, np.ones(of.labels.size), channel, prior)
    solution = solve(problem, EP(), stopping=Stopping(tol=1e-8, max_iter=3000, patience=300))
    at = solution.posterior
    inclusion = np.asarray(weights.inclusion_probability(at.cavity_mean[:p], at.cavity_var[:p]))
    return solution.outcome, np.asarray(at.mean[:p]), inclusion


def compared(name: str, data: Path | None = None) -> dict[str, Any] | None:
    """How far EP is from the stored chains, in the units of the definition; None without the data."""
    of = case(name, data)
    if of is None:
        return None
    stored = pd.read_csv(STORED / f"{name}.csv").iloc[: of.X.shape[1]]
    outcome, mean, inclusion = by_ep(of)
    off = np.abs(mean - stored["mean"]) / stored["sd"]
    return {
        "in domain": of.in_domain,
        "outcome": str(outcome.value),
        "weights": len(stored),
        "within .1 sd": float(np.mean(off <= 0.1)),
        "farthest mean": float(f"{off.max():.2g}"),
        "farthest inclusion": float(f"{np.abs(inclusion - stored['inclusion']).max():.2g}"),
        "effects": [float(f"{inclusion.sum():.3g}"), float(f"{stored['inclusion'].sum():.3g}")],
        "error of the chains": float(f"{(stored['mean_error'] / stored['sd']).max():.2g}"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--only", nargs="*", default=NAMES, choices=NAMES)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    for name in options.only:
        if options.make and (name in SIMULATED or options.data is not None):
            print(name, make(name, options.data), flush=True)
        print(name, compared(name, options.data), flush=True)


if __name__ == "__main__":
    main()
