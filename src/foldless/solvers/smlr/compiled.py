"""Where the loops compiled by numba come from, if it is installed: pip install 'foldless[fast]'.

Everything works without. FOLDLESS_COMPILED=0 in the environment leaves numba alone where it is installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings
from functools import cache
from typing import Any


@cache
def compiled() -> Any:
    """The module of compiled loops; None if there is no numba, or it is not wanted, or does not work."""
    # Asked for at the first fit and not at import: numba alone takes longer to load than all the rest.
    if os.environ.get("FOLDLESS_COMPILED") == "0" or importlib.util.find_spec("numba") is None:
        return None
    try:
        return importlib.import_module("foldless.solvers.smlr.loops")
    # A numba that does not fit the NumPy beside it, or that finds no folder to keep compiled code in.
    except (ImportError, RuntimeError) as error:
        warnings.warn(
            f"numba is installed but cannot be used ({error}). foldless goes on in NumPy, slower, with the "
            "same results. Mend the installation, or set FOLDLESS_COMPILED=0 to silence this.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
