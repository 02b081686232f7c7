"""Where the loops compiled by numba come from, if it is installed: pip install 'foldless[fast]'.

Everything works without. FOLDLESS_COMPILED=0 in the environment leaves numba alone where it is installed.
"""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from typing import Any


@cache
def compiled() -> Any:
    """The module of compiled loops; None if there is no numba, or it is not wanted."""
    # Asked for at the first fit and not at import: numba alone takes longer to load than all the rest.
    if os.environ.get("FOLDLESS_COMPILED") == "0" or importlib.util.find_spec("numba") is None:
        return None
    from foldless.solvers.smlr import loops

    return loops
