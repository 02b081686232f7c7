"""Make `channel_tables.csv`: responses of every exact channel far out, in 45-digit arithmetic.

Nothing here imports foldless. A likelihood is a sum of log-concave pieces; each piece times the Gaussian
is integrated by composite Gauss-Legendre quadrature around its own mode, and slope and curvature follow
from the moments, slope = E[z - p]/v and curvature = 1/v - Var[z]/v². Run from the repository's root:

    python tests/reference/make_channel_tables.py        (about three minutes)
"""

from __future__ import annotations

import csv
from itertools import pairwise
from pathlib import Path

import mpmath as mp

mp.mp.dps = 45
# Where an integrand has fallen by e^-95 = 1e-41 from its mode, it is over.
DROP = mp.mpf(95)
NODES = 30
PANELS = 24
MEANS = [-1e6, -1e3, -40.0, -3.0, 0.7, 12.0, 1e3, 1e6]
VARS = [1e-4, 0.3, 20.0, 1e4]


def log_sigmoid(x):
    return -mp.log1p(mp.exp(-x)) if x > -100 else x - mp.log1p(mp.exp(x))


def logistic(scale, power=1, omega=0, label_mean=0):
    """Log-likelihood and its derivative for label y, of the power and the linear factor."""

    def for_label(y):
        tilt = mp.mpf(omega) * scale * (y - mp.mpf(label_mean)) / 2
        return (
            lambda z: power * log_sigmoid(scale * y * z) + tilt * z,
            lambda z: power * scale * y / (1 + mp.exp(scale * y * z)) + tilt,
        )

    return for_label


def probit(variance):
    root = mp.sqrt(mp.mpf(variance))

    def for_label(y):
        return (
            lambda z: mp.log(mp.ncdf(y * z / root)),
            lambda z: y * mp.npdf(y * z / root) / mp.ncdf(y * z / root) / root,
        )

    return for_label


def hinge(y):
    return lambda z: -max(0, 1 - y * z), lambda z: y if y * z < 1 else 0


def flipped(base, flip_prob):
    """Pieces of (1 - g) p(y) + g p(-y)."""
    g = mp.mpf(flip_prob)
    return lambda y: [(1 - g, *base(y)), (g, *base(-y))]


def plain(base):
    return lambda y: [(mp.mpf(1), *base(y))]


def step(noise):
    """noise everywhere, plus 1 - 2 noise on the label's side; the last entry is that side."""
    k = mp.mpf(noise)
    flat = (k, lambda z: mp.mpf(0), lambda z: mp.mpf(0))
    return lambda y: [flat, (1 - 2 * k, flat[1], flat[2], y)] if k else [(1 - 2 * k, flat[1], flat[2], y)]


# The keys are the reprs of the channels in foldless.
SUMS = "integral='exponential-sums'"
UNIT = f"Logistic(scale=1.0, {SUMS})"
BLEND = f"Blended(base={UNIT}, generative_weight=0.5, label_mean=0.0)"
TABLE = {
    UNIT: plain(logistic(mp.mpf(1))),
    f"Logistic(scale=4.0, {SUMS})": plain(logistic(mp.mpf(4))),
    f"Logistic(scale=0.1, {SUMS})": plain(logistic(mp.mpf(0.1))),
    "Probit(variance=1.0)": plain(probit(1)),
    "Probit(variance=0.01)": plain(probit(0.01)),
    "Hinge()": plain(hinge),
    "Step(noise=0.01)": step(0.01),
    "Step(noise=0.0)": step(0),
    BLEND: plain(logistic(mp.mpf(1), mp.mpf(0.5), 0.5)),
    f"Blended(base=Logistic(scale=2.0, {SUMS}), generative_weight=0.9, label_mean=0.3)": plain(
        logistic(mp.mpf(2), 1 - mp.mpf(0.9), 0.9, 0.3)
    ),
    f"Blended(base={UNIT}, generative_weight=0.999999, label_mean=-0.5)": plain(
        logistic(mp.mpf(1), 1 - mp.mpf(0.999999), 0.999999, -0.5)
    ),
    f"FlippedLabels(base={UNIT}, flip_prob=0.01)": flipped(logistic(mp.mpf(1)), 0.01),
    "FlippedLabels(base=Probit(variance=1.0), flip_prob=0.2)": flipped(probit(1), 0.2),
    "FlippedLabels(base=Hinge(), flip_prob=0.05)": flipped(hinge, 0.05),
    f"FlippedLabels(base={BLEND}, flip_prob=0.02)": flipped(logistic(mp.mpf(1), mp.mpf(0.5), 0.5), 0.02),
}

