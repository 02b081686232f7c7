"""What all tests share: real data, found through the environment variable FOLDLESS_DATA."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from scipy.sparse import csr_matrix

# The same examples every time, and no deadline: a busy machine is not a bug. `make trust` asks for other and
# many more examples, by FOLDLESS_EXAMPLES.
TRUST_EXAMPLES = int(os.environ.get("FOLDLESS_EXAMPLES", "0"))
settings.register_profile("foldless", derandomize=True, deadline=None)
settings.register_profile(
    "trust", deadline=None, max_examples=TRUST_EXAMPLES or 100, print_blob=True, database=None
)
settings.load_profile("trust" if TRUST_EXAMPLES else "foldless")

# In the background of a shell Ctrl-C is ignored, and by all that is started there: tests send it to children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

RealData = Callable[[str], dict[str, Any]]


def data_folder() -> Path | None:
    """The folder of real data sets, if the environment names one."""
    folder = os.environ.get("FOLDLESS_DATA")
    return Path(folder) if folder else None


def pytest_configure(config: pytest.Config) -> None:
    folder = data_folder()
    # A mistyped folder would skip every test on real data and still look like success.
    if folder is not None and not folder.is_dir():
        raise pytest.UsageError(f"FOLDLESS_DATA is {str(folder)!r}, which is not a folder. Mend or unset it.")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # What lies there is a study; other tests that are one carry the mark themselves.
    studies = Path(__file__).parent / "studies"
    for item in items:
        if item.path.is_relative_to(studies):
            item.add_marker(pytest.mark.study)


def pytest_report_header(config: pytest.Config) -> str:
    return f"real data: {data_folder() or 'none (FOLDLESS_DATA is not set)'}"


@pytest.fixture(scope="session")
def real_data() -> RealData:
    """``real_data("colon")``: the arrays of a data set by name, or the test is skipped.

    Arrays are read-only, as they are shared between tests. Sparse data come with their matrix as "X".
    """

    def load(name: str) -> dict[str, Any]:
        folder = data_folder()
        if folder is None:
            pytest.skip(f"needs the real data set {name!r}: set FOLDLESS_DATA to the folder of {name}.npz")
        path = folder / f"{name}.npz"
        if not path.is_file():
            pytest.skip(f"needs the real data set {name!r}: {path} does not exist")
        return dict(_arrays(path))

    return load


@cache
def _arrays(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as stored:
        arrays: dict[str, Any] = {key: stored[key] for key in stored.files}
    for array in arrays.values():
        array.flags.writeable = False
    if {"data", "indices", "indptr", "shape"} <= arrays.keys():
        parts = (arrays["data"], arrays["indices"], arrays["indptr"])
        arrays["X"] = csr_matrix(parts, shape=tuple(arrays["shape"]))
    return arrays
