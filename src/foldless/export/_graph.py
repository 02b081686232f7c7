"""Graphs of ONNX, and the functions that predictions are made of: integrals, kernels, softmax.

ONNX has no integral, so averages over a score z ~ N(m, s²) are sums, by the trapezoidal rule, which converges
faster than any power of its step for functions like these:

    E[σ(z)]    s < 0.7    Σ h φ(t) σ(m + s t)                over t, multiples of h
               s ≥ 0.7    Σ h σ'(u) Φ((m - u) / s)           over u, multiples of h

Both follow from σ being the distribution function of a logistic variable; steps of 1/2 leave errors far below
float64. The normal distribution function is a Chebyshev series, since runtimes have the error function in
single precision only. The softmax of several scores is summed over levels as `kernels.gumbel` does it, from
the same table. Everything is float64.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev
from scipy.special import erfcx

from foldless.beliefs import Array
from foldless.channels import Channel, FlippedLabels, Logistic, Multinomial, Probit, Step
from foldless.channels.base import SMALLEST_VAR
from foldless.kernels import gumbel, softened

STEP = 0.5
NARROW = 0.7
# Beyond these, densities of the normal and of the logistic distribution are below 1e-10.
NORMAL_REACH, LOGISTIC_REACH = 6.5, 25.0
# Of the series for the normal distribution function: relative errors of 1e-14, in the tail, too.
N_CHEBYSHEV = 30


class Graph:
    """Nodes and constants of a graph that is being built; operations return the name of their result."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self._known: dict[tuple[Any, ...], str] = {}

    def op(self, kind: str, *inputs: str | float, **attributes: Any) -> str:
        """A node; numbers among its inputs are constants."""
        name = f"{kind.lower()}_{len(self.nodes)}"
        named = [each if isinstance(each, str) else self.const(each) for each in inputs]
        self.nodes.append(self.onnx.helper.make_node(kind, named, [name], **attributes))
        return name

    def const(self, value: Any, dtype: Any = np.float64) -> str:
        """A constant, stored once."""
        array = np.array(value, dtype=dtype)
        key = (
            array.shape,
            array.dtype.str,
            array.tobytes() if array.dtype != object else tuple(array.ravel()),
        )
        if key not in self._known:
            self._known[key] = f"constant_{len(self._known)}"
            self.constants[self._known[key]] = self.onnx.numpy_helper.from_array(array, self._known[key])
        return self._known[key]

    def whole(self, value: Any) -> str:
        return self.const(value, np.int64)

    def to_float(self, name: str) -> str:
        return self.op("Cast", name, to=self.onnx.TensorProto.DOUBLE)

    def to_whole(self, name: str) -> str:
        return self.op("Cast", name, to=self.onnx.TensorProto.INT64)

    def reduced(self, kind: str, name: str, axis: int) -> str:
        """`ReduceSum` takes its axes as an input, the others as an attribute."""
        if kind == "ReduceSum":
            return self.op(kind, name, self.whole([axis]), keepdims=1)
        return self.op(kind, name, axes=[axis], keepdims=1)

    def linear(self, samples: str, weights: Array, intercept: Array) -> str:
        product = self.op("MatMul", samples, self.const(weights))
        return self.op("Add", product, self.const(np.reshape(intercept, (1, -1))))

    def clipped(self, name: str, low: float, high: float) -> str:
        return self.op("Min", self.op("Max", name, low), high)

    # ------------------------------------------------------------------ scores of one number

    def normal_cdf(self, x: str) -> str:
        """Φ, with the same relative accuracy in the tail: erfc(z) = t e^(-z² + P(t)), t = 2/(2 + z)."""
        z = self.op("Mul", self.op("Abs", x), float(np.sqrt(0.5)))
        t = self.op("Div", 2.0, self.op("Add", z, 2.0))
        along = self.op("Sub", self.op("Mul", t, 4.0), 2.0)  # twice what runs from -1 to 1
        last, before = self.const(0.0), self.const(0.0)
        first, *others = _chebyshev()
        for coefficient in reversed(others):
            last, before = (
                self.op("Add", self.op("Sub", self.op("Mul", along, last), before), coefficient),
                last,
            )
        series = self.op("Sub", self.op("Mul", self.op("Mul", along, 0.5), last), before)
        exponent = self.op("Sub", self.op("Add", series, first), self.op("Mul", z, z))
        tail = self.op("Mul", self.op("Mul", t, 0.5), self.op("Exp", exponent))
        return self.op("Where", self.op("Less", x, 0.0), tail, self.op("Sub", 1.0, tail))

    def both_labels(self, channel: Channel, mean: str, var: str | None) -> tuple[str, str]:
        """Probabilities of the second label and of the first, for scores N(mean, var) of any shape.

        Each has its own relative accuracy, so that log-odds can be made of them.
        """
        match channel:
            case FlippedLabels(base, flip_prob):
                return self._flipped(self.both_labels(base, mean, var), flip_prob)
            case Step(noise) if var is not None:
                return self._flipped(self._signs(self.op("Div", mean, self.op("Sqrt", var))), noise)
            case Probit(variance):
                whole = self.const(variance) if var is None else self.op("Add", var, variance)
                return self._signs(self.op("Div", mean, self.op("Sqrt", whole)))
            case Logistic(scale, _) if channel.exact or var is None:
                scaled = self.op("Mul", mean, scale)
                if var is None:
                    return self.op("Sigmoid", scaled), self.op("Sigmoid", self.op("Neg", scaled))
                spread = self.op("Mul", self.op("Sqrt", var), scale)
                tail = self._mean_sigmoid(self.op("Neg", self.op("Abs", scaled)), spread)
                other, positive = self.op("Sub", 1.0, tail), self.op("Greater", mean, 0.0)
                return self.op("Where", positive, other, tail), self.op("Where", positive, tail, other)
        raise ValueError(
            f"Probabilities of the channel {channel!r} have no ONNX form. Channels that have one: "
            "'logistic', 'probit', 'step', and these as 'robust-...'."
        )

    def _signs(self, x: str) -> tuple[str, str]:
        return self.normal_cdf(x), self.normal_cdf(self.op("Neg", x))

    def _flipped(self, both: tuple[str, str], flip_prob: float) -> tuple[str, str]:
        kept = [self.op("Mul", proba, 1.0 - 2.0 * flip_prob) for proba in both]
        return self.op("Add", kept[0], float(flip_prob)), self.op("Add", kept[1], float(flip_prob))

    def _mean_sigmoid(self, mean: str, spread: str) -> str:
        """E[σ(z)], for a last axis of one."""
        t = STEP * np.arange(-NORMAL_REACH / STEP, NORMAL_REACH / STEP + 1)
        normal = STEP * np.exp(-0.5 * t**2) / np.sqrt(2 * np.pi)
        inner = self.op("Add", mean, self.op("Mul", spread, self.const(t)))
        narrow = self.op(
            "MatMul", self.op("Sigmoid", inner), self.const((normal / normal.sum())[:, np.newaxis])
        )
        u = STEP * np.arange(-LOGISTIC_REACH / STEP, LOGISTIC_REACH / STEP + 1)
        logistic = STEP * np.exp(-np.abs(u)) / (1.0 + np.exp(-np.abs(u))) ** 2
        # Where the first sum is taken, the second one is computed in vain, but must not divide by nothing.
        wide_spread = self.op("Max", spread, NARROW)
        reached = self.op("Div", self.op("Sub", mean, self.const(u)), wide_spread)
        wide = self.op("MatMul", self.normal_cdf(reached), self.const(logistic[:, np.newaxis]))
        return self.op("Where", self.op("Less", spread, NARROW), narrow, wide)

    # ------------------------------------------------------------------ scores of all classes

    def softmax(self, channel: Channel, mean: str, var: str | None) -> str:
        """Probabilities of all classes, for independent scores N(mean, var), (samples, classes)."""
        if isinstance(channel, FlippedLabels):
            floor = channel.flip_prob / (channel.score_shape[0] - 1)
            kept = self.op("Mul", self.softmax(channel.base, mean, var), 1.0 - channel.score_shape[0] * floor)
            return self.op("Add", kept, float(floor))
        if not isinstance(channel, Multinomial):
            raise ValueError(f"Probabilities of the channel {channel!r} have no ONNX form.")
        if var is None:
            return self.op("Softmax", mean, axis=1)
        var = self.op("Max", var, float(SMALLEST_VAR))
        excess = self.op("Div", self.reduced("ReduceMax", var, 1), softened.WIDEST)
        unit = self.op("Sqrt", self.op("Max", excess, 1.0))
        mean = self.op("Div", mean, unit)
        var = self.op("Min", self.op("Div", var, self.op("Mul", unit, unit)), softened.WIDEST)
        level, used = self._levels(mean, var, channel.n_classes)
        axis = self.whole([1])
        shifted = self.op(
            "Sub", self.op("Unsqueeze", mean, axis), self.op("Unsqueeze", level, self.whole([2]))
        )
        log_f, log_pull = self._softened(shifted, self.op("Unsqueeze", var, axis))
        log_weight = self.reduced("ReduceSum", log_f, 2)
        log_terms = self.op("Add", log_pull, log_weight)
        log_terms = self.op("Where", self.op("Unsqueeze", used, self.whole([2])), log_terms, -np.inf)
        return self.op("Softmax", self.op("ReduceLogSumExp", log_terms, axes=[1], keepdims=0), axis=1)

    def _levels(self, mean: str, var: str, n_classes: int) -> tuple[str, str]:
        """`gumbel.levels_of_the_largest`: (samples, levels), and which of them are a sample's own."""
        reach = self.op("Sqrt", self.op("Mul", var, 2 * gumbel.NEGLIGIBLE))
        lowest = self.reduced("ReduceMax", self.op("Sub", mean, reach), 1)
        lowest = self.op("Sub", lowest, float(np.log(gumbel.NEGLIGIBLE)))
        highest = self.reduced("ReduceMax", self.op("Add", mean, reach), 1)
        highest = self.op("Add", highest, float(gumbel.NEGLIGIBLE + np.log(n_classes)))
        sharpest = self.op("Sqrt", self.op("Add", self.reduced("ReduceMin", var, 1), 1.0))
        width = self.op("Div", sharpest, float(np.sqrt(np.log(n_classes))))
        step = self.op(
            "Min", self.op("Mul", sharpest, gumbel.LEVEL_STEP), self.op("Mul", width, gumbel.PRODUCT_STEP)
        )
        step = self.op("Max", step, self.op("Mul", width, gumbel.SHORTEST_STEP))
        span = self.op("Sub", highest, lowest)
        number = self.clipped(self.op("Ceil", self.op("Div", span, step)), 1.0, float(gumbel.MOST_LEVELS))
        most = self.op("Add", self.to_whole(self.op("ReduceMax", number, keepdims=0)), self.whole(1))
        each = self.to_float(self.op("Range", self.whole(0), most, self.whole(1)))
        each = self.op("Unsqueeze", each, self.whole([0]))
        level = self.op("Add", lowest, self.op("Mul", each, self.op("Div", span, number)))
        return level, self.op("LessOrEqual", each, number)

    def _softened(self, x: str, var: str) -> tuple[str, str]:
        """`softened.Widths.at`: log F and log of minus its derivative, at arguments (samples, levels, D)."""
        begins, powers = softened.table().begins, softened.table().by_power
        unit = self.op("Mul", self.op("Sqrt", self.op("Add", var, 1.0)), softened.SCORE_STEP)
        stretched = self.op("Add", self.op("Div", var, softened.SMALLEST_WIDTH), 1.0)
        t = self.op("Div", self.op("Log", stretched), softened.WIDTH_STEP)
        part = self.clipped(self.op("Floor", t), 0.0, float(begins.size - 2))
        position, place = self.op("Sub", t, part), self.to_whole(part)
        begin = self.op("Gather", self.whole(begins), place)
        last = self.to_float(self.op("Gather", self.whole(np.diff(begins) - 1), place))
        s = self.op("Sub", self.op("Div", x, unit), softened.LEFT_END / softened.SCORE_STEP)
        inside = self.op("Min", self.op("Max", s, 0.0), self.op("Add", last, 1.0))
        cell = self.op("Min", self.op("Floor", inside), last)
        along = self.op("Sub", inside, cell)
        patch = self.op("Add", begin, self.to_whole(cell))
        value, slope = self.const(0.0), self.const(0.0)
        for power in reversed(range(softened.S_POWERS)):
            coefficient = self.op("Gather", self.const(powers[2 * softened.S_POWERS + power]), patch)
            for lower in (softened.S_POWERS + power, power):
                below = self.op("Gather", self.const(powers[lower]), patch)
                coefficient = self.op("Add", self.op("Mul", coefficient, position), below)
            slope = self.op("Add", self.op("Mul", slope, along), value)
            value = self.op("Add", self.op("Mul", value, along), coefficient)
        value = self.op("Add", value, self.op("Mul", slope, self.op("Sub", s, inside)))
        log_f = self.op("Neg", self.op("Exp", value))
        return log_f, self.op("Add", value, self.op("Log", self.op("Div", slope, unit)))

    # ------------------------------------------------------------------ kernels

    def kernel(self, samples: str, others: Any, kernel: Any, options: dict[str, float]) -> str:
        """Of every sample with every one of the others, as `pairwise_kernels` has it."""
        others = np.asarray(others.toarray() if hasattr(others, "toarray") else others, dtype=np.float64)
        products = self.op("MatMul", samples, self.const(others.T))
        gamma = float(options["gamma"])
        if kernel == "linear":
            return products
        if kernel in ("poly", "polynomial", "sigmoid"):
            inner = self.op("Add", self.op("Mul", products, gamma), float(options["coef0"]))
            return (
                self.op("Tanh", inner)
                if kernel == "sigmoid"
                else self.op("Pow", inner, float(options["degree"]))
            )
        if kernel == "rbf":
            own = self.reduced("ReduceSum", self.op("Mul", samples, samples), 1)
            squares = self.op("Add", own, self.const(np.square(others).sum(axis=1)[np.newaxis]))
            distance = self.op("Max", self.op("Sub", squares, self.op("Mul", products, 2.0)), 0.0)
            return self.op("Exp", self.op("Mul", distance, -gamma))
        raise ValueError(
            f"kernel={kernel!r} has no ONNX form. Kernels that have one: 'linear', 'poly', 'rbf', 'sigmoid'; "
            "or fit with kernel=None."
        )


@cache
def _chebyshev() -> tuple[float, ...]:
    """Of log(erfcx(z)/t) in t = 2/(2 + z), from 0 to 1."""

    def of(along: Any) -> Any:
        t = (along + 1.0) / 2.0
        return np.log(erfcx(2.0 / t - 2.0) / t)

    return tuple(float(each) for each in chebyshev.chebinterpolate(of, N_CHEBYSHEV))
