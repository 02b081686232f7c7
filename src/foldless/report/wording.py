"""Numbers, names and counts as a reader wants them."""

from __future__ import annotations

from collections.abc import Sequence

from foldless.io import printable

# In a page, longer names than in a terminal have room.
LONGEST_NAME = 160
LONGEST_SENTENCE = 2000
# No line ends between a number and its unit.
PERCENT = "\u202f%"


def percent(share: float) -> str:
    return f"{100 * share:.1f}{PERCENT}"


def probability(p: float) -> str:
    """Three digits, but never 1 or 0 for what is not certain."""
    if p >= 0.9995:
        return "> 0.999"
    return f"{p:.3f}" if p >= 0.0005 else "< 0.001"


def counted(number: int) -> str:
    """With thin spaces between thousands, which do not break."""
    return f"{number:,}".replace(",", "\u202f")


def plural(number: int, thing: str) -> str:
    return f"{counted(number)} {thing}" if number == 1 else f"{counted(number)} {thing}s"


def signed(value: float) -> str:
    """With a sign, and a minus that is one; small values keep digits that count."""
    size = abs(value)
    if size == 0:
        return "0"
    text = f"{size:.2f}" if size >= 0.095 else f"{size:.3f}" if size >= 0.0095 else f"{size:.1e}"
    return f"{'−' if value < 0 else '+'}{text}"


def number(value: object) -> str:
    """A parameter or a measurement, short."""
    if isinstance(value, bool | str) or not isinstance(value, int | float):
        return named(value)
    return counted(value) if isinstance(value, int) else f"{value:.4g}"


def named(name: object) -> str:
    """A name as it can stand in a page: control characters spelt out."""
    return printable(name, LONGEST_NAME)


def sentence(text: object) -> str:
    """Somebody else's sentence."""
    return printable(text, LONGEST_SENTENCE)


def listed(things: Sequence[str]) -> str:
    """A, B and C."""
    if len(things) < 2:
        return "".join(things)
    return f"{', '.join(things[:-1])} and {things[-1]}"
