"""The models of `Logs`, and those that lack one of its rules each, in which TLC is to find what is broken."""

from __future__ import annotations

from typing import Final

import msgspec

from spec.models import Model

RULES: Final = (
    "put first",
    "founding in names",
    "numbers ascend",
    "refused takes its number",
    "compare and swap",
    "below the last stable offset",
    "committed first",
    "dead epochs alone",
    "held until released",
    "untold while hearing",
    "nothing while hearing",
    "aborted in the index",
    "agents stop before a restore",
)
"""All in force but in FLAWED."""

INVARIANTS: Final = (
    "Contiguous",
    "OnceEach",
    "Acknowledged",
    "InTheStore",
    "DeletedForEver",
    "NamesOnce",
    "StableOffset",
    "NothingHangs",
    "ReadCommitted",
    "HeldUntilReleased",
    "NothingForgotten",
)


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of `Logs`. agents: of so many brokers; those of one broker do not know of each other. transactional:
    whether the only producer is, or else idempotent."""

    agents: int = 2
    brokers: int = 2
    transactional: bool = False
    pairs: bool = False
    epochs: int = 2
    fences: int = 0
    objects: int = 2
    segments: int = 0
    late: int = 0
    discarded: int = 0
    offsets: int = 2
    start: int = 0
    topics: int = 1
    quorums: int = 1


def logs_model(name: str, bounds: Bounds, *, without: str = "", broken: str = "") -> Model:
    """Without one of the rules, if one is named; `broken` does not hold then."""
    rules = ", ".join(f'"{rule}"' for rule in RULES if rule != without)
    return Model(
        name=name,
        module="Logs",
        constants={
            "Agents": f"{{{', '.join(map(str, range(bounds.agents)))}}}",
            "Plain": "{}",
            "Idempotent": "{}" if bounds.transactional else '{"i"}',
            "Transactional": '{"t"}' if bounds.transactional else "{}",
            "Rules": f"{{{rules}}}",
            "Pairs": "TRUE" if bounds.pairs else "FALSE",
            "Window": "2",
            "MaxEpoch": str(bounds.epochs),
            "MaxFence": str(bounds.fences),
            "MaxObjects": str(bounds.objects),
            "MaxSegments": str(bounds.segments),
            "MaxLate": str(bounds.late),
            "MaxDiscarded": str(bounds.discarded),
            "MaxOffset": str(bounds.offsets),
            "MaxStart": str(bounds.start),
            "MaxTopics": str(bounds.topics),
            "MaxQuorums": str(bounds.quorums),
        },
        defined={"BrokerOf": f"[agent \\in Agents |-> agent % {bounds.brokers}]"},
        invariants=INVARIANTS,
        broken=broken,
    )


def _cleaned(name: str, bounds: Bounds) -> Model:
    model = logs_model(name, bounds)
    return msgspec.structs.replace(model, invariants=(), specification="LivelySpec", properties=("Cleaned",))


_LATE: Final = Bounds(late=1, discarded=1, pairs=True)
_RESTORE: Final = Bounds(agents=1, brokers=1, discarded=1, pairs=True, quorums=2)
_SINGLE_RESTORE: Final = Bounds(agents=1, brokers=1, epochs=3, discarded=1, quorums=2)
_TWO_SEGMENTS: Final = Bounds(agents=1, brokers=1, transactional=True, epochs=1, segments=2, offsets=4)

LOGS_MODELS: Final = (
    logs_model("logs, short", _LATE),
    logs_model("logs, a zombie", Bounds(brokers=1, late=1, discarded=1, pairs=True, offsets=3)),
    logs_model("logs, two rollers", Bounds(objects=1, segments=2, pairs=True)),
    logs_model(
        "logs, transactions",
        Bounds(agents=1, brokers=1, transactional=True, epochs=1, segments=1, offsets=4, fences=1),
    ),
    logs_model("logs, a restore", _RESTORE),
    _cleaned("logs, cleaned", Bounds(agents=1, brokers=1, start=1, late=1)),
)

WIDER: Final = (
    logs_model("logs, topics", Bounds(agents=1, brokers=1, epochs=1, segments=2, start=1, topics=2)),
    logs_model("logs, a transaction in two segments", _TWO_SEGMENTS),
    logs_model("logs, segments and a restore", Bounds(agents=1, brokers=1, segments=1, discarded=1, quorums=2)),
)
"""What `make spec` leaves out; `python -m spec.run NAME` has them checked."""


def _without(rule: str, broken: str, bounds: Bounds) -> Model:
    return logs_model(f"logs, without: {rule}", bounds, without=rule, broken=broken)


FLAWED: Final = (
    _without("put first", "InTheStore", Bounds(late=1)),
    _without("founding in names", "NamesOnce", _SINGLE_RESTORE),
    _without("numbers ascend", "DeletedForEver", Bounds(late=1)),
    _without("refused takes its number", "DeletedForEver", Bounds(transactional=True, objects=1)),
    _without("compare and swap", "Contiguous", Bounds(segments=2)),
    _without("below the last stable offset", "ReadCommitted", Bounds(transactional=True, objects=1, segments=1)),
    _without("committed first", "DeletedForEver", Bounds(objects=1, segments=1)),
    _without("dead epochs alone", "DeletedForEver", Bounds()),
    _without("held until released", "HeldUntilReleased", _SINGLE_RESTORE),
    _without("untold while hearing", "NamesOnce", _RESTORE),
    _without("nothing while hearing", "HeldUntilReleased", _SINGLE_RESTORE),
    _without("aborted in the index", "ReadCommitted", _TWO_SEGMENTS),
    _without("agents stop before a restore", "NamesOnce", Bounds(brokers=1, pairs=True, quorums=2)),
)
"""Each lacks a rule, and TLC must find what that breaks."""
