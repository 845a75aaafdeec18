"""A copy of what a run has left, to put lies into, and whether the checker finds them."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from pidkeeper.protocol.messages import AllocatedBlock
from tests.chaos.checker import Verdict
from tests.chaos.ledgers import LEDGER, Ledger
from tests.chaos.load.journal import IDS, OPERATIONS, Invoked, Outcome, Returned


class Control(msgspec.Struct, frozen=True):
    """`by`: the rules that the checker says are broken; `duplicates`: the IDs that it saw again."""

    name: str
    flagged: bool
    by: list[str]
    duplicates: int


def control_of(name: str, verdict: Verdict, rule: str) -> Control:
    """Whether the rule is among those that the checker says are broken."""
    rules = [text.partition(":")[0] for text in verdict.violations]
    return Control(name, rule in rules, rules, verdict.duplicates)


class AbsentError(Exception):
    """The run has nothing of the kind that a lie needs."""


class Copy:
    """The files of a run, to be changed. Each raises AbsentError where the run has nothing of the kind."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @contextlib.contextmanager
    def ledgers(self, *, of_all: bool = True) -> Iterator[list[list[AllocatedBlock]]]:
        """The blocks in every history that was kept, or in a newest one alone, in order of ID."""
        kept = {path: msgspec.json.decode(path.read_bytes(), type=Ledger) for path in self.directory.glob(f"*{LEDGER}")}
        if not of_all:
            newest = max(kept, key=lambda path: kept[path].through)
            kept = {newest: kept[newest]}
        yield [ledger.blocks for ledger in kept.values()]
        for path, ledger in kept.items():
            path.write_bytes(msgspec.json.encode(ledger))

    @contextlib.contextmanager
    def operations(self, actor: str) -> Iterator[list[tuple[Invoked, Returned]]]:
        """The operations of an actor that have an outcome, in order of their beginning; they may be replaced."""
        path = self.directory / f"{actor}{OPERATIONS}"
        lines = [msgspec.json.decode(text, type=Invoked | Returned) for text in path.read_bytes().splitlines()]
        told = {line.number: line for line in lines if isinstance(line, Returned)}
        begun = [line for line in lines if isinstance(line, Invoked)]
        ended = [(line, told[line.number]) for line in begun if line.number in told]
        yield ended
        kept: list[Invoked | Returned] = [line for line in begun if line.number not in told]
        kept += [line for pair in ended for line in pair]
        path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in kept))

    def having(self, kind: str, outcome: Outcome = Outcome.OK, at_least: int = 1, code: str = "") -> str:
        """An actor that has so many operations like this."""
        for path in sorted(self.directory.glob(f"*{OPERATIONS}")):
            actor = path.name.removesuffix(OPERATIONS)
            with self.operations(actor) as pairs:
                if len(like(pairs, kind, outcome, code)) >= at_least:
                    return actor
        raise AbsentError(f"nobody has {at_least} of {kind} that are {outcome}")

    def claim(self, producer_id: int) -> None:
        """Somebody has this ID from an agent, too."""
        path = max(self.directory.glob(f"*{IDS}"), key=lambda found: found.stat().st_size)
        with path.open("ab") as file:
            file.write(array("q", [producer_id]).tobytes())

    def claimed(self) -> int:
        """An ID that somebody has from that agent."""
        path = max(self.directory.glob(f"*{IDS}"), key=lambda found: found.stat().st_size)
        return array("q", path.read_bytes()[:8])[0]


def like(pairs: list[tuple[Invoked, Returned]], kind: str, outcome: Outcome = Outcome.OK, code: str = "") -> list[int]:
    """The places of operations of this kind that came to this, with this code if one is given."""
    return [
        place
        for place, (asked, told) in enumerate(pairs)
        if asked.kind == kind and told.outcome is outcome and code in {"", told.code}
    ]


def result_of(pair: tuple[Invoked, Returned]) -> dict[str, Any]:
    """Of an operation that is ok."""
    assert pair[1].result is not None, f"{pair} is ok"
    return pair[1].result


def give(pairs: list[tuple[Invoked, Returned]], place: int, result: dict[str, Any] | None) -> None:
    """Have the operation at this place come to this result."""
    asked, told = pairs[place]
    pairs[place] = asked, replace(told, outcome=Outcome.OK, result=result, code="")
