"""Names for files: what a class is called in a model file, whatever the code calls it.

A class takes its name where it is defined, and keeps it when it is moved or renamed:

    @registered("prior/spike-and-slab")
    @dataclass(frozen=True)
    class SpikeAndSlab(Prior): ...

Files are read by looking names up in this table, and nowhere else. What may change, and how, is in
docs/model-files.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

T = TypeVar("T")

# Names in files of earlier versions, and what stands for them now:
#     "prior/bernoulli-gauss": "prior/spike-and-slab"      a class
#     "prior/spike-and-slab.rate": "inclusion"             a field of a class, by the name the class has now
#     "prior/spike-and-slab.cached": None                  a field that is no longer needed
ALIASES: dict[str, str | None] = {"plan/dense.n_parts": None, "plan/sparse.credible_sets": "groups"}

# A room and a thing in it. Kinds of plain values, such as "array", have no slash.
NAME = re.compile(r"[a-z0-9-]+/[a-z0-9-]+")
_named: dict[str, Any] = {}
_names: dict[Any, str] = {}


def registered(name: str) -> Callable[[type[T]], type[T]]:
    """Give a dataclass, a named tuple or an estimator its name; members of an Enum are `name`/member."""

    def register(kind: type[T]) -> type[T]:
        if issubclass(kind, Enum):
            for member in kind:
                _enter(f"{name}/{member.name.lower().replace('_', '-')}", member)
        else:
            _enter(name, kind)
        return kind

    return register


def name_of(thing: object) -> str | None:
    """The name of an object's own class, or of a member of an Enum; None if it has none."""
    return _names.get(thing if isinstance(thing, Enum) else type(thing))


def thing_named(name: object) -> Any:
    """The class or member that has this name, or had it in an earlier version; None if there is none."""
    return _named.get(ALIASES.get(name) or name) if isinstance(name, str) else None


def fields_now(kind: type, stored: dict[str, Any]) -> dict[str, Any]:
    """Fields as a file has them, by the names they have now."""
    current = {field: ALIASES.get(f"{_names[kind]}.{field}", field) for field in stored}
    return {name: stored[field] for field, name in current.items() if name is not None}


def registered_names() -> frozenset[str]:
    """Every name in use."""
    return frozenset(_named)


def _enter(name: str, thing: Any) -> None:
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name for files. They are like 'prior/spike-and-slab'.")
    if name in _named:
        raise ValueError(f"{name!r} is the name of {_named[name]!r} already; {thing!r} needs another.")
    _named[name] = thing
    _names[thing] = name
