"""Component: the base of every prior, channel, solver and tuner.

A component is a frozen dataclass whose fields are its parameters. Data never go into a constructor;
a tuned component is a new object. `get_params` and `set_params` follow the scikit-learn protocol, so
that ``GAMPClassifier(prior=SpikeAndSlab(Gaussian()))`` can be searched over ``prior__slab__variance``
and cloned, without the components knowing scikit-learn.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np

# Nested names of the parameters that an EM step may change; None: all that it can.
Names = frozenset[str] | None


@dataclass(frozen=True)
class Component:
    """Parameters in the constructor, data in the call."""

    # Names of the fields that `em_update` can learn from data; wrappers add those of what they wrap.
    tunable: ClassVar[tuple[str, ...]] = ()
    # Further such names, learnt only when a user names them.
    tunable_on_request: ClassVar[tuple[str, ...]] = ()

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; with ``deep`` also those of nested components, joined by ``__``."""
        params: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        if deep:
            for name, value in list(params.items()):
                if isinstance(value, Component):
                    params |= {f"{name}__{k}": v for k, v in value.get_params().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Change parameters in place: the one exception to immutability, made for parameter searches.

        A search clones an estimator, components included, before it calls this, so no other holder
        sees the change. Everything in foldless itself uses `with_params`.
        """
        updated = self.with_params(**params)
        for f in fields(self):
            object.__setattr__(self, f.name, getattr(updated, f.name))
        return self

    def with_params(self, **params: Any) -> Self:
        """A copy with some parameters changed; ``slab__variance=2.0`` reaches a nested component."""
        own: dict[str, Any] = {}
        nested: dict[str, dict[str, Any]] = {}
        names = {f.name for f in fields(self)}
        for key, value in params.items():
            name, _, rest = key.partition("__")
            if name not in names:
                raise ValueError(
                    f"{type(self).__name__} has no parameter {name!r}. Its parameters are: {sorted(names)}."
                )
            if rest:
                nested.setdefault(name, {})[rest] = value
            else:
                own[name] = value
        for name, inner in nested.items():
            child = own.get(name, getattr(self, name))
            if not isinstance(child, Component):
                raise ValueError(
                    f"{type(self).__name__}.{name} is {child!r}, which has no parameters of its own; "
                    f"got {[f'{name}__{k}' for k in inner]}."
                )
            own[name] = child.with_params(**inner)
        return replace(self, **own)

    def tunable_params(self, on_request: bool = False) -> tuple[str, ...]:
        """Nested names of everything `em_update` can learn, own fields and wrapped components alike."""
        found = list(self.tunable + (self.tunable_on_request if on_request else ()))
        for f in fields(self):
            child = getattr(self, f.name)
            if isinstance(child, Component):
                found += [f"{f.name}__{name}" for name in child.tunable_params(on_request)]
        return tuple(found)


def inner_names(names: frozenset[str] | None, field: str) -> frozenset[str] | None:
    """The part of a set of nested parameter names that concerns one wrapped field; None means all."""
    if names is None:
        return None
    prefix = field + "__"
    return frozenset(name[len(prefix) :] for name in names if name.startswith(prefix))


def wants(names: frozenset[str] | None, field: str) -> bool:
    """Whether a set of parameter names asks for this field; None asks for all."""
    return names is None or field in names


def require_positive(owner: object, field: str, value: Any, advice: str) -> None:
    """A finite number above zero, or a ValueError that says what to do."""
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not (is_number and np.isfinite(value) and value > 0):
        raise ValueError(
            f"{type(owner).__name__}({field}=...) must be a finite number > 0; got {value!r}. {advice}"
        )


def require_between(
    owner: object, name: str, value: Any, low: float, high: float, *, advice: str, high_open: bool = False
) -> None:
    """Raise if a parameter is not a number of the interval; the message says what to do."""
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not (is_number and low <= value and (value < high if high_open else value <= high)):
        interval = f"[{low:g}, {high:g}{')' if high_open else ']'}"
        raise ValueError(
            f"{type(owner).__name__}({name}={value!r}): {name} must be a number in {interval}. {advice}"
        )
