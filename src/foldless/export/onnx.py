"""ONNX: a model as a graph that other runtimes compute, with the probabilities that foldless gives.

Class probabilities are averages over what is not known of a score, E[σ(z)] for z ~ N(m, s²), and, where
several models are averaged, over these. ONNX has no such integral, so it is a sum here, by the trapezoidal
rule, which converges faster than any power of its step for functions like these:

    s < 0.7    Σ h φ(t) σ(m + s t)                over t, multiples of h
    s ≥ 0.7    Σ h σ'(u) Φ((m - u) / s)           over u, multiples of h

Both follow from σ being the distribution function of a logistic variable; steps of 1/2 leave errors far below
float64. Everything is computed in float64 but Φ, since ONNX Runtime has the error function in float32 only,
which is where the 1e-7 of difference to foldless comes from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

import foldless
from foldless.channels import Channel, FlippedLabels, Logistic, Probit
from foldless.estimators import PanelClassifier, SMLRClassifier
from foldless.estimators._base import MessagePassingClassifier
from foldless.io.extras import needs
from foldless.io.files import write_whole

OPSET, IR_VERSION = 17, 8  # read by every runtime since 2022
STEP = 0.5
NARROW = 0.7
# Beyond these, densities of the normal and of the logistic distribution are below 1e-10.
NORMAL_REACH, LOGISTIC_REACH = 6.5, 25.0


def write_onnx(model: Any, path: str | Path) -> Path:
    """Write a fitted model as ONNX; see `to_onnx`."""
    path = Path(path)
    write_whole(path, to_onnx(model).SerializeToString())
    return path


def to_onnx(model: Any) -> Any:
    """A fitted classifier as an ONNX model.

    Its input "X" is float64, (samples, features), of a panel its members in the order of `features_`; its
    outputs are "label" and "probabilities", as those of skl2onnx are. Probabilities agree with
    `predict_proba` to 1e-6.
    """
    with needs("onnx", "onnx", "to export models to ONNX"):
        import onnx
    check_is_fitted(model)
    graph = _Graph(onnx)
    if isinstance(model, SMLRClassifier):
        proba = _softmax_of_scores(graph, model)
    elif isinstance(model, PanelClassifier):
        proba = _softmax_of_panel(graph, model)
    elif _has_known_scores(model):
        proba = _averaged(graph, model)
    else:
        raise ValueError(
            f"{type(model).__name__} of {model.classes_.size} classes has no ONNX form yet. There is one of "
            "SMLRClassifier, of PanelClassifier, and of SparseClassifier and GAMPClassifier for two classes."
        )
    label = _label(graph, model, proba)
    n_columns = model.features_.size if isinstance(model, PanelClassifier) else model.n_features_in_
    made = onnx.helper.make_model(
        graph.finished(n_columns, model.classes_, label, proba),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="foldless",
        producer_version=foldless.__version__,
    )
    onnx.checker.check_model(made)
    return made


def _has_known_scores(model: Any) -> bool:
    """Whether probabilities are those of an average of scores of standardised columns."""
    if not isinstance(model, MessagePassingClassifier) or model.classes_.size != 2:
        return False
    return type(model)._log_proba is MessagePassingClassifier._log_proba


class _Graph:
    """Nodes and constants of a graph that is being built; operations return the name of their result."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def const(self, value: Any, dtype: Any = np.float64) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.array(value, dtype=dtype), name))
        return name

    def normal_cdf(self, x: str) -> str:
        narrow = self.op("Cast", self.op("Mul", x, self.const(np.sqrt(0.5))), to=self.onnx.TensorProto.FLOAT)
        error = self.op("Cast", self.op("Erf", narrow), to=self.onnx.TensorProto.DOUBLE)
        return self.op("Mul", self.op("Add", error, self.const(1.0)), self.const(0.5))

    def finished(self, n_features: int, classes: Any, label: str, proba: str) -> Any:
        make, types = self.onnx.helper.make_tensor_value_info, self.onnx.TensorProto
        self.nodes.append(self.onnx.helper.make_node("Identity", [label], ["label"]))
        self.nodes.append(self.onnx.helper.make_node("Identity", [proba], ["probabilities"]))
        kind = types.INT64 if classes.dtype.kind in "iu" else types.STRING
        return self.onnx.helper.make_graph(
            self.nodes,
            "foldless",
            [make("X", types.DOUBLE, [None, int(n_features)])],
            [make("label", kind, [None]), make("probabilities", types.DOUBLE, [None, int(classes.size)])],
            initializer=self.constants,
        )


def _standardized(graph: _Graph, model: Any) -> str:
    """Columns centred and scaled first: folding that into weights cancels where offsets are large."""
    centred = graph.op("Sub", "X", graph.const(model._center))
    return graph.op("Div", centred, graph.const(model._scale))


