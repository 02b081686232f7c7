"""ONNX: a model as a graph that other runtimes compute, with the probabilities that foldless gives.

Every estimator has its own graph here, made of what `_graph` has. Pipelines of scikit-learn go through
skl2onnx, which is told how to convert the estimators.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.feature_selection import VarianceThreshold
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

import foldless
from foldless.beliefs import Array
from foldless.estimators import PanelClassifier, PrunedBayesClassifier, SMLRClassifier
from foldless.estimators._base import MessagePassingClassifier
from foldless.estimators._bayes_points import BayesPointBase, EPPoint, KnapsackPoint
from foldless.estimators._kernel_basis import FourierBasis
from foldless.estimators._scikit_learn import Classifier, SelectingClassifier
from foldless.estimators.baselines import RVMClassifier, SBMLRClassifier
from foldless.export._graph import Graph
from foldless.io.extras import needs
from foldless.io.files import write_whole

OPSET, IR_VERSION = 17, 8  # read by every runtime since 2022


def write_onnx(model: Any, path: str | Path) -> Path:
    """Write a fitted model, or a pipeline that ends in one, as ONNX; see `to_onnx`.

    Parameters
    ----------
    model : estimator or Pipeline
        Fitted.
    path : str or Path
        Where to write; an existing file is replaced.

    Returns
    -------
    Path
        The file written.
    """
    path = Path(path)
    write_whole(path, to_onnx(model).SerializeToString())
    return path


def to_onnx(model: Any) -> Any:
    """A fitted classifier, or a pipeline of scikit-learn with one, as an ONNX model.

    Its input "X" is float64, (samples, features), of a panel its members in the order of `features_`; its
    outputs are "label" and "probabilities", as those of skl2onnx are (of `OneBitCS`, which has none, "label"
    and "scores"). Probabilities agree with `predict_proba` to 1e-6. Names of features and classes are in the
    model's metadata, as JSON.

    Parameters
    ----------
    model : estimator or Pipeline
        Fitted. Pipelines need skl2onnx, and steps that it can convert.

    Returns
    -------
    onnx.ModelProto
        Serialised by its ``SerializeToString``.
    """
    with needs("onnx", "onnx", "to export models to ONNX"):
        import onnx
    check_is_fitted(model)
    made = _alone(onnx, model) if isinstance(model, Classifier) else _by_skl2onnx(model)
    props = {
        "foldless": foldless.__version__,
        "estimator": type(model).__name__,
        "classes": _as_json(model.classes_),
    }
    last = model[-1] if isinstance(model, Pipeline) else model
    names = vars(last).get("feature_names_") if last is model else None  # of a panel, of its members
    if names is None:
        names = getattr(model, "feature_names_in_", None)
    if names is not None:
        props["features"] = _as_json(names)
    if "preparation_" in vars(last):
        props["prepared"] = (
            "words coded, counts turned and gaps filled by foldless before the model sees a table"
        )
    onnx.helper.set_model_props(made, props)
    onnx.checker.check_model(made)
    return made


def register_with_skl2onnx() -> None:
    """Tell skl2onnx how to convert the estimators, so that its own functions take pipelines with them.

    Convert with ``options={"zipmap": False}``: probabilities are float64, and dictionaries of them are not
    defined by ONNX.
    """
    with needs("skl2onnx", "onnx", "to export pipelines to ONNX"):
        import skl2onnx
    kinds = [getattr(foldless, name) for name in foldless.__all__ if name.endswith("Classifier")]
    for kind in (*kinds, SBMLRClassifier, RVMClassifier):
        skl2onnx.update_registered_converter(
            kind,
            f"Foldless{kind.__name__}",
            _output_types,
            _converted,
            options={"zipmap": [True, False, "columns"]},
        )


# ---------------------------------------------------------------------- whole models


def _alone(onnx: Any, model: Any) -> Any:
    graph = Graph(onnx)
    panel = isinstance(model, PanelClassifier)
    label, found = _outputs(graph, model, "X")
    name = "probabilities" if hasattr(model, "predict_proba") else "scores"
    for inner, outer in ((label, "label"), (found, name)):
        graph.nodes.append(onnx.helper.make_node("Identity", [inner], [outer]))
    make, types = onnx.helper.make_tensor_value_info, onnx.TensorProto
    kind = types.INT64 if model.classes_.dtype.kind in "iu" else types.STRING
    n_columns = model.features_.size if panel else model.n_features_in_
    width = int(model.classes_.size) if name == "probabilities" else 1
    whole = onnx.helper.make_graph(
        graph.nodes,
        "foldless",
        [make("X", types.DOUBLE, [None, int(n_columns)])],
        [make("label", kind, [None]), make(name, types.DOUBLE, [None, width])],
        initializer=list(graph.constants.values()),
    )
    return onnx.helper.make_model(
        whole,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="foldless",
        producer_version=foldless.__version__,
    )


def _outputs(graph: Graph, model: Any, samples: str) -> tuple[str, str]:
    """Labels and probabilities (or scores), of samples in float64."""
    if not hasattr(model, "predict_proba"):
        scores = graph.linear(samples, model.coef_.T, model.intercept_)
        second = graph.op("Greater", graph.op("Squeeze", scores, graph.whole([1])), 0.0)
        return _named(graph, model, graph.to_whole(second)), scores
    for kind, of_kind in PROBABILITIES:
        if isinstance(model, kind):
            found = of_kind(graph, model, samples)
            return _named(graph, model, graph.op("ArgMax", found, axis=1, keepdims=0)), found
    raise ValueError(f"{type(model).__name__} has no ONNX form.")


def _named(graph: Graph, model: Any, positions: str) -> str:
    classes = model.classes_
    whole = classes.dtype.kind in "iu"
    names = classes.astype(np.int64) if whole else np.array([str(label) for label in classes], dtype=object)
    return graph.op("Gather", graph.const(names, names.dtype), positions, axis=0)


def _as_json(names: NDArray[Any]) -> str:
    return json.dumps([name if isinstance(name, int | str) else str(name) for name in names.tolist()])


# ---------------------------------------------------------------------- probabilities of each estimator


def _standardized(graph: Graph, model: Any, samples: str) -> str:
    """Columns centred and scaled first: folding that into weights cancels where offsets are large."""
    centred = graph.op("Sub", samples, graph.const(model._center))
    return graph.op("Div", centred, graph.const(model._scale))


def _two(graph: Graph, both: tuple[str, str]) -> str:
    return graph.op("Concat", both[1], both[0], axis=1)


def _of_average(graph: Graph, model: MessagePassingClassifier, samples: str) -> str:
    samples = _standardized(graph, model, samples)
    squares = graph.op("Mul", samples, samples)
    average, means, total = model._average, dict[Any, str](), ""
    for part, at in zip(average.parts, average.gathered.mean_at, strict=True):
        own, var, certainty = part.weights, None, part.certainty * part.spread
        same = None if at is None else at.start, own.intercept.tobytes()
        if same not in means:
            means[same] = graph.linear(samples, own.mean, own.intercept)
        if certainty > 0:
            var = graph.linear(squares, certainty * own.of_scores, certainty * own.intercept_var)
            var = graph.op("Max", var, float(np.finfo(np.float64).tiny))
        if part.channel.score_shape:
            found = graph.softmax(part.channel, means[same], var)
        else:
            found = _two(graph, graph.both_labels(part.channel, means[same], var))
        found = graph.op("Mul", found, float(part.weight))
        total = graph.op("Add", total, found) if total else found
    return total


def _of_pruned(graph: Graph, model: PrunedBayesClassifier, samples: str) -> str:
    if model._whitening is None:
        return _of_average(graph, model, samples)
    whitening, own = model._whitening, model._average.parts[0].weights
    columns = graph.op("MatMul", _standardized(graph, model, samples), graph.const(whitening.to_components))
    if whitening.to_features is not None:
        columns = graph.op("MatMul", columns, graph.const(whitening.to_features))
    mean = graph.linear(columns, model._column_weights[:, np.newaxis], own.intercept)
    squares = graph.op("Mul", columns, columns)
    var = graph.linear(squares, model._column_var[:, np.newaxis], own.intercept_var)
    return _two(graph, graph.both_labels(model.channel_, mean, var))


def _of_bayes_points(graph: Graph, model: BayesPointBase, samples: str) -> str:
    columns = _standardized(graph, model, samples)
    if isinstance(basis := model._basis, FourierBasis):
        # A cosine: runtimes of two years ago have none in double precision.
        waves = graph.op("Sin", graph.linear(columns, basis.frequencies, basis.phases + 0.5 * np.pi))
        columns = graph.op("Mul", waves, float(basis.scale * np.sqrt(2.0 / basis.phases.size)))
    elif basis is not None:
        gram = graph.kernel(columns, basis.training, basis.kernel, basis.options)
        columns = graph.op("MatMul", gram, graph.const(basis.directions))
    squares, log_odds = graph.op("Mul", columns, columns), []
    for point in model._points:
        mean = graph.linear(columns, point.mean[:, np.newaxis], np.array([point.intercept]))
        if not isinstance(point, EPPoint):
            assert isinstance(point, KnapsackPoint)
            log_odds.append(graph.op("Mul", mean, float(point.log_odds_scale)))
            continue
        var = graph.linear(squares, point.var[:, np.newaxis], np.array([point.intercept_var]))
        var = graph.op("Mul", var, float(point.variance_scale))
        both = graph.both_labels(point.channel.predictive(), mean, var)
        log_odds.append(graph.op("Sub", graph.op("Log", both[0]), graph.op("Log", both[1])))
    if len(log_odds) == 1:
        log_odds = [graph.op("Mul", log_odds[0], sign) for sign in (-0.5, 0.5)]
    return graph.op("Softmax", graph.op("Concat", *log_odds, axis=1), axis=1)


def _of_smlr(graph: Graph, model: SMLRClassifier, samples: str) -> str:
    if model.kernel is not None:
        options = {"gamma": model._kernel_gamma, "degree": model.degree, "coef0": model.coef0}
        samples = graph.kernel(samples, model.basis_, model.kernel, options)
    n_columns, n_classes = len(model._weights_inside), model.classes_.size
    weights, level = np.zeros((n_columns, n_classes)), np.zeros(n_classes)
    weights[:, model._free], level[model._free] = model._weights_inside, model._intercept_inside
    if not n_columns:
        return _always(graph, samples, level)
    return graph.op("Softmax", graph.linear(_standardized(graph, model, samples), weights, level), axis=1)


def _of_panel(graph: Graph, model: PanelClassifier, samples: str) -> str:
    """Of the panel's columns alone, in the order of `features_`."""
    if not model.features_.size:
        raise ValueError("There is no panel: a model that knows only class frequencies has no ONNX form.")
    weights, level = model._weights_inside, model._intercept_inside
    if model.classes_.size == 2:
        weights, level = np.column_stack([np.zeros(len(weights)), weights]), np.append(0.0, level)
    return graph.op("Softmax", graph.linear(_standardized(graph, model, samples), weights, level), axis=1)


