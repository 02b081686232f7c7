"""How much memory there is, and what a file may claim of it."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldless.io import budget
from foldless.io.budget import FEW_BYTES, LARGEST_EXPANSION, NAME_BYTES, check_size, check_width, in_words
from foldless.io.table import BadTable, OverBudget

UNITS = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


@given(st.floats(0, 1e15))
def test_sizes_in_words_are_the_sizes_within_their_last_digit(n_bytes):
    shown = in_words(n_bytes)
    number, unit = re.fullmatch(r"(\d+(?:\.\d)?) (\w+)", shown).groups()
    last_digit = UNITS[unit] * (0.1 if "." in number else 1.0)
    assert abs(float(number) * UNITS[unit] - n_bytes) <= 0.51 * last_digit
    # As few digits as tell sizes apart: 1000 kB is 1.0 MB.
    assert float(number) <= 1000 or unit == "TB"
    assert ("." in number) == (unit != "B" and n_bytes / UNITS[unit] < 100)
    assert float(number) >= 1.0 or unit == "B"


@pytest.fixture
def file_of_1000_bytes(tmp_path: Path) -> Path:
    path = tmp_path / "table.npz"
    path.write_bytes(bytes(1000))
    return path


def test_what_fits_exactly_is_read_and_a_byte_more_is_not(file_of_1000_bytes):
    check_size(file_of_1000_bytes, 5000.0, 5000.0, "numbers")
    with pytest.raises(OverBudget, match=r"table\.npz: numbers need 5\.0 kB, and 5\.0 kB may be used"):
        check_size(file_of_1000_bytes, 5001.0, 5000.0, "numbers")


def test_what_no_file_of_its_size_can_hold_is_a_damaged_file(file_of_1000_bytes):
    most = 1000.0 * LARGEST_EXPANSION
    with pytest.raises(OverBudget):
        check_size(file_of_1000_bytes, most, 0.0, "numbers")
    with pytest.raises(BadTable, match=r"claims to hold numbers, .* in a file of 1\.0 kB"):
        check_size(file_of_1000_bytes, most + 1, 0.0, "numbers")


def test_an_empty_file_holds_something_at_most(tmp_path):
    (tmp_path / "empty").touch()
    with pytest.raises(OverBudget):
        check_size(tmp_path / "empty", LARGEST_EXPANSION, 0.0, "numbers")


def test_columns_without_names_are_bounded_by_file_and_budget(file_of_1000_bytes):
    few = int(FEW_BYTES / NAME_BYTES)
    check_width(file_of_1000_bytes, few, 1e12)
    with pytest.raises(BadTable):
        check_width(file_of_1000_bytes, few + 1, 1e12)
    check_width(file_of_1000_bytes, 10, 10.0 * NAME_BYTES)
    with pytest.raises(OverBudget):
        check_width(file_of_1000_bytes, 11, 10.0 * NAME_BYTES)
    file_of_1000_bytes.write_bytes(bytes(200_000))
    check_width(file_of_1000_bytes, few + 1, 1e12)


def test_free_memory_is_what_the_system_shows(monkeypatch):
    def meminfo(content: str | Exception):
        def read_text(self, encoding):
            assert str(self) == "/proc/meminfo"
            if isinstance(content, Exception):
                raise content
            return content

        monkeypatch.setattr(Path, "read_text", read_text)
        return budget.free_memory()

    assert meminfo("MemTotal: 9 kB\nMemAvailable:     123 kB\n") == 123 * 1024
    assert budget.default_budget() == pytest.approx(0.7 * 123 * 1024)
    # Where it does not: half of what is built in, or a guess.
    there = 0.5 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for other in ("MemTotal: 9 kB\n", "MemAvailable:\n", "MemAvailable: much\n", OSError("none")):
        assert meminfo(other) == there

    def no_such_name(name: str) -> int:
        raise ValueError(name)

    monkeypatch.setattr(os, "sysconf", no_such_name)
    assert budget.free_memory() == 4e9


@pytest.mark.parametrize("answers", [True, False])
def test_free_memory_of_windows_is_the_third_number_of_its_answer(monkeypatch, answers):
    def status_of(place):
        numbers = place._obj
        # Eight numbers of eight bytes, of which the first begins with their length.
        assert (len(numbers), numbers[0]) == (8, 64)
        numbers[1], numbers[2], numbers[3] = 999, 123, 999
        return answers

    windll = SimpleNamespace(kernel32=SimpleNamespace(GlobalMemoryStatusEx=status_of))
    monkeypatch.setattr(ctypes, "windll", windll, raising=False)
    monkeypatch.setattr(Path, "read_text", lambda self, encoding: "")
    monkeypatch.setattr(budget.sys, "platform", "win32")
    assert budget.free_memory() == (123 if answers else 4e9)
