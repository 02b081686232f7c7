"""Tables of results: names come back as they were, and no spreadsheet takes one for a formula."""

from __future__ import annotations

import csv

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldless.io.tsv import guarded, read_tsv, unguarded, write_tsv
from reference.hostile_names import HOSTILE_NAMES


def test_hostile_names_come_back_unchanged(tmp_path):
    path = tmp_path / "names.tsv"
    write_tsv(path, [("name", HOSTILE_NAMES), ("number", np.arange(len(HOSTILE_NAMES)) * -0.1)])
    header, rows = read_tsv(path)
    assert header == ["name", "number"]
    assert [row[0] for row in rows] == list(HOSTILE_NAMES)
    assert [float(row[1]) for row in rows] == [i * -0.1 for i in range(len(HOSTILE_NAMES))]


@given(st.lists(st.text(), min_size=1, max_size=5))
def test_any_text_comes_back_unchanged(tmp_path_factory, names):
    path = tmp_path_factory.mktemp("any") / "names.tsv"
    for delimiter in ("\t", ","):
        write_tsv(path, [(names[0], names), ("n", range(len(names)))], delimiter=delimiter)
        header, rows = read_tsv(path, delimiter=delimiter)
        assert header[0] == names[0]
        assert [row[0] for row in rows] == names


@pytest.mark.parametrize(
    "name", ["=1+1", "+1", "-1", "@SUM(A1)", "  =1", "＝1+1", "\t=1", "\r=1", "'quoted", "\0x"]
)
def test_formulas_are_guarded(name):
    assert guarded(name) == "'" + name
    assert unguarded(guarded(name)) == name


@pytest.mark.parametrize("name", ["gene", "1-2", "a=b", "", " ", "probe.37937/R87126", "7"])
def test_other_names_are_left_alone(name):
    assert guarded(name) == name


def test_pandas_reads_names_but_for_the_guard(tmp_path):
    names = ["gene 1", 'with "quotes"', "line\nend", "tab\tinside", "=SUM(A1)"]
    write_tsv(tmp_path / "t.tsv", [("feature", names), ("weight", np.array([0.5, -1, 2, 3, 4], np.float32))])
    frame = pd.read_csv(tmp_path / "t.tsv", sep="\t", keep_default_na=False)
    assert frame["feature"].tolist() == [*names[:4], "'=SUM(A1)"]
    assert frame["weight"].tolist() == [0.5, -1, 2, 3, 4]


def test_numbers_keep_every_digit_and_truths_are_words(tmp_path):
    values = np.array([1 / 3, -np.pi * 1e-300, np.nextafter(1, 2)])
    single = np.float32(values[:1])
    write_tsv(tmp_path / "t.tsv", [("v", values), ("yes", [True, False, True]), ("none", [None, 1, None])])
    _, rows = read_tsv(tmp_path / "t.tsv")
    assert [float(row[0]) for row in rows] == values.tolist()
    assert [row[1:] for row in rows] == [["yes", ""], ["no", "1"], ["yes", ""]]
    write_tsv(tmp_path / "t.tsv", [("v", single)])
    assert np.float32(read_tsv(tmp_path / "t.tsv")[1][0][0]) == single[0]


def test_the_csv_module_reads_what_is_written(tmp_path):
    """Other programs follow the same rules of quoting."""
    names = ["a\rb", 'c"d', "e\tf", "", "g"]
    write_tsv(tmp_path / "t.tsv", [("n", names)])
    with open(tmp_path / "t.tsv", encoding="utf-8", newline="") as stream:
        assert [row[0] for row in csv.reader(stream, delimiter="\t")][1:] == names
