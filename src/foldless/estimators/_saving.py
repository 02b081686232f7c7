"""Models as data: saved without code, loaded without running any.

A model is its class by name, its parameters and its fitted attributes. What these consist of is written
down as plain values and arrays (`io.archive`); classes among them are looked up by name among foldless's own
and made by their own constructors, which check what they are given. Any other name is an error, so a file can
only ever become what foldless consists of.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

import foldless
from foldless import channels, priors
from foldless.io.archive import Archive, BadModelFile, read_archive, write_archive
from foldless.solution import Outcome

# Of the last fit's machinery, not of the model.
NOT_SAVED = {"_warm", "_on_iteration", "_groups", "checkpoint"}
# Rooms whose plain classes (dataclasses and named tuples) a model may consist of.
ROOMS = frozenset({"priors", "channels", "solution", "solvers", "selection", "tuning", "estimators"})
# Where estimators are.
ESTIMATORS = ("classifier", "gamp", "smlr", "bayes_point", "ep_bayes_point", "pruned", "baselines")
# Kinds of NumPy's types that are stored as they are: booleans, whole numbers, floating-point numbers.
STORED_KINDS = "biuf"
FLOATS = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}


class Saved:
    """An estimator that can be saved as data and comes back with `foldless.load`."""

    def save(self, path: str | Path) -> Path:
        """Write the fitted model to a file of data; `foldless.load` brings it back.

        The file holds parameters, fitted attributes and no code: loading it executes nothing. A warm start
        begins anew after loading. An existing file is replaced, whole or not at all.
        """
        check_is_fitted(self)
        path = Path(path)
        writer = _Writer()
        params = self.get_params(deep=False)  # type: ignore[attr-defined]
        params = {name: value for name, value in params.items() if name not in NOT_SAVED}
        fitted = {k: v for k, v in vars(self).items() if k not in params and k not in NOT_SAVED}
        document = {
            "class": type(self).__name__,
            "params": {name: writer.plain(value, name) for name, value in params.items()},
            "fitted": {name: writer.plain(value, name) for name, value in fitted.items()},
        }
        metadata = {"foldless": foldless.__version__, "class": type(self).__name__}
        write_archive(path, Archive(metadata, document, writer.arrays))
        return path


def load(path: str | Path) -> Any:
    """The model that `model.save` wrote; predictions are the same to the last bit.

    Nothing in the file is executed. Damaged and foreign files raise `ValueError` with a remedy.
    """
    path = Path(path)
    archive = read_archive(path)
    reader = _Reader(path, archive.arrays)
    document = reader.mapping(archive.document, "the document")
    name = document.get("class")
    estimator = estimator_classes().get(name) if isinstance(name, str) else None
    if estimator is None:
        raise BadModelFile(
            path,
            f"it is a {name!r}, which this foldless does not have.",
            f"It has {sorted(estimator_classes())}. Install the version that made the file.",
        )
    parts = {
        part: {k: reader.value(v, k) for k, v in reader.mapping(document.get(part), part).items()}
        for part in ("params", "fitted")
    }
    known = set(inspect.signature(estimator).parameters)
    if not set(parts["params"]) <= known:
        unknown = sorted(set(parts["params"]) - known)
        raise reader.bad(f"{name} has no parameters {unknown}.", "Install the version that made the file.")
    model = estimator(**parts["params"])
    for attribute, value in parts["fitted"].items():
        # Methods are the class's own; a file has no say in them.
        if attribute.startswith("__") or callable(getattr(estimator, attribute, None)) or attribute in known:
            raise reader.bad(f"{attribute!r} is no attribute of a fitted {name}.", reader.REMEDY)
        setattr(model, attribute, value)
    _check_shapes(reader, model)
    return model


@cache
def public_components() -> dict[str, type]:
    """Priors and channels, known by their names alone wherever they are kept."""
    things = [getattr(room, name) for room in (priors, channels) for name in room.__all__]
    return {thing.__name__: thing for thing in things if isinstance(thing, type) and is_plain(thing)}


def is_plain(kind: type) -> bool:
    """Whether objects of this class are their fields and nothing else."""
    return is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


def part_name(kind: type) -> str | None:
    """What a class is called in a file: by its own name, or by its place in foldless; None for all others."""
    if public_components().get(kind.__name__) is kind:
        return kind.__name__
    package, _, place = kind.__module__.partition(".")
    own = package == "foldless" and place.partition(".")[0] in ROOMS
    return f"{place}.{kind.__qualname__}" if own and is_plain(kind) else None


def part_named(name: object) -> type | None:
    """The class of that name, if it is one that `part_name` would name so and foldless has in use."""
    if not isinstance(name, str):
        return None
    place, _, own_name = name.rpartition(".")
    if not place:
        return public_components().get(name)
    # Nothing is imported because a file says so: what models consist of came with the estimators.
    thing = getattr(sys.modules.get(f"foldless.{place}"), own_name, None)
    return thing if isinstance(thing, type) and part_name(thing) == name else None


def estimator_classes() -> dict[str, Callable[..., Any]]:
    """Every estimator that can be saved, by name; those of others once they are imported."""
    for module in ESTIMATORS:  # each is otherwise loaded when it is first asked for
        import_module(f"foldless.estimators.{module}")
    found: dict[str, Callable[..., Any]] = {}
    waiting = list(Saved.__subclasses__())
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if not inspect.isabstract(kind) and not kind.__name__.startswith("_"):
            found[kind.__name__] = kind
    return found


class _Writer:
    """Values as JSON can hold them; arrays are put aside under names, shared ones once."""

    def __init__(self) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}
        self._names: dict[int, str] = {}
        self._alive: list[Any] = []  # an id is only an array's own as long as the array lives

    def plain(self, value: Any, where: str) -> Any:
        match value:
            case None | bool() | str():
                return str(value) if isinstance(value, np.str_) else value
            case Outcome():
                return {"$": "Outcome", "value": value.value}
            case np.generic():
                return self._scalar(value, where)
            case int():
                return int(value)
            case float():
                return value if np.isfinite(value) else {"$": "float", "value": str(value)}
            case np.ndarray():
                return self._array(value, where)
            case dict():
                return {
                    "$": "dict",
                    "items": [
                        [self.plain(k, where), self.plain(v, f"{where}[{k!r}]")] for k, v in value.items()
                    ],
                }
            case list():
                return [self.plain(item, where) for item in value]
            case set() | frozenset():
                return {"$": "set", "items": [self.plain(item, where) for item in sorted(value, key=repr)]}
        if sp.issparse(value):
            return self._sparse(value, where)
        if (name := part_name(type(value))) is not None:
            parts = {
                each: self.plain(getattr(value, each), f"{where}.{each}") for each in _field_names(value)
            }
            return {"$": name, "fields": parts}
        if isinstance(value, tuple):
            return {"$": "tuple", "items": [self.plain(item, where) for item in value]}
        raise TypeError(
            f"{where} is {_described(value)}, which cannot be written as data. Functions, and classes that "
            "are not foldless's own, cannot be saved: pass a name instead, or keep this model by other means."
        )

    def _scalar(self, value: np.generic, where: str) -> Any:
        if value.dtype.kind not in STORED_KINDS:
            raise TypeError(f"{where} is {_described(value)}, which cannot be written as data.")
        return {"$": "scalar", "dtype": value.dtype.name, "value": self.plain(value.item(), where)}

    def _array(self, value: NDArray[Any], where: str) -> Any:
        if value.dtype.kind in "OU":
            dtype = "object" if value.dtype.kind == "O" else "str"
            items = [self.plain(item, where) for item in value.ravel().tolist()]
            return {"$": "texts", "dtype": dtype, "shape": list(value.shape), "items": items}
        if value.dtype.kind not in STORED_KINDS or not value.dtype.isnative:
            raise TypeError(f"{where} is an array of {value.dtype}, which cannot be written as data.")
        # Products of matrices may depend in their last bit on the order of storage.
        fortran = value.ndim > 1 and value.flags.f_contiguous and not value.flags.c_contiguous
        name = self._names.get(id(value))
        if name is None:
            name = self._names[id(value)] = f"array-{len(self.arrays)}"
            self._alive.append(value)
            self.arrays[name] = np.ascontiguousarray(value).reshape(value.shape)
        return {"$": "array", "name": name, "order": "F" if fortran else "C"}

    def _sparse(self, value: Any, where: str) -> Any:
        if value.format not in ("csr", "csc"):
            value = value.tocsr()
        return {
            "$": "sparse",
            "format": value.format,
            "matrix": isinstance(value, sp.spmatrix),
            "shape": list(value.shape),
            **{part: self._array(getattr(value, part), where) for part in ("data", "indices", "indptr")},
        }


class _Reader:
    """The way back, from a file that may have been made by anybody."""

    REMEDY = "It is damaged or was made by another program: fit and save the model again."

    def __init__(self, path: Path, arrays: dict[str, NDArray[Any]]) -> None:
        self.path, self.arrays = path, arrays

    def bad(self, problem: str, remedy: str) -> BadModelFile:
        return BadModelFile(self.path, problem, remedy)

    def mapping(self, value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.bad(f"{where} should be a mapping.", self.REMEDY)
        return value

    def value(self, plain: Any, where: str) -> Any:
        if isinstance(plain, list):
            return [self.value(item, where) for item in plain]
        if not isinstance(plain, dict):
            return plain
        try:
            return self._made(plain, where)
        except BadModelFile:
            raise
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise self.bad(f"{where} cannot be made of what is there ({reason}).", self.REMEDY) from None

    def _made(self, plain: dict[str, Any], where: str) -> Any:
        match kind := plain["$"]:
            case "float":
                return FLOATS[plain["value"]]
            case "Outcome":
                return Outcome(plain["value"])
            case "scalar":
                return self._dtype(plain["dtype"]).type(self.value(plain["value"], where))
            case "array":
                array = self.arrays[plain["name"]]
                return np.asfortranarray(array) if plain["order"] == "F" else array
            case "texts":
                return self._texts(plain, where)
            case "sparse":
                return self._sparse(plain, where)
            case "dict":
                return {self.value(k, where): self.value(v, where) for k, v in plain["items"]}
            case "tuple":
                return tuple(self.value(item, where) for item in plain["items"])
            case "set":
                return frozenset(self.value(item, where) for item in plain["items"])
        part = part_named(kind)
        if part is None:
            raise self.bad(
                f"{where} is a {kind!r}, which this foldless does not have.",
                "Install the version that made the file.",
            )
        parts = self.mapping(plain["fields"], where)
        return part(**{name: self.value(value, f"{where}.{name}") for name, value in parts.items()})

    def _dtype(self, name: str) -> np.dtype[Any]:
        dtype = np.dtype(name)
        if dtype.kind not in STORED_KINDS:
            raise ValueError(f"{name} is not a type of numbers")
        return dtype

    def _texts(self, plain: dict[str, Any], where: str) -> NDArray[Any]:
        items = [self.value(item, where) for item in plain["items"]]
        if plain["dtype"] == "str":
            if not all(isinstance(item, str) for item in items):
                raise ValueError("texts that are none")
            return np.array(items, dtype=str).reshape(plain["shape"])
        array = np.empty(len(items), dtype=object)
        array[:] = items
        return array.reshape(plain["shape"])

    def _sparse(self, plain: dict[str, Any], where: str) -> Any:
        parts = tuple(self.value(plain[part], where) for part in ("data", "indices", "indptr"))
        kinds = {
            ("csr", True): sp.csr_matrix,
            ("csr", False): sp.csr_array,
            ("csc", True): sp.csc_matrix,
            ("csc", False): sp.csc_array,
        }
        matrix = kinds[plain["format"], bool(plain["matrix"])](parts, shape=tuple(plain["shape"]))
        # Indices beyond the matrix would be read from memory that is not ours.
        matrix.check_format(full_check=True)
        return matrix


def _check_shapes(reader: _Reader, model: Any) -> None:
    """What every prediction relies on."""
    for name in ("classes_", "n_features_in_"):
        if not hasattr(model, name):
            raise reader.bad(f"{name} is missing.", reader.REMEDY)
    classes, n_features = model.classes_, model.n_features_in_
    if not (isinstance(classes, np.ndarray) and classes.ndim == 1 and classes.size >= 2):
        raise reader.bad("classes_ is no list of two classes or more.", reader.REMEDY)
    if not isinstance(n_features, int) or n_features < 1:
        raise reader.bad("n_features_in_ is no number of features.", reader.REMEDY)
    names = getattr(model, "feature_names_in_", None)
    if names is not None and (not isinstance(names, np.ndarray) or names.shape != (n_features,)):
        raise reader.bad("feature_names_in_ does not name every feature.", reader.REMEDY)
    # With a kernel, or random features in its place, weights are not those of features.
    if getattr(model, "kernel", None) is not None or getattr(model, "random_features", False):
        return
    for name in ("coef_", "coef_std_"):
        value = getattr(model, name, None)
        if value is not None and np.shape(value)[-1:] != (n_features,):
            raise reader.bad(f"{name} does not have {n_features} columns.", reader.REMEDY)


def _field_names(value: Any) -> list[str]:
    return [f.name for f in fields(value) if f.init] if is_dataclass(value) else list(value._fields)


def _described(value: Any) -> str:
    return f"of type {type(value).__module__}.{type(value).__qualname__}"
