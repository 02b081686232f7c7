"""Scalar functions against long arithmetic, over the whole range of double precision.

    python -m benchmarks.trust.numerics --points 10000

Arguments are log-uniform from 1e-300 to 1e300 in size, of both signs; a third lies between 1e-3 and 1e3,
where formulas change over. The error is relative, or that of the argument's last digit where it is larger:
no function can be better than its argument. Beyond 1e150 the cut normal is that at 1e150 by definition.
"""

from __future__ import annotations

import argparse
from typing import Any

import mpmath as mp
import numpy as np

from foldless.channels import Logistic, Probit
from foldless.special import log_normal_density, mills


def arguments(n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    size = np.where(rng.random(n) < 2 / 3, rng.uniform(-300, 300, n), rng.uniform(-3, 3, n))
    return np.asarray(rng.choice([-1.0, 1.0], n) * 10.0**size)


def _mills(c: float) -> list[Any]:
    """log Φ, φ/Φ, and mean and variance of the normal cut to the positive half line."""
    x = mp.mpf(max(min(c, 1e150), -1e150))
    if x < -1e5:  # the asymptotic series; digits of the plain quotient would be lost by the thousand
        t = -x
        d = 1 / t - 2 / t**3 + 10 / t**5
        return [
            -t * t / 2 - mp.log(t) - mp.log(2 * mp.pi) / 2 + mp.log1p(-1 / t**2),
            t + d,
            d,
            1 / t**2 - 6 / t**4,
        ]
    cdf = mp.erfc(-x / mp.sqrt(2)) / 2
    hazard = mp.npdf(x) / cdf
    log_cdf = mp.log1p(-mp.erfc(x / mp.sqrt(2)) / 2) if x > 0 else mp.log(cdf)
    return [log_cdf, hazard, x + hazard, 1 - hazard * (x + hazard)]


def _sigmoid(z: float) -> list[Any]:
    x = mp.mpf(z)
    e = mp.exp(-abs(x))
    log_sigmoid = -mp.log1p(e) if x > 0 else x - mp.log1p(e)
    slope = e / (1 + e) if x > 0 else 1 / (1 + e)
    return [log_sigmoid, slope, e / (1 + e) ** 2]


def _error(got: float, exact: Any, condition: Any) -> float:
    """In units of 1e-16 relative: beyond what the argument's own rounding explains."""
    if abs(exact) < 1e-307:  # nothing but denormals is there
        return 0.0 if abs(got) < 1e-300 else np.inf
    return float(abs(mp.mpf(float(got)) - exact) / abs(exact) / max(mp.mpf(1), condition))


def worst(found: list[np.ndarray], exact: Any, points: np.ndarray) -> list[float]:
    errors = np.zeros(len(found))
    for k, x in enumerate(points):
        with mp.workdps(60):
            truth = exact(float(x))
            near = exact(float(np.nextafter(x, np.inf)))
            for j, value in enumerate(truth):
                # How much the last digit of the argument moves the result, in its last digits.
                moved = abs(near[j] - value) / abs(value) / mp.mpf(2.2e-16) if value else mp.mpf(0)
                errors[j] = max(errors[j], _error(found[j][k], value, moved))
    return [float(f"{error:.2g}") for error in errors]


def run(n: int = 10_000) -> dict[str, Any]:
    x = arguments(n)
    with np.errstate(all="ignore"):
        cut = [np.asarray(part) for part in mills(x)]
        logistic = [np.asarray(part) for part in Logistic().at_score(x, 1.0)]
        probit = [np.asarray(part) for part in Probit().at_score(x, 1.0)]
        density = [np.asarray(log_normal_density(x, 0.0, 1.0))]
    small = [np.where(np.abs(x) < 1e150, part, 0.0) for part in density]

    def log_density(z: float) -> list[Any]:
        return [-(mp.mpf(z) ** 2) / 2 - mp.log(2 * mp.pi) / 2 if abs(z) < 1e150 else mp.mpf(0)]

    def probit_at(z: float) -> list[Any]:
        log_cdf, hazard, mean, _ = _mills(z)
        return [log_cdf, hazard, hazard * mean]

    results = {
        "mills: log_cdf, hazard, mean, var": worst(cut, _mills, x),
        "Logistic.at_score: log_z, slope, curvature": worst(logistic, _sigmoid, x),
        "Probit.at_score: log_z, slope, curvature": worst(probit, probit_at, x),
        "log_normal_density": worst(small, log_density, x),
    }
    nan = [
        name
        for name, parts in zip(results, (cut, logistic, probit, small), strict=True)
        if any(map(_nan, parts))
    ]
    return {"points": n, "worst relative error": results, "NaN": nan}


def _nan(part: np.ndarray) -> bool:
    return bool(np.isnan(part).any())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=10_000)
    print(run(parser.parse_args().points))
