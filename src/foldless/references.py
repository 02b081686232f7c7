"""The papers that foldless cites: one list, `references.bib`, for docstrings, pages and reports.

A docstring cites by family names and year, [Uda and Kabashima 2005] or [Ziniel et al. 2015, section III].
Tests compare these with the list (`tests/test_references.py`), and `make docs` turns them into links.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

ENTRY = re.compile(r"^@(\w+)\{(\w+),\n(.*?)^\}", flags=re.DOTALL | re.MULTILINE)
FIELD = re.compile(r"^  (\w+) = \{(.*)\},$", flags=re.MULTILINE)


class Reference(NamedTuple):
    label: str  # Uda and Kabashima 2005
    text: str  # in full, as a list of references has it


@cache
def references() -> dict[str, Reference]:
    """Every reference by its key, in alphabetical order."""
    listed = files("foldless").joinpath("references.bib").read_text(encoding="utf-8")
    return {key: _reference(kind, dict(FIELD.findall(fields))) for kind, key, fields in ENTRY.findall(listed)}


def _reference(kind: str, field: dict[str, str]) -> Reference:
    authors = [name.split(", ") for name in field["author"].split(" and ")]
    families = [family for family, *_ in authors]
    label = f"{families[0]} et al." if len(families) > 2 or "others" in families else " and ".join(families)
    names = ", ".join("and others" if name == ["others"] else " ".join(name) for name in authors)
    source = next(field[name] for name in ("journal", "booktitle", "school", "publisher") if name in field)
    if kind == "mastersthesis":
        source = f"Master's thesis, {source}"
    source = " ".join([source, field["volume"]] if "volume" in field else [source])
    source = ", ".join([source, field["pages"]] if "pages" in field else [source])
    title = field["title"].strip("{}")
    return Reference(f"{label} {field['year']}", f"{names} ({field['year']}). {title}. {source}.")
