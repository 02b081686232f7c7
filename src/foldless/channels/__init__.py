"""Channels: how labels depend on scores. Parameters in the constructor, data in the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from foldless.channels.base import Channel, SupportsEM, SupportsMaxSum
from foldless.channels.flipped_labels import FlippedLabels
from foldless.channels.hinge import Hinge
from foldless.channels.logistic import Blended, Logistic
from foldless.channels.multinomial import BlendedMultinomial, Multinomial
from foldless.channels.pinned import Pinned
from foldless.channels.probit import Probit, Step

__all__ = [
    "CHANNELS",
    "Blended",
    "BlendedMultinomial",
    "Channel",
    "FlippedLabels",
    "Hinge",
    "Logistic",
    "Multinomial",
    "Pinned",
    "Probit",
    "Step",
    "SupportsEM",
    "SupportsMaxSum",
    "channel_from",
]

# What a name stands for: called without arguments, each gives the channel with its default parameters.
CHANNELS: Mapping[str, Callable[[], Channel]] = {
    "logistic": Logistic,
    "probit": Probit,
    "hinge": Hinge,
    "step": Step,
    "robust-logistic": lambda: FlippedLabels(Logistic()),
    "robust-probit": lambda: FlippedLabels(Probit()),
    "robust-hinge": lambda: FlippedLabels(Hinge()),
}


def channel_from(name_or_object: str | Channel) -> Channel:
    """A channel by its name in `CHANNELS`; a channel object is returned as it is."""
    if isinstance(name_or_object, Channel):
        return name_or_object
    if isinstance(name_or_object, str) and name_or_object in CHANNELS:
        return CHANNELS[name_or_object]()
    if isinstance(name_or_object, type) and issubclass(name_or_object, Channel):
        name = name_or_object.__name__
        raise TypeError(f"Got the class {name}; pass an object instead: {name}().")
    raise ValueError(
        f"Unknown channel {name_or_object!r}. Known names: {sorted(CHANNELS)}. For other parameters pass an "
        "object, for example FlippedLabels(Logistic(scale=2.0), flip_prob=0.02)."
    )