def _of_relevance(graph: Graph, model: RVMClassifier, samples: str) -> str:
    level = np.array([0.0, model.intercept_[0]])
    if model.n_kept_ == 0:
        return _always(graph, samples, level)
    if model.kernel is not None:
        options = {"gamma": model._gamma, "degree": 3.0, "coef0": 1.0}
        samples = graph.kernel(samples, model.basis_, model.kernel, options)
    weights = np.column_stack([np.zeros(model.coef_.shape[1]), model.coef_[0]])
    return graph.op("Softmax", graph.linear(samples, weights, level), axis=1)


def _always(graph: Graph, samples: str, level: Array) -> str:
    """The same scores for every sample."""
    size = graph.op("Slice", graph.op("Shape", samples), graph.whole([0]), graph.whole([1]))
    shape = graph.op("Concat", size, graph.whole([level.size]), axis=0)
    return graph.op("Softmax", graph.op("Expand", graph.const(level[np.newaxis]), shape), axis=1)


PROBABILITIES: tuple[tuple[type, Callable[[Graph, Any, str], str]], ...] = (
    (PrunedBayesClassifier, _of_pruned),
    (MessagePassingClassifier, _of_average),
    (BayesPointBase, _of_bayes_points),
    (SMLRClassifier, _of_smlr),
    (PanelClassifier, _of_panel),
    (RVMClassifier, _of_relevance),
)


