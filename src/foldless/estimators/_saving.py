"""Models as data: saved without code, loaded without running any.

A model is the registered name of its class, its parameters and its fitted attributes. What these consist of
is written down as plain values and arrays (`io.archive`); classes among them go by their registered names
(`foldless.registry`) and are made by their own constructors, which check what they are given. Any other name
is an error, so a file can only ever become what is registered. The policy is docs/model-files.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

import foldless
from foldless import estimators
from foldless.io.archive import FORMAT, Archive, BadModelFile, read_archive, write_archive
from foldless.io.names import printable
from foldless.registry import fields_now, name_of, thing_named

# Of the last fit's machinery, not of the model.
NOT_SAVED = {"_warm", "_on_iteration", "_groups", "checkpoint"}
# What turns the document of format n, by n, into one of format n + 1.
CHANGES: dict[int, Callable[[Any], Any]] = {}
# Kinds of NumPy's types that are stored as they are: booleans, whole numbers, floating-point numbers.
STORED_KINDS = "biuf"
FLOATS = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}
# What values of the wrong kind or shape raise.
MALFORMED = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError)


class Saved:
    """An estimator that can be saved as data and comes back with `foldless.load`."""

    _not_saved: frozenset[str] = frozenset()  # of what a class has beyond its model

    def save(self, path: str | Path) -> Path:
        """Write the fitted model to a file of data; `foldless.load` brings it back.

        The file holds parameters, fitted attributes and no code: loading it executes nothing. A warm start
        begins anew after loading. An existing file is replaced, whole or not at all.

        Parameters
        ----------
        path : str or Path
            The file, by custom ``.safetensors``.

        Returns
        -------
        Path
            The file written.
        """
        check_is_fitted(self)
        path = Path(path)
        if (kind := name_of(self)) is None:
            raise TypeError(_nameless(self, "the model"))
        writer, left_behind = _Writer(), NOT_SAVED | self._not_saved
        params = self.get_params(deep=False)  # type: ignore[attr-defined]
        params = {name: value for name, value in params.items() if name not in left_behind}
        fitted = {k: v for k, v in vars(self).items() if k not in params and k not in left_behind}
        document = {
            "class": kind,
            "params": {name: writer.plain(value, name) for name, value in params.items()},
            "fitted": {name: writer.plain(value, name) for name, value in fitted.items()},
        }
        metadata = {"foldless": foldless.__version__, "class": kind}
        write_archive(path, Archive(metadata, document, writer.arrays))
        return path


def load(path: str | Path) -> Any:
    """The model that `model.save` wrote, or that is in a folder of `foldless fit`; predictions are the same.

    Files of earlier versions are read as well. Nothing in a file is executed. Damaged and foreign files raise
    `ValueError` with a remedy.
    """
    path = Path(path)
    register_all()
    archive = read_archive(path)
    reader = _Reader(path, archive)
    try:
        document = archive.document
        for number in range(archive.metadata["format"], FORMAT):
            document = CHANGES[number](document)
        model = reader.model(document)
    except BadModelFile:
        raise
    except MALFORMED as error:
        raise reader.bad(f"the document cannot be read ({type(error).__name__}: {error}).") from None
    _check_shapes(reader, model)
    return model


def register_all() -> None:
    """Complete the table of registered names: every class of a model comes with one of the estimators.

    They are otherwise imported when they are first used. Nothing is imported because a file names it.
    """
    from foldless.estimators import _preparation, baselines  # noqa: F401

    for name in estimators.__all__:
        getattr(estimators, name)


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
            case np.generic() if value.dtype.kind in STORED_KINDS:
                return {"$": "scalar", "dtype": value.dtype.name, "value": self.plain(value.item(), where)}
            case int():
                return int(value)
            case float():
                return value if np.isfinite(value) else {"$": "float", "value": str(value)}
            case np.ndarray():
                return self._array(value, where)
            case dict():
                items = [[self.plain(k, where), self.plain(v, f"{where}[{k!r}]")] for k, v in value.items()]
                return {"$": "dict", "items": items}
            case list():
                return [self.plain(item, where) for item in value]
            case set() | frozenset():
                return {"$": "set", "items": [self.plain(item, where) for item in sorted(value, key=repr)]}
        if sp.issparse(value):
            return self._sparse(value, where)
        if type(value) is tuple:
            return {"$": "tuple", "items": [self.plain(item, where) for item in value]}
        if (name := name_of(value)) is None:
            raise TypeError(_nameless(value, where))
        names = () if isinstance(value, Enum) else _field_names(type(value))
        return {"$": name} | {field: self.plain(getattr(value, field), f"{where}.{field}") for field in names}

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
        value = value if value.format in ("csr", "csc") else value.tocsr()
        return {
            "$": "sparse",
            "format": value.format,
            "matrix": isinstance(value, sp.spmatrix),
            "shape": list(value.shape),
            **{part: self._array(getattr(value, part), where) for part in ("data", "indices", "indptr")},
        }


class _Reader:
    """The way back, from a file that may have been made by anybody."""

    def __init__(self, path: Path, archive: Archive) -> None:
        self.path, self.arrays = path, archive.arrays
        self.version = printable(archive.metadata.get("foldless", "of an unknown version"))

    def bad(self, problem: str) -> BadModelFile:
        return BadModelFile(
            self.path, problem, "It is damaged or was made by another program: fit and save the model again."
        )

    def unknown(self, problem: str) -> BadModelFile:
        return BadModelFile(self.path, problem, f"Install foldless {self.version}, which made it, or newer.")

    def model(self, document: Any) -> Any:
        name = document["class"]
        estimator = thing_named(name)
        if not _is_estimator(estimator):
            raise self.unknown(f"it is a {name!r}, which this foldless does not have.")
        params = inspect.signature(estimator).parameters
        model = estimator(**self.fields(estimator, document["params"], name, params))
        for attribute, value in self.fields(estimator, document["fitted"], name).items():
            # Methods are the class's own; a file has no say in them.
            own = callable(getattr(estimator, attribute, None)) or attribute in params
            if own or attribute.startswith("__"):
                raise self.bad(f"{attribute!r} is no attribute of a fitted {name}.")
            setattr(model, attribute, value)
        return model

    def fields(
        self, kind: type, stored: Any, where: str, known: Iterable[str] | None = None
    ) -> dict[str, Any]:
        """Values by the names that they have now, of those that are known if these are given."""
        current = fields_now(kind, stored)
        if known is not None and (unknown := sorted(set(current) - set(known))):
            raise self.unknown(f"{where} has {unknown}, which this foldless does not have.")
        return {name: self.value(value, f"{where}.{name}") for name, value in current.items()}

    def value(self, plain: Any, where: str) -> Any:
        if isinstance(plain, list):
            return [self.value(item, where) for item in plain]
        if not isinstance(plain, dict):
            return plain
        try:
            return self._made(plain, where)
        except BadModelFile:
            raise
        except MALFORMED as error:
            reason = f"{type(error).__name__}: {error}"
            raise self.bad(f"{where} cannot be made of what is there ({reason}).") from None

    def _made(self, plain: dict[str, Any], where: str) -> Any:
        match kind := plain["$"]:
            case "float":
                return FLOATS[plain["value"]]
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
        thing = thing_named(kind)
        if isinstance(thing, Enum):
            return thing
        if thing is None or _is_estimator(thing):
            raise self.unknown(f"{where} is a {kind!r}, which this foldless does not have.")
        stored = {name: value for name, value in plain.items() if name != "$"}
        return thing(**self.fields(thing, stored, where, _field_names(thing)))

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
        classes = {"csr": (sp.csr_array, sp.csr_matrix), "csc": (sp.csc_array, sp.csc_matrix)}
        matrix = classes[plain["format"]][bool(plain["matrix"])](parts, shape=tuple(plain["shape"]))
        # Indices beyond the matrix would be read from memory that is not ours.
        matrix.check_format(full_check=True)
        return matrix


def _check_shapes(reader: _Reader, model: Any) -> None:
    """What every prediction relies on."""
    for name in ("classes_", "n_features_in_"):
        if not hasattr(model, name):
            raise reader.bad(f"{name} is missing.")
    classes, n_features = model.classes_, model.n_features_in_
    if not (isinstance(classes, np.ndarray) and classes.ndim == 1 and classes.size >= 2):
        raise reader.bad("classes_ is no list of two classes or more.")
    if not isinstance(n_features, int) or n_features < 1:
        raise reader.bad("n_features_in_ is no number of features.")
    names = getattr(model, "feature_names_in_", None)
    if names is not None and (not isinstance(names, np.ndarray) or names.shape != (n_features,)):
        raise reader.bad("feature_names_in_ does not name every feature.")
    # With a kernel, or random features in its place, weights are not those of features.
    if getattr(model, "kernel", None) is not None or getattr(model, "random_features", False):
        return
    # A panel has weights of its members.
    n_weights = np.size(getattr(model, "features_", range(n_features)))
    for name in ("coef_", "coef_std_"):
        value = getattr(model, name, None)
        if value is not None and np.shape(value)[-1:] != (n_weights,):
            raise reader.bad(f"{name} does not have {n_weights} columns.")
    for name in ("coef_", "intercept_"):
        if not np.all(np.isfinite(getattr(model, name, 0.0))):
            raise reader.bad(f"{name} has values that are not finite.")


def _field_names(kind: type) -> list[str]:
    return [f.name for f in fields(kind) if f.init] if is_dataclass(kind) else list(kind._fields)  # type: ignore[attr-defined]


def _is_estimator(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, Saved)


def _nameless(value: Any, where: str) -> str:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    return (
        f"{where} is of type {kind}, which cannot be written as data. Functions cannot be saved: pass a "
        "name instead. Classes of your own can, once foldless.registry.registered has given them a name."
    )
