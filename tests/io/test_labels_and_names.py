"""Names, labels and places of a table, whatever file it comes from."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from foldless.io.names import printable
from foldless.io.table import (
    BadTable,
    Roles,
    Table,
    assembled,
    check_finite,
    check_present,
    class_labels,
    layout_of,
    listed,
    numbered,
    readable_as,
    unique_names,
)

PATH = Path("table.csv")
# Few letters, so that names meet, also those that are made of others.
NAMES = st.lists(st.sampled_from(["", "a", "b", "a.2", "a.3", "column 1", "column.2", "b.2"]), max_size=8)


def table_of(X, target=None, names=None, **others) -> Table:
    X = np.asarray(X)
    names = numbered(X.shape[1]) if names is None else names
    target = None if target is None else np.asarray(target)
    return Table(PATH, X, names, numbered(X.shape[0]), target, "class", **others)


@given(NAMES)
def test_names_become_unique_and_first_ones_stay(names):
    unique, renamed = unique_names(names)
    assert len(set(unique)) == len(names)
    assert "" not in unique
    first = {name: j for j, name in reversed(list(enumerate(names)))}
    for j, (name, new) in enumerate(zip(names, unique, strict=True)):
        assert (new == name) == (name != "" and first[name] == j)
        assert renamed.get(new, new) == name
        assert new == name or new not in names  # no other column is meant by it
    assert len(renamed) == sum(new != name for new, name in zip(unique, names, strict=True))
    assert unique_names(unique) == (unique, {})


def test_overlong_names_are_cut_to_what_there_is_room_for():
    assert printable("abcdefghij", longest=10) == "abcdefghij"
    assert printable("abcdefghijk", longest=10) == "abcdefg..."


def test_new_names_count_from_two_and_nameless_columns_are_called_by_their_place():
    assert unique_names(["a", "a", "a"])[0] == ["a", "a.2", "a.3"]
    assert unique_names(["a", "a", "a.2"])[0] == ["a", "a.3", "a.2"]
    assert unique_names(["x", ""])[0] == ["x", "column 2"]
    assert unique_names(["", ""], "sample")[0] == ["sample 1", "sample 2"]
    assert unique_names(["column 2", ""])[0] == ["column 2", "column.2"]


@given(st.lists(st.integers(-(2**60), 2**60), min_size=1))
def test_labels_that_are_whole_numbers_are_numbers_where_doubles_hold_them(numbers):
    found = class_labels(str(n) for n in numbers)
    small = all(abs(n) < 2**53 for n in numbers)
    assert found.dtype.kind == ("i" if small else "U")
    assert [int(each) for each in found] == numbers


@pytest.mark.parametrize("texts", [["007", "1"], ["1", "a"], ["1.0", "2"], [" 1", "2"], [str(2**53), "1"]])
def test_labels_that_are_not_spelt_as_whole_numbers_stay_as_they_are(texts):
    assert class_labels(texts).tolist() == texts


@given(NAMES, st.sampled_from([np.float32, np.float64]), st.booleans())
def test_columns_of_one_name_are_averaged_in_their_precision(names, dtype, sparse):
    assume(names)
    X = np.random.default_rng(len(names)).standard_normal((3, len(names))).astype(dtype)
    given_X = sp.csr_matrix(X) if sparse else X
    table = assembled(PATH, given_X, Roles(), names, None, None, None, average=True)
    assert table.X.dtype == dtype
    assert sp.issparse(table.X) == sparse or "" in names or len(set(names)) == len(names)
    # Columns without a name have nothing in common.
    shared = [name or f"nameless {j}" for j, name in enumerate(names)]
    expected = [
        X[:, [j for j, s in enumerate(shared) if s == each]].mean(1) for each in dict.fromkeys(shared)
    ]
    found = table.X.toarray() if sp.issparse(table.X) else table.X
    assert_allclose(found, np.array(expected).T, rtol=1e-5 if dtype == np.float32 else 1e-14)
    assert len(set(table.feature_names)) == found.shape[1]
    n_averaged = len(names) - found.shape[1]
    assert any(step.startswith(f"{n_averaged} more columns") for step in table.steps) == bool(n_averaged)


@given(st.integers(0, 5), st.integers(0, 7), st.sampled_from([np.nan, np.inf, -np.inf]), st.booleans())
def test_what_is_not_finite_is_told_with_its_place(row, column, value, sparse):
    X = np.zeros((6, 8))
    X[::2] = 1.0
    X[row, column] = value
    names = [f"gene {j}" for j in range(8)]
    stored = sp.csr_matrix(X) if sparse else X
    if np.isnan(value):
        check_finite(PATH, stored, names, missing=True)
    with pytest.raises(BadTable) as caught:
        check_finite(PATH, stored, names, missing=not np.isnan(value))
    text = str(caught.value)
    assert f"sample {row + 1}, column 'gene {column}': the value is " in text
    assert ("is missing (1 such" in text and "--impute" in text) == np.isnan(value)
    assert ("is infinite (1 such" in text) == np.isinf(value)


def test_samples_of_one_name_are_numbered_and_that_is_told():
    table = assembled(PATH, np.zeros((3, 1)), Roles(), None, ["s", "s", ""], None, None)
    assert table.sample_names == ["s", "s.2", "sample 3"]
    assert table.feature_names == ["1"]
    assert any(step.startswith("2 names of samples occur more than once") for step in table.steps)


def test_large_numbers_whose_sum_overflows_are_finite():
    check_finite(PATH, np.full((2, 2), 1e308), ["a", "b"])
    check_finite(PATH, np.array([[1e308, 1e308], [-1e308, -1e308]]), ["a", "b"])


def test_labels_need_two_classes_and_fewer_than_half_as_many_as_samples():
    X = np.zeros((6, 1))
    assert_array_equal(table_of(X, list("aaabbc")).labels(), list("aaabbc"))
    assert table_of(X, list("aaabbc")).class_counts() == {"a": 3, "b": 2, "c": 1}
    assert_array_equal(table_of(X[:2], ["a", "b"]).labels(), ["a", "b"])
    for target, problem in [
        (None, "no column is named"),
        (list("aaaaaa"), "all 6 samples are of one class, 'a'"),
        (list("abcdaa"), "has 4 different values in 6 rows"),
    ]:
        with pytest.raises(BadTable, match=problem):
            table_of(X, target).labels()


def test_labels_that_differ_by_case_or_spaces_are_joined_in_their_usual_spelling():
    target = ["Tumor", "tumor ", "Tumor", "no  tumor", "NO TUMOR", "no tumor"]
    tidied = table_of(np.zeros((6, 1)), target).tidied()
    assert tidied.target.tolist() == ["Tumor"] * 3 + ["no tumor"] * 3
    for other in (None, [0, 1, 0, 1, 0, 1]):
        table = table_of(np.zeros((6, 1)), other)
        assert table.tidied() is table


def test_a_table_has_the_columns_of_a_model_in_its_order():
    table = table_of(np.arange(6).reshape(2, 3), names=["a", "b", "c"], steps=("read",))
    assert table.aligned(["a", "b", "c"]) is table
    turned = table.aligned(["c", "b", "a"])
    assert_array_equal(turned.X, [[2, 1, 0], [5, 4, 3]])
    assert turned.steps == ("read",)
    fewer = table.aligned(["c", "a"])
    assert (fewer.feature_names, fewer.X.tolist()) == (["c", "a"], [[2, 0], [5, 3]])
    assert fewer.steps == ("read", "1 columns that the model does not know left out.")
    with pytest.raises(BadTable, match=r"'d'.*a feature that the model was fitted to"):
        table.aligned(["a", "d"])


def test_covariates_have_positions_among_features():
    table = table_of(np.zeros((2, 3)), names=["a", "b", "c"], covariates=("c", "a"))
    assert table.covariate_positions == [2, 0]


def test_a_store_of_many_files_has_a_digest_that_changes_with_names_and_contents(tmp_path):
    def digest(**contents: str) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        for name, content in contents.items():
            (folder / name).mkdir(parents=True)
            (folder / name / "0.0").write_text(content)
        return Table(folder, np.zeros((1, 1)), ["1"], ["1"]).sha256

    found = [
        digest(a="1", b="2"),
        digest(a="2", b="1"),
        digest(a="1", c="2"),
        digest(a="1"),
        digest(b="2", a="1"),
    ]
    assert len(set(found)) == 4
    assert found[0] == found[-1]  # the order in which they were written is nothing
    (tmp_path / "t.csv").write_text("a,b\n")
    table = Table(tmp_path / "t.csv", np.zeros((1, 1)), ["1"], ["1"])
    whole = hashlib.sha256(b"a,b\n").hexdigest()
    assert table.sha256 == whole
    assert table.source == f"t.csv, sha256 {whole[:16]}"


HEADER = ["id", "y", "batch", "a", "", "b"]


def test_columns_without_a_purpose_are_features():
    layout = layout_of(PATH, HEADER, Roles(target="y", groups="batch", samples="id", ignore=("",)))
    assert (layout.features, layout.target, layout.groups, layout.samples) == ([3, 5], 1, 2, 0)
    # Where the file itself has names of samples, unless they are said to be something else.
    assert layout_of(PATH, HEADER, Roles(target="y", ignore=("",)), samples=0).samples == 0
    assert layout_of(PATH, HEADER, Roles(target="id", ignore=("",)), samples=0).samples is None
    assert layout_of(PATH, HEADER, Roles(target="y", samples="a", ignore=("",)), samples=0).samples == 3


def test_of_a_model_only_its_features_are_read_in_its_order():
    layout = layout_of(PATH, HEADER, Roles(target="y", features=("b", "a")))
    assert layout.features == [5, 3]
    with pytest.raises(BadTable, match=r"'c'.*a feature that the model was fitted to"):
        layout_of(PATH, HEADER, Roles(features=("b", "c")))


@pytest.mark.parametrize(
    ("header", "roles", "problem"),
    [
        (["a", "b", "a"], Roles(), "columns 1 and 3 are both called 'a'"),
        (["a", "b", ""], Roles(), "column 3 has no name"),
        (["a", "y"], Roles(target="y", ignore=("a",)), "no column is left as a feature"),
        (["a", "y"], Roles(target="z"), "there is no column 'z', named as --target"),
        (["a", "y"], Roles(ignore=("gone",)), "there is no column 'gone', named as --ignore"),
    ],
)
def test_headers_that_leave_no_table_are_refused(header, roles, problem):
    with pytest.raises(BadTable, match=problem):
        layout_of(PATH, header, roles)


def test_every_purpose_of_a_column_has_its_option():
    roles = Roles("t", "g", "s", ("c", "d"), ("k",), ("i",), ("f",))
    assert roles.purposes == {
        "t": "--target", "g": "--groups", "s": "--samples", "c": "--covariates", "d": "--covariates",
        "k": "a covariate of the fit (of a sample sheet: --sample-sheet)", "i": "--ignore",
    }  # fmt: skip
    assert Roles(categories=("k",)).purposes == {"k": "--categories"}
    assert set(roles.named) == {"t", "g", "c", "d", "k", "i", "f"}
    assert Roles(ignore=("i",)).purposes == {"i": "--ignore"}
    for twice in (
        {"target": "a", "groups": "a"},
        {"target": "a", "covariates": ("a",)},
        {"ignore": ("a", "a")},
    ):
        with pytest.raises(ValueError, match="'a' is named for two purposes"):
            Roles(**twice)


def test_a_few_names_are_shown_and_the_rest_counted():
    assert listed(numbered(8)).count("'") == 16
    assert listed(numbered(8)).endswith("'8'")
    assert listed(numbered(9)).endswith("'8' and 1 more")
    assert numbered(2) == ["1", "2"]


def test_a_name_that_is_missing_is_told_with_one_that_is_near():
    check_present(PATH, [], ["a"], "column", "--target")
    check_present(PATH, ["a"], iter("ab"), "column", "--target")
    with pytest.raises(BadTable, match=r"no column 'tisue', named as --target\. Did you mean 'tissue'\?"):
        check_present(PATH, ["tisue"], ["tissue", "x"], "column", "--target")
    with pytest.raises(BadTable, match=r"'x' \(and 1 more\), named as --ignore\. It has: 'bbb', 'aaa'\."):
        check_present(PATH, ["x", "y", "aaa"], ["bbb", "", "aaa"], "column", "--ignore")
    with pytest.raises(BadTable, match=r"Did you mean 'Tissue Type'\?"):
        check_present(PATH, ["tissue"], ["Age", "Tissue Type"], "column", "--target")
    with pytest.raises(BadTable, match="Name one at a time: --covariates Batch --covariates Age"):
        check_present(PATH, ["Batch,Age"], ["Age", "Batch"], "column", "--covariates")


def test_what_a_damaged_file_makes_of_a_reader_names_the_file_and_nothing_else_is_hidden():
    def reading(error: BaseException) -> None:
        with readable_as(PATH, "Parquet", "Write it again."):
            raise error

    own = BadTable(PATH, "own", "words")
    gone = FileNotFoundError(2, "No such file", "table.csv")
    for untouched in (own, MemoryError(), ImportError("x"), gone, KeyboardInterrupt()):
        with pytest.raises(type(untouched)) as caught:
            reading(untouched)
        assert caught.value is untouched
    for damage in (KeyError("x"), OSError("truncated"), OSError(22, "Invalid argument"), ValueError("a\nb")):
        with pytest.raises(BadTable, match=r"table\.csv: this cannot be read as Parquet"):
            reading(damage)
