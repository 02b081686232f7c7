"""How much memory a table may need, and what files claim."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from foldless.io.table import BadTable, OverBudget

GIGA = 1e9
# Of the memory that is free now; the rest is for what a fit and others need.
SHARE_OF_FREE_MEMORY = 0.7
# No table is this much larger than its file: such claims come from damaged or hostile files.
LARGEST_EXPANSION = 1000
# A name that is made of a number takes so many bytes; columns of a sparse matrix cost a file nothing.
NAME_BYTES, FEW_BYTES = 60, 100e6
UNITS = ("B", "kB", "MB", "GB", "TB")


def free_memory() -> float:
    """Bytes that can be had without swapping, as far as the system says; a modest guess where it does not."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024.0 * float(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    if sys.platform == "win32":
        return _free_on_windows()
    try:
        # Of macOS and others: half of what there is.
        return 0.5 * float(os.sysconf("SC_PAGE_SIZE")) * float(os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):  # not every system has these names
        return 4.0 * GIGA


def _free_on_windows() -> float:
    """`GlobalMemoryStatusEx`: its own length and the load, then total and available physical memory."""
    import ctypes

    status = (ctypes.c_uint64 * 8)()
    status[0] = ctypes.sizeof(status)  # the length is the lower half of the first number
    asked = ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))  # type: ignore[attr-defined,unused-ignore]
    return float(status[2]) if asked else 4.0 * GIGA


def default_budget() -> float:
    return SHARE_OF_FREE_MEMORY * free_memory()


def check_size(path: Path, n_bytes: float, budget: float, what: str) -> None:
    """Refuse what is larger than the budget, before it is read."""
    if n_bytes <= budget:
        return
    size = path.stat().st_size
    if n_bytes > LARGEST_EXPANSION * max(size, 1):
        raise BadTable(
            path,
            f"claims to hold {what}, {in_words(n_bytes)}, in a file of {in_words(size)}.",
            "It is damaged, or made to exhaust memory. Get it again, or write it again from its source.",
        )
    raise OverBudget(
        f"{path}: {what} need {in_words(n_bytes)}, and {in_words(budget)} may be used. Allow more with "
        "--max-memory, use a machine with more memory, or keep fewer columns."
    )


def check_width(path: Path, n_features: int, budget: float) -> None:
    """Refuse more columns without names than a file of this size can mean."""
    most = min(budget, max(FEW_BYTES, LARGEST_EXPANSION * float(path.stat().st_size)))
    check_size(path, float(NAME_BYTES) * n_features, most, f"{n_features} columns")


def in_words(n_bytes: float) -> str:
    """A number of bytes to be read by people."""
    unit, *larger = UNITS
    while n_bytes >= 1000 and larger:
        n_bytes /= 1000
        unit, *larger = larger
    return f"{n_bytes:.0f} {unit}" if unit == UNITS[0] or n_bytes >= 100 else f"{n_bytes:.1f} {unit}"
