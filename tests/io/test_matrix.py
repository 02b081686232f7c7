"""Matrices with what belongs to their samples, and labels that come as numbers or in a file of their own."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

from foldless.io.matrix import as_labels, read_labels, table_of
from foldless.io.table import BadTable, Roles

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


def matrix(X, roles=None, **others):
    return table_of(PATH, X, roles or Roles(), **others)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("dtype", "read_as"),
    [
        (bool, np.float32), (np.int8, np.float32), (np.uint16, np.float32), (np.int32, np.float64),
        (np.int64, np.float64), (np.float32, np.float32), (np.float64, np.float64),
    ],
)  # fmt: skip
def test_numbers_are_read_in_the_precision_that_holds_them(dtype, read_as, sparse):
    X = np.array([[1, 0, 1], [0, 1, 1]], dtype=dtype)
    table = matrix(sp.csc_matrix(X) if sparse else X)
    assert table.X.dtype == read_as
    assert sp.issparse(table.X) == sparse
    assert_array_equal(table.X.toarray() if sparse else table.X, X)


@pytest.mark.parametrize("dtype", [np.float16, np.longdouble])
def test_unusual_precisions_become_usual_ones(dtype):
    assert matrix(np.ones((2, 2), dtype=dtype)).X.dtype == (np.float32 if dtype is np.float16 else np.float64)


def test_columns_beside_a_matrix_come_first_and_what_is_ignored_goes():
    X = np.arange(6, dtype=np.float32).reshape(2, 3)
    beside = [("age", np.array([50.0, 60.0])), ("dose", np.array([1.0, 2.0]))]
    roles = Roles(covariates=("age", "dose"), ignore=("b",))
    for stored in (X, sp.csr_matrix(X)):
        table = matrix(stored, roles, feature_names=["a", "b", "c"], covariates=beside)
        assert table.feature_names == ["age", "dose", "a", "c"]
        found = table.X.toarray() if sp.issparse(table.X) else table.X
        assert_array_equal(found, [[50, 1, 0, 2], [60, 2, 3, 5]])
        assert table.X.dtype == np.float32
    wanted = matrix(X, Roles(features=("c", "a")), feature_names=["a", "b", "c"])
    assert_array_equal(wanted.X, X[:, [2, 0]])


def test_a_sparse_matrix_that_has_an_entry_twice_has_its_sum():
    twice = sp.coo_matrix(([1.0, 2.0, 4.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    table = matrix(twice)
    assert table.X.nnz == 2
    assert_array_equal(table.X.toarray(), [[0, 3], [4, 0]])


@pytest.mark.parametrize("X", [np.zeros((0, 2)), np.zeros((2, 0)), np.array([["a"]]), sp.csr_matrix((0, 3))])
def test_a_matrix_without_numbers_is_refused(X):
    with pytest.raises(BadTable, match=r"is empty|not numbers"):
        matrix(X)


LABELS = ["tumor", "normal", "tumor"]


@pytest.mark.parametrize(
    ("name", "content", "column"),
    [
        ("y.csv", "label\ntumor\nnormal\ntumor\n", None),
        ("y.csv", "\ufefflabel\r\ntumor\r\n\r\nnormal\r\ntumor\r\n", None),
        ("y.csv", "id,label\n1,tumor\n2,normal\n3,tumor\n", "label"),
        ("y.tsv", 'id\tlabel\n1\ttumor\n2\t"normal"\n3\ttumor\n', "label"),
        ("y.txt", "label\ntumor\nnormal\ntumor\n", None),
    ],
)
def test_labels_in_a_file_of_their_own(name, content, column, tmp_path):
    (tmp_path / name).write_bytes(content.encode())
    assert_array_equal(read_labels(tmp_path / name, column, 3), LABELS)


def test_labels_that_would_run_code_are_not_read(tmp_path):
    class Harm:
        def __reduce__(self):
            return Path.touch, (tmp_path / "harm",)

    (tmp_path / "y.npy").write_bytes(pickle.dumps(Harm()))
    with pytest.raises(BadTable, match=r"y\.npy.*could run code"):
        read_labels(tmp_path / "y.npy", None, 3)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(("values", "kind"), [(LABELS, "U"), ([1, 0, 1], "i"), ([1.0, 0.0, 1.0], "i")])
def test_labels_in_an_array_of_their_own(values, kind, tmp_path):
    np.save(tmp_path / "y.npy", np.array(values))
    found = read_labels(tmp_path / "y.npy", None, 3)
    assert found.dtype.kind == kind
    assert_array_equal(found, values)


@pytest.mark.parametrize(
    ("name", "content", "column", "problem"),
    [
        ("y.json", b"[]", None, "the suffix does not say"),
        ("y.csv", b"a,b\n1,2\n", None, "there are 2 columns"),
        ("y.csv", b"", None, "there are 0 columns"),
        ("y.csv", b"a,b\n1,2\n", "c", "no column 'c'"),
        ("y.csv", b"a,b\n1,2\n3\n4,5\n", "b", "no table of text"),
        ("y.csv", b'a\n"1\n', None, "no table of text"),
        ("y.csv", b"a\n\xff\xfe\n", None, "no table of text"),
        ("y.csv", b"a\nx\ny\n", None, r"labels of shape \(2,\), and 3 rows"),
        ("y.csv", b"a,b\n1,x\n2,NaN\n3,y\n", "b", "sample 2 has no value in 'b'"),
        ("y.npy", b"\x93NUMPY\x01\x00", None, "y.npy"),
    ],
)
def test_labels_that_are_none_are_refused_with_their_file(name, content, column, problem, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadTable, match=problem) as caught:
        read_labels(tmp_path / name, column, 3)
    assert name in str(caught.value)
