"""Names from files of others, as they can be shown."""

from __future__ import annotations

LONGEST_NAME = 28


def printable(name: object, longest: int = LONGEST_NAME) -> str:
    """A name as it can be shown anywhere: control characters spelt out, overlong ones cut.

    Names come from files of others: an escape sequence in one would steer the terminal.
    """
    shown = str(name)
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)
    return shown if len(shown) <= longest else shown[: longest - 3] + "..."


def counted(number: int) -> str:
    """Thousands apart: 20 000."""
    return f"{number:,}".replace(",", " ")