# ---------------------------------------------------------------------- pipelines


def _by_skl2onnx(model: Any) -> Any:
    register_with_skl2onnx()
    import skl2onnx
    from skl2onnx.common.data_types import DoubleTensorType

    if not is_classifier(model):
        raise ValueError(
            f"{type(model).__name__} is no classifier of foldless, nor a pipeline that ends in a classifier."
        )
    if isinstance(model, Pipeline):
        steps = [(name, _only_selecting(step)) for name, step in model.steps[:-1]]
        model = Pipeline([*steps, model.steps[-1]])
    types = [("X", DoubleTensorType([None, int(model.n_features_in_)]))]
    options = {"zipmap": False}
    last = model[-1] if isinstance(model, Pipeline) else model
    return skl2onnx.convert_sklearn(
        model,
        initial_types=types,
        options={id(last): options},
        target_opset={"": OPSET, "ai.onnx.ml": 3},
        final_types=None,
    )


def _only_selecting(step: Any) -> Any:
    """A classifier that selects features for a later step, as a selector and nothing else."""
    if not isinstance(step, SelectingClassifier):
        return step
    selector = VarianceThreshold(0.5)
    selector.variances_ = step.get_support().astype(np.float64)
    selector.n_features_in_ = step.n_features_in_
    return selector