def _averaged(graph: _Graph, model: MessagePassingClassifier) -> str:
    samples = _standardized(graph, model)
    squares = graph.op("Mul", samples, samples)
    total: str | None = None
    for part in model._average.parts:
        weights, certainty = part.weights, part.certainty * part.spread
        coef_var = weights.var if weights.score_var is None else weights.score_var
        mean = graph.op("MatMul", samples, graph.const(weights.mean))
        mean = graph.op("Add", mean, graph.const(weights.intercept))
        var = graph.op("MatMul", squares, graph.const(certainty * coef_var))
        var = graph.op("Add", var, graph.const(certainty * weights.intercept_var))
        var = graph.op("Max", var, graph.const(np.finfo(np.float64).tiny))
        share = graph.op("Mul", _positive(graph, part.channel, mean, var), graph.const(part.weight))
        total = share if total is None else graph.op("Add", total, share)
    assert total is not None
    return graph.op("Concat", graph.op("Sub", graph.const(1.0), total), total, axis=1)


def _positive(graph: _Graph, channel: Channel, mean: str, var: str) -> str:
    """The probability of the second class, for scores N(mean, var), both (samples, 1)."""
    match channel:
        case FlippedLabels():
            right = _positive(graph, channel.base, mean, var)
            kept = graph.op("Mul", right, graph.const(1.0 - 2.0 * channel.flip_prob))
            return graph.op("Add", kept, graph.const(channel.flip_prob))
        case Probit():
            spread = graph.op("Sqrt", graph.op("Add", var, graph.const(channel.variance)))
            return graph.normal_cdf(graph.op("Div", mean, spread))
        case Logistic(integral="exponential-sums"):
            scaled = graph.op("Mul", mean, graph.const(channel.scale))
            spread = graph.op("Mul", graph.op("Sqrt", var), graph.const(channel.scale))
            return _mean_sigmoid(graph, scaled, spread)
    raise ValueError(
        f"Probabilities of the channel {channel!r} have no ONNX form. Channels that have one: 'logistic', "
        "'probit', and both as 'robust-...'."
    )


def _mean_sigmoid(graph: _Graph, mean: str, spread: str) -> str:
    axis = graph.const([1], np.int64)
    t = STEP * np.arange(-NORMAL_REACH / STEP, NORMAL_REACH / STEP + 1)
    normal = STEP * np.exp(-0.5 * t**2) / np.sqrt(2 * np.pi)
    inner = graph.op("Add", mean, graph.op("Mul", spread, graph.const(t[np.newaxis])))
    narrow = graph.op("Mul", graph.op("Sigmoid", inner), graph.const(normal[np.newaxis]))
    narrow = graph.op("ReduceSum", narrow, axis, keepdims=1)
    u = STEP * np.arange(-LOGISTIC_REACH / STEP, LOGISTIC_REACH / STEP + 1)
    logistic = STEP * np.exp(-np.abs(u)) / (1.0 + np.exp(-np.abs(u))) ** 2
    # Where the first sum is taken, the second one is computed in vain, but must not divide by nothing.
    wide_spread = graph.op("Max", spread, graph.const(NARROW))
    reached = graph.op("Div", graph.op("Sub", mean, graph.const(u[np.newaxis])), wide_spread)
    wide = graph.op("Mul", graph.normal_cdf(reached), graph.const(logistic[np.newaxis]))
    wide = graph.op("ReduceSum", wide, axis, keepdims=1)
    return graph.op("Where", graph.op("Less", spread, graph.const(NARROW)), narrow, wide)


def _softmax_of_scores(graph: _Graph, model: SMLRClassifier) -> str:
    if model.kernel is not None:
        raise ValueError("A model with a kernel has no ONNX form here. Fit one with kernel=None.")
    n_classes = model.classes_.size
    weights, level = np.zeros((model.n_features_in_, n_classes)), np.zeros(n_classes)
    weights[:, model._free], level[model._free] = model._weights_inside, model._intercept_inside
    scores = graph.op("MatMul", _standardized(graph, model), graph.const(weights))
    return graph.op("Softmax", graph.op("Add", scores, graph.const(level)), axis=1)


def _softmax_of_panel(graph: _Graph, model: PanelClassifier) -> str:
    """Of the panel's columns alone, in the order of `features_`."""
    if not model.features_.size:
        raise ValueError("There is no panel: a model that knows only class frequencies has no ONNX form.")
    weights, level = model._weights_inside, model._intercept_inside
    if model.classes_.size == 2:
        weights, level = np.column_stack([np.zeros(len(weights)), weights]), np.append(0.0, level)
    scores = graph.op("MatMul", _standardized(graph, model), graph.const(weights))
    return graph.op("Softmax", graph.op("Add", scores, graph.const(level)), axis=1)


def _label(graph: _Graph, model: Any, proba: str) -> str:
    classes = model.classes_
    whole = classes.dtype.kind in "iu"
    names = classes.astype(np.int64) if whole else np.array([str(label) for label in classes], dtype=object)
    likeliest = graph.op("ArgMax", proba, axis=1, keepdims=0)
    return graph.op("Gather", graph.const(names, names.dtype), likeliest, axis=0)
