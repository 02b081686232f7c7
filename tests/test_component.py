"""Components: parameters by name, nested, changed by copy, and frozen."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, dataclass, field
from typing import ClassVar

import pytest
from sklearn.base import clone

from foldless.channels import FlippedLabels, Logistic
from foldless.component import Component, inner_names, wants
from foldless.priors import Gaussian, SpikeAndSlab


@dataclass(frozen=True)
class Leaf(Component):
    tunable: ClassVar[tuple[str, ...]] = ("size",)
    size: float = 1.0
    name: str = "leaf"

    def __post_init__(self) -> None:
        if self.size <= 0:
            raise ValueError(f"size must be positive; got {self.size}")


@dataclass(frozen=True)
class Branch(Component):
    tunable: ClassVar[tuple[str, ...]] = ("angle",)
    leaf: Leaf = field(default_factory=Leaf)
    angle: float = 0.5


@dataclass(frozen=True)
class Trunk(Component):
    branch: Branch = field(default_factory=Branch)


def test_get_params_gives_own_fields_and_nested_ones():
    branch = Branch(Leaf(2.0), 0.1)
    assert branch.get_params(deep=False) == {"leaf": Leaf(2.0), "angle": 0.1}
    assert branch.get_params() == {
        "leaf": Leaf(2.0),
        "angle": 0.1,
        "leaf__size": 2.0,
        "leaf__name": "leaf",
    }
    assert Trunk().get_params()["branch__leaf__size"] == 1.0


def test_get_params_rebuilds_the_component():
    branch = Branch(Leaf(2.0, "oak"), 0.1)
    assert Branch(**branch.get_params(deep=False)) == branch


def test_with_params_changes_a_copy_at_any_depth():
    trunk = Trunk()
    changed = trunk.with_params(branch__leaf__size=3.0, branch__angle=0.2)
    assert changed == Trunk(Branch(Leaf(3.0), 0.2))
    assert trunk == Trunk()


def test_with_params_without_changes_is_an_equal_component():
    assert Branch().with_params() == Branch()


def test_with_params_reaches_into_the_component_given_in_the_same_call():
    changed = Branch().with_params(leaf__size=4.0, leaf=Leaf(name="elm"))
    assert changed.leaf == Leaf(4.0, "elm")


def test_set_params_changes_in_place_and_returns_itself():
    branch = Branch()
    shared_leaf = branch.leaf
    assert branch.set_params(leaf__size=5.0, angle=0.3) is branch
    assert branch == Branch(Leaf(5.0), 0.3)
    # Nested components are replaced, not changed: another holder of the old leaf sees nothing.
    assert shared_leaf == Leaf()


@pytest.mark.parametrize("change", ["with_params", "set_params"])
class TestErrors:
    def test_unknown_name_lists_the_known_ones(self, change):
        with pytest.raises(ValueError, match=r"Branch has no parameter 'colour'.*\['angle', 'leaf'\]"):
            getattr(Branch(), change)(colour="green")

    def test_unknown_nested_name_names_the_inner_component(self, change):
        with pytest.raises(ValueError, match=r"Leaf has no parameter 'colour'.*\['name', 'size'\]"):
            getattr(Branch(), change)(leaf__colour="green")

    def test_a_plain_value_has_no_parameters_of_its_own(self, change):
        with pytest.raises(
            ValueError, match=r"Branch\.angle is 0\.5, which has no parameters.*angle__degrees"
        ):
            getattr(Branch(), change)(angle__degrees=10)

    def test_a_value_the_constructor_refuses_leaves_the_component_as_it_was(self, change):
        branch = Branch()
        with pytest.raises(ValueError, match="size must be positive; got -1"):
            getattr(branch, change)(angle=0.9, leaf__size=-1)
        assert branch == Branch()


def test_tunable_params_collects_own_and_nested_names():
    assert Leaf().tunable_params() == ("size",)
    assert Branch().tunable_params() == ("angle", "leaf__size")
    assert Trunk().tunable_params() == ("branch__angle", "branch__leaf__size")
    assert Component().tunable_params() == ()


def test_every_tunable_param_can_be_read_and_set():
    for component in (Trunk(), SpikeAndSlab(Gaussian()), FlippedLabels(Logistic())):
        params = component.get_params()
        names = component.tunable_params()
        assert names
        assert set(names) <= set(params)
        assert component.with_params(**{name: params[name] for name in names}) == component


def test_components_are_frozen():
    with pytest.raises(FrozenInstanceError):
        Leaf().size = 2.0
    with pytest.raises(FrozenInstanceError):
        SpikeAndSlab(Gaussian()).slab = Gaussian(2.0)


def test_clone_and_pickle_give_equal_but_other_components():
    trunk = Trunk(Branch(Leaf(7.0, "ash"), 0.7))
    for copy in (clone(trunk), pickle.loads(pickle.dumps(trunk))):
        assert copy == trunk
        assert copy is not trunk
    # What a parameter search does: the clone changes, the original does not.
    clone(trunk).set_params(branch__leaf__size=8.0)
    assert trunk.branch.leaf.size == 7.0


def test_inner_names_keeps_what_concerns_a_field():
    names = frozenset({"slab__variance", "slab__base__rate", "inclusion", "slabs__other"})
    assert inner_names(names, "slab") == {"variance", "base__rate"}
    assert inner_names(names, "channel") == frozenset()
    assert inner_names(None, "slab") is None


def test_none_wants_everything():
    assert wants(None, "size")
    assert wants(frozenset({"size"}), "size")
    assert not wants(frozenset({"leaf__size"}), "size")
