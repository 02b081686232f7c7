"""Docstrings in the format of numpydoc that say once what classes share.

A class describes the parameters and attributes that it adds, and takes over what its bases say of the others.
A method that replaces another describes what is new, and takes over its sections. `help` shows the whole.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

TITLE = re.compile(r"^(\w[\w ]*)\n-{3,}\n", flags=re.MULTILINE)
# Sections of a class that consist of entries, each with its names first.
BY_NAME = ("Parameters", "Attributes")


class Documented:
    """The base of classes that take over what their bases describe."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, method in vars(cls).items():
            if inspect.isfunction(method) and not name.startswith("_"):
                replaced = (vars(base).get(name) for base in cls.__mro__[1:])
                if (other := next(filter(inspect.isfunction, replaced), None)) is not None:
                    like(other)(method)
        lead, own = _sections(cls.__doc__)
        parameters = inspect.signature(cls).parameters if "__init__" in vars(cls) else None
        found = {title: _entries(own.pop(title, "")) for title in BY_NAME}
        for base in cls.__mro__[1:]:
            described = _sections(base.__doc__)[1]
            for title, entries in found.items():
                known = parameters if title == "Parameters" else None
                for names, entry in _entries(described.get(title, "")).items():
                    wanted = known is None or known.keys() >= set(names)
                    if wanted and not any(set(names) & set(each) for each in entries):
                        entries[names] = entry
        by_name = {title: "\n".join(entries.values()) for title, entries in found.items() if entries}
        cls.__doc__ = _written(lead, by_name | own)


def like(other: Callable[..., Any]) -> Callable[[Function], Function]:
    """Give a function the sections of another that its own docstring does not have."""

    def complete(function: Function) -> Function:
        lead, own = _sections(function.__doc__)
        shared_lead, shared = _sections(other.__doc__)
        function.__doc__ = _written(lead or shared_lead, shared | own)
        return function

    return complete


def _sections(docstring: str | None) -> tuple[str, dict[str, str]]:
    """What stands before the first title, and the text below each."""
    lead, *rest = TITLE.split(inspect.cleandoc(docstring or ""))
    texts = (text.strip("\n") for text in rest[1::2])
    return lead.strip("\n"), dict(zip(rest[::2], texts, strict=True))


def _entries(section: str) -> dict[tuple[str, ...], str]:
    """Entries by what they are of: "coef_, intercept_ : arrays" is of two things."""
    entries = re.split(r"\n(?=\S)", section) if section else []
    return {tuple(entry.partition("\n")[0].partition(" : ")[0].split(", ")): entry for entry in entries}


def _written(lead: str, sections: dict[str, str]) -> str:
    return "\n\n".join([lead, *(f"{title}\n{'-' * len(title)}\n{text}" for title, text in sections.items())])