LEGENDRE = []


def legendre():
    """Nodes and weights on [-1, 1], by Newton's method on the Legendre polynomial."""
    if not LEGENDRE:
        for i in range(NODES):
            x = mp.cos(mp.pi * (i + mp.mpf(0.75)) / (NODES + mp.mpf(0.5)))
            for _ in range(8):
                before, at = mp.mpf(1), x
                for k in range(2, NODES + 1):
                    before, at = at, ((2 * k - 1) * x * at - (k - 1) * before) / k
                slope = NODES * (x * at - before) / (x * x - 1)
                x -= at / slope
            LEGENDRE.append((x, 2 / ((1 - x * x) * slope * slope)))
    return LEGENDRE


def bisect(is_left, low, high, steps=160):
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if is_left(middle) else (low, middle)
    return (low + high) / 2


def moments(p, v, log_f, slope_f, side=0):
    """∫ f N(z; p, v) (z - p)^k dz for k = 0, 1, 2, over z with side * z > 0 if a side is given."""
    std = mp.sqrt(v)

    def log_g(z):
        return log_f(z) - (z - p) ** 2 / (2 * v)

    # The slope of the likelihood is largest at the end it comes from; the mode lies between p and there.
    reach = v * max(abs(slope_f(p)), abs(slope_f(mp.mpf(0))), 5) + 10 * std
    floor, ceiling = (
        (mp.mpf(0), mp.inf) if side > 0 else (-mp.inf, mp.mpf(0)) if side < 0 else (-mp.inf, mp.inf)
    )
    mode = bisect(lambda z: slope_f(z) > (z - p) / v, p - reach, p + reach)
    mode = min(max(mode, floor), ceiling)
    top = log_g(mode)

    def edge(direction):
        width = std / 1024
        while log_g(mode + direction * width) > top - DROP:
            width *= 2
        return bisect(lambda z: log_g(mode + direction * z) > top - DROP, mp.mpf(0), width, 60)

    low, high = max(mode - edge(-1), floor), min(mode + edge(1), ceiling)
    cuts = [low + (high - low) * k / PANELS for k in range(PANELS + 1)] + [
        mp.mpf(0),
        mp.mpf(1),
        mp.mpf(-1),
        mode,
    ]
    cuts += [sign * mp.mpf(2) ** k for sign in (-1, 1) for k in range(-6, 12)]
    # The integrand may live on a scale of its own near its mode (a corner of the exponent).
    cuts += [mode + sign * (high - low) * mp.mpf(2) ** -k for sign in (-1, 1) for k in range(5, 24)]
    cuts = sorted({c for c in cuts if low <= c <= high})
    total = [mp.mpf(0)] * 3
    for a, b in pairwise(cuts):
        for x, w in legendre():
            z = (a + b) / 2 + (b - a) / 2 * x
            g = w * (b - a) / 2 * mp.exp(log_g(z))
            d = z - p
            total[0], total[1], total[2] = total[0] + g, total[1] + g * d, total[2] + g * d * d
    return [t / mp.sqrt(2 * mp.pi * v) for t in total]


def response(pieces, p, v):
    sums = [mp.mpf(0)] * 3
    for weight, *piece in pieces:
        sums = [s + weight * m for s, m in zip(sums, moments(p, v, *piece), strict=True)]
    z, first, second = sums
    mean = first / z
    return mp.log(z), mean / v, (v - (second / z - mean**2)) / v**2


def main() -> None:
    path = Path(__file__).with_name("channel_tables.csv")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["channel", "label", "mean", "var", "log_z", "slope", "curvature"])
        for name, pieces in TABLE.items():
            for index, (p, v) in enumerate((p, v) for p in MEANS for v in VARS):
                label = 1 if index % 3 else -1
                values = response(pieces(label), mp.mpf(p), mp.mpf(v))
                writer.writerow([name, label, p, v, *(mp.nstr(value, 17) for value in values)])
            print(name, flush=True)


if __name__ == "__main__":
    main()