def _output_types(operator: Any) -> None:
    from skl2onnx.common.data_types import DoubleTensorType, Int64TensorType, StringTensorType

    classes = operator.raw_operator.classes_
    label = Int64TensorType if classes.dtype.kind in "iu" else StringTensorType
    operator.outputs[0].type = label([None])
    operator.outputs[1].type = DoubleTensorType([None, int(classes.size)])


def _converted(scope: Any, operator: Any, container: Any) -> None:
    """The graph of an estimator, within one that skl2onnx makes."""
    import onnx

    model, given = operator.raw_operator, operator.inputs[0]
    graph = Graph(onnx)
    samples = graph.to_float("X")
    if isinstance(model, PanelClassifier) and given.type.shape[1] != model.features_.size:
        samples = graph.op("Gather", samples, graph.whole(model.features_), axis=1)
    label, proba = _outputs(graph, model, samples)
    inner = {"X": given.full_name, label: operator.outputs[0].full_name, proba: operator.outputs[1].full_name}

    def outer(name: str) -> str:
        if name not in inner:
            inner[name] = scope.get_unique_variable_name(f"foldless_{name}")
        return inner[name]

    for name, tensor in graph.constants.items():
        values = onnx.numpy_helper.to_array(tensor)
        container.add_initializer(outer(name), tensor.data_type, list(values.shape), values.ravel().tolist())
    for node in graph.nodes:
        attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        container.add_node(
            node.op_type,
            [outer(name) for name in node.input],
            [outer(name) for name in node.output],
            op_version=OPSET,
            name=scope.get_unique_operator_name(f"foldless_{node.op_type}"),
            **attributes,
        )
