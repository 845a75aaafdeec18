"""The models of `Groups`, and those that lack one of its rules each, in which TLC is to find what is broken."""

from __future__ import annotations

from typing import Final

import msgspec

from spec.models import Model

RULES: Final = (
    "the generation fences",
    "a member of it",
    "compare and swap",
    "again by its coordinator",
    "stable reads",
    "confirmed reads",
    "in its transaction",
    "an epoch each",
    "the later commit wins",
)
"""All in force but in FLAWED_GROUPS."""

INVARIANTS: Final = (
    "ExactlyOnce",
    "OneAfterTheOther",
    "StaleMovesNothing",
    "StableReads",
    "LatestCounts",
    "NothingHangs",
)


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of `Groups`."""

    coordinators: int = 2
    members: int = 2
    inputs: int = 1
    generations: int = 2
    versions: int = 2
    epochs: int = 1
    offsets: int = 2
    plain: int = 0


def groups_model(name: str, bounds: Bounds, *, without: str = "", broken: str = "") -> Model:
    """Without one of the rules, if one is named; `broken` does not hold then, and nothing else is looked at."""
    rules = ", ".join(f'"{rule}"' for rule in RULES if rule != without)
    coordinators, members = ("c", "d")[: bounds.coordinators], ("m", "n")[: bounds.members]
    invariants = [one for one in INVARIANTS if not (one == "ExactlyOnce" and bounds.plain)]
    return Model(
        name=name,
        module="Groups",
        constants={
            **{one: one for one in (*coordinators, *members)},
            "Coordinators": f"{{{', '.join(coordinators)}}}",
            "Members": f"{{{', '.join(members)}}}",
            "Rules": f"{{{rules}}}",
            "Inputs": str(bounds.inputs),
            "MaxGeneration": str(bounds.generations),
            "MaxVersion": str(bounds.versions),
            "MaxEpoch": str(bounds.epochs),
            "MaxOffsets": str(bounds.offsets),
            "MaxPlain": str(bounds.plain),
        },
        alike=("Coordinators", "Members") if bounds.coordinators > 1 else ("Members",),
        invariants=(broken,) if broken else tuple(invariants),
        broken=broken,
    )


_ONE: Final = Bounds(coordinators=1)
_FIRST: Final = Bounds(generations=1)

GROUPS_MODELS: Final = (
    groups_model("groups, short", Bounds(coordinators=1, inputs=2)),
    groups_model("groups, two coordinators", Bounds()),
    groups_model("groups, two transactions", Bounds(coordinators=1, inputs=2, epochs=2, offsets=3)),
    groups_model("groups, plain commits", Bounds(coordinators=1, plain=1)),
)


def _without(rule: str, broken: str, bounds: Bounds) -> Model:
    return groups_model(f"groups, {broken} without: {rule}", bounds, without=rule, broken=broken)


FLAWED_GROUPS: Final = (
    _without("the generation fences", "StaleMovesNothing", _ONE),
    _without("the generation fences", "ExactlyOnce", _ONE),
    _without("a member of it", "StaleMovesNothing", _ONE),
    _without("a member of it", "ExactlyOnce", _ONE),
    _without("compare and swap", "OneAfterTheOther", _FIRST),
    _without("compare and swap", "ExactlyOnce", _FIRST),
    _without("again by its coordinator", "ExactlyOnce", Bounds(generations=1, versions=1)),
    _without("stable reads", "StableReads", _ONE),
    _without("stable reads", "ExactlyOnce", _ONE),
    _without("confirmed reads", "ExactlyOnce", _ONE),
    _without("in its transaction", "NothingHangs", _ONE),
    _without("an epoch each", "ExactlyOnce", Bounds(coordinators=1, inputs=2)),
    _without("the later commit wins", "LatestCounts", Bounds(coordinators=1, plain=1)),
)
"""Each lacks a rule, and TLC must find what that breaks. Each invariant is among what is broken."""
