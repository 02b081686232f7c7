"""Labels that come as numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from foldless.io.matrix import as_labels
from foldless.io.table import BadTable

PATH = Path("table.npz")


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float32, np.float64])
def test_whole_numbers_are_numbers_whatever_their_storage(dtype):
    found = as_labels(PATH, np.array([2, 0, 1], dtype=dtype), "y")
    assert found.dtype == np.int64
    assert_array_equal(found, [2, 0, 1])


@pytest.mark.parametrize("values", [[0.5, 1.0], [2.0**53, 1.0], [-1e300, 1.0]])
def test_other_numbers_are_texts_and_none_is_rounded(values):
    found = as_labels(PATH, np.array(values), "y")
    assert found.dtype.kind == "U"
    assert_array_equal(found.astype(float), values)


def test_a_label_that_is_missing_is_named_by_its_sample():
    with pytest.raises(BadTable, match="sample 2 has no value in 'y'"):
        as_labels(PATH, np.array(["a", " "], dtype=object), "y")


def test_whole_numbers_that_float64_cannot_tell_apart_are_no_numbers():
    assert as_labels(PATH, np.array([2.0**53 - 1, 0.0]), "y").dtype == np.int64
    assert as_labels(PATH, np.array([2.0**53, 0.0]), "y").dtype.kind in "OUT"
