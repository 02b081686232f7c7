"""Citations in prose, such as [Uda and Kabashima 2005, section 2; Minka 2001] or Potetz (2011)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import NamedTuple

_NAME = r"[A-ZÀ-Ý][\w\-]+(?: [A-ZÀ-Ý][\w\-]+)*"
_NAMES = rf"{_NAME}(?:(?:, and |, | and ){_NAME})*(?: et al\.)?"
_YEAR = r"(?:19|20)\d\d[a-z]?"
_CITED = re.compile(rf"({_NAMES}),? ({_YEAR})(?:, (.+))?$", flags=re.DOTALL)
# One or several in brackets that are no link; or names in the sentence, the year in parentheses.
_IN_BRACKETS = re.compile(rf"\[([^\[\]`]*?{_NAMES},? {_YEAR}\b[^\[\]`]*)\](?![(\[])")
_IN_SENTENCE = re.compile(rf"\b({_NAMES}) \(({_YEAR})\)")


class Citation(NamedTuple):
    key: str
    note: str  # the section, the equation


def citations(text: str) -> Iterator[Citation]:
    """All that a text cites."""
    for found in _IN_BRACKETS.finditer(text):
        yield from _parsed(found[1])
    for found in _IN_SENTENCE.finditer(text):
        yield Citation(_key(found[1], found[2]), "")


def linked(text: str, known: set[str], role: Callable[[str, str], str]) -> str:
    """The text with roles (a kind, what it refers to) in the place of citations of known references."""

    def in_brackets(found: re.Match[str]) -> str:
        cited = _parsed(found[1])
        if not cited or not {c.key for c in cited} <= known:
            return found[0]
        return role("p", ",".join(c.key + (f"{{{c.note}}}" if c.note else "") for c in cited))

    def in_sentence(found: re.Match[str]) -> str:
        key = _key(found[1], found[2])
        return role("t", key) if key in known else found[0]

    return _IN_SENTENCE.sub(in_sentence, _IN_BRACKETS.sub(in_brackets, text))


def _parsed(group: str) -> list[Citation]:
    found = [_CITED.search(" ".join(part.split())) for part in group.split(";")]
    return [Citation(_key(each[1], each[2]), each[3] or "") for each in found if each is not None]


def _key(names: str, year: str) -> str:
    first = re.split(r", | and | et al", names)[0]
    letters = unicodedata.normalize("NFKD", first)
    return "".join(c for c in letters if c.isascii() and c.isalpha()).lower() + year
