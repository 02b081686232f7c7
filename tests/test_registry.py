"""Names for files: one for each class, each given once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import pytest

from foldless import registry
from foldless.registry import fields_now, name_of, registered, thing_named


@pytest.fixture(autouse=True)
def tables(monkeypatch):
    """Names that a test gives are forgotten after it."""
    for table in ("_named", "_names", "ALIASES"):
        monkeypatch.setattr(registry, table, dict(getattr(registry, table)))


def test_dataclasses_named_tuples_and_members():
    @registered("test/data")
    @dataclass
    class Data:
        x: int = 1

    @registered("test/pair")
    class Pair(NamedTuple):
        a: int
        b: int

    @registered("colour")
    class Colour(Enum):
        DARK_RED = "crimson"
        BLUE = "blue"

    assert name_of(Data()) == "test/data"
    assert thing_named("test/data") is Data
    assert name_of(Pair(1, 2)) == "test/pair"
    assert thing_named("test/pair") is Pair
    assert name_of(Colour.DARK_RED) == "colour/dark-red"
    assert thing_named("colour/blue") is Colour.BLUE


def test_a_name_belongs_to_one_class():
    class Data:
        pass

    class Derived(registered("test/data")(Data)):
        pass

    # Its file would come back as something else.
    assert name_of(Derived()) is None
    with pytest.raises(ValueError, match=r"'test/data' is the name of .*Data"):
        registered("test/data")(Derived)


@pytest.mark.parametrize("name", ["data", "test/Data", "foldless.priors/data", "a/b/c", "", "test/", "a.b/c"])
def test_names_are_a_room_and_a_thing(name):
    with pytest.raises(ValueError, match="is no name for files"):
        registered(name)(type("Data", (), {}))


def test_names_of_earlier_versions():
    @registered("test/data")
    class Data:
        pass

    registry.ALIASES |= {"test/old": "test/data", "test/data.x": "y", "test/data.z": None}
    assert thing_named("test/old") is Data
    assert thing_named("test/data.x") is None
    assert thing_named("os/system") is None
    assert thing_named(["test/data"]) is None
    assert fields_now(Data, {"x": 1, "z": 2, "w": 3}) == {"y": 1, "w": 3}
