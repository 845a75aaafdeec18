"""Whether agents did to a witness what Kafka's broker did. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

State = Literal["passed", "failed", "absent"]

MAX_SHOWN: Final = 2000
"""Characters of what a witness shows that are kept, in the results too: a stack trace has as many."""


class Outcome(msgspec.Struct, frozen=True):
    """`shown`: of a witness that passed what must be alike, of one that failed the reason."""

    state: State
    shown: str = ""


ABSENT: Final = Outcome("absent")

Outcomes = Mapping[str, Outcome]
"""By the name of the case, in the order in which they ran."""


class Known(msgspec.Struct, frozen=True):
    """A difference that is stated: `why`, the states of both, and `told`, a part of what the agents' case shows."""

    why: str
    told: str = ""
    kafka: State = "passed"
    ours: State = "failed"


class Verdict(msgspec.Struct, frozen=True):
    """`kind`: "same", "known", "left out", or else "differs", with what is wrong in `why`."""

    witness: str
    name: str
    kind: Literal["same", "known", "left out", "differs"]
    why: str = ""
    kafka: Outcome = ABSENT
    ours: Outcome = ABSENT


def passed(shown: str = "") -> Outcome:
    """An outcome of which `shown` must be alike."""
    return Outcome("passed", shown[:MAX_SHOWN])


def failed(reason: str) -> Outcome:
    """An outcome with its reason: the end of it, where that is long."""
    return Outcome("failed", reason[-MAX_SHOWN:])


def judge(witness: str, kafka: Outcomes, ours: Outcomes, known: Mapping[str, Known]) -> list[Verdict]:
    """A verdict for each case that either saw, and for each stated difference that nobody saw."""
    names = dict.fromkeys((*kafka, *ours, *known))
    return [_judged(witness, name, kafka.get(name, ABSENT), ours.get(name, ABSENT), known.get(name)) for name in names]


def left_out(witness: str, names: Mapping[str, str]) -> list[Verdict]:
    """A verdict for each case that did not run, by its name and reason."""
    return [Verdict(witness, name, "left out", why) for name, why in names.items()]


def faults(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Those that make the run fail."""
    return [one for one in verdicts if one.kind == "differs"]


def _judged(witness: str, name: str, kafka: Outcome, ours: Outcome, known: Known | None) -> Verdict:
    if known is not None:
        as_stated = (kafka.state, ours.state) == (known.kafka, known.ours) and known.told in ours.shown
        wrong = f"not the difference that is stated, which is: {known.why}"
        return Verdict(
            witness, name, "known" if as_stated else "differs", known.why if as_stated else wrong, kafka, ours
        )
    if "absent" in {kafka.state, ours.state}:
        return Verdict(witness, name, "differs", "it ran against one of the two alone", kafka, ours)
    if kafka.state != "passed":
        return Verdict(witness, name, "differs", "it fails against Kafka too, so it tells nothing", kafka, ours)
    if ours.state != "passed":
        return Verdict(witness, name, "differs", "it passes against Kafka alone", kafka, ours)
    alike = kafka.shown == ours.shown
    return Verdict(
        witness, name, "same" if alike else "differs", "" if alike else "they show different things", kafka, ours
    )
