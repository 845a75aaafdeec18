"""Whether all that a run's witnesses were told goes together, and with what the members say: `check`.

The checks are those of the simulation, with what a real cluster shows in the place of its log; and a few that only real
clients make possible. `python -m tests.chaos.checker DIRECTORY` judges a run again that was kept: it prints the verdict
as JSON, and ends with exit code 1 if anything was violated, 2 if the directory holds no journal.
"""

from __future__ import annotations

import itertools
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from pidkeeper.controller.state.requests import AllocateProducerIds
from pidkeeper.protocol.messages import AllocatedBlock, InitProducerIdResponse
from pidkeeper.protocol.records import AllocateProducerIdsRecord
from tests.chaos.groups import GroupsCheck
from tests.chaos.ledgers import Ledger
from tests.chaos.load.journal import Entry, JournalError, Outcome
from tests.chaos.load.kinds import CLAIM, FATAL, FENCED, FORBIDDEN, QUOTA, REGISTER, ZOMBIE
from tests.chaos.records import RecordsCheck
from tests.chaos.story import Grant, Story
from tests.simulation.history import (
    AcknowledgedBlock,
    Operation,
    acknowledged_blocks,
    check_disjoint,
    check_floors,
    check_foreign,
    check_gaps,
    check_owners,
    check_real_time_order,
    check_repeated,
    committed_blocks,
)
from tests.simulation.transaction_history import check_pairs
from tests.simulation.world import Violation

OUTAGE_NS: Final = 100_000_000
"""A pause between two grants after which the leader may be a new one, whose quotas begin anew."""


class Verdict(msgspec.Struct, frozen=True):
    """What was checked, and what was found.

    `ids_checked`: IDs that left agents or went to transactional producers; `duplicates`: how often one of them was had
    again, or lay in a block that a direct allocator had. `lost`: acknowledged blocks that a member which should know
    them does not; `unseen`: those that lie in what no member could be asked about. `violations`: what was broken, in
    words; of each rule the first. `claim_errors`: claims that got no ID. `unknown`: operations that nobody knows the
    outcome of. `stale_refused`: requests with a stale epoch. `zombies_fenced`: producers that were replaced.
    `fatal_errors`: what ended Kafka clients, in words.

    `records_checked`: those that were sent, of `transactions_checked` transactions among others. `records_lost`: they
    were acknowledged, and are not where they were said to be. `records_doubled`: they are there twice.
    `records_reordered`: behind one of the same producer that was sent later. `transactions_torn`: seen in part, or
    although they were aborted.

    `copies_checked`, `copies_lost`, `copies_doubled`, `copies_reordered`: of what copiers read, likewise.
    `commits_checked`: of groups, that were acknowledged; `commits_refused`: of members that had lost their partitions.
    `commits_lost`: somebody was told later that less was committed. `commits_of_zombies`: of a generation that was
    over.
    """

    ids_checked: int
    blocks_checked: int
    pairs_checked: int
    duplicates: int
    lost: int
    unseen: int
    violations: list[str]
    claim_errors: int
    fatal_client_errors: int
    fatal_errors: list[str]
    operations: int
    unknown: int
    stale_refused: int
    zombies_fenced: int
    records_checked: int
    transactions_checked: int
    records_lost: int
    records_doubled: int
    records_reordered: int
    transactions_torn: int
    copies_checked: int
    copies_lost: int
    copies_doubled: int
    copies_reordered: int
    commits_checked: int
    commits_refused: int
    commits_lost: int
    commits_of_zombies: int


def check(directory: Path) -> Verdict:
    """Judge what a run has left in its directory. Raises JournalError if that cannot be read."""
    return Checker(Story(directory)).verdict()


class Checker:
    """Makes every check, whatever the others find."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self._acknowledged = acknowledged_blocks(story.operations)
        self._unseen = _unseen(self._acknowledged, story)
        self._lost = _lost(self._acknowledged, story.ledgers)
        self._violations: list[str] = []

    def verdict(self) -> Verdict:
        """The verdict."""
        story, entries = self.story, self.story.others
        fatal = [entry for entry in entries if entry.kind == FATAL]
        self._check()
        records, groups = RecordsCheck(entries).facts(), GroupsCheck(entries).facts()
        return Verdict(
            ids_checked=sum(len(one.ids) for one in story.claimed) + len(story.transactional_ids()),
            blocks_checked=len(self._acknowledged),
            pairs_checked=sum(one.answer is not None for inits in story.inits.values() for one in inits),
            duplicates=self._duplicates(),
            lost=len(self._lost),
            unseen=len(self._unseen),
            violations=[*self._violations, *records.violations, *groups.violations],
            claim_errors=sum(entry.arguments["count"] for entry in entries if entry.kind == CLAIM),
            fatal_client_errors=len(fatal),
            fatal_errors=[f"{entry.arguments['library']}: {entry.arguments['text']}" for entry in fatal],
            operations=story.outcomes.total(),
            unknown=story.outcomes[Outcome.UNKNOWN],
            stale_refused=story.stale_refused,
            zombies_fenced=sum(entry.code == FENCED for entry in entries if entry.kind == ZOMBIE),
            records_checked=records.records_checked,
            transactions_checked=records.transactions_checked,
            records_lost=records.records_lost,
            records_doubled=records.records_doubled,
            records_reordered=records.records_reordered,
            transactions_torn=records.transactions_torn,
            copies_checked=groups.copies_checked,
            copies_lost=groups.copies_lost,
            copies_doubled=groups.copies_doubled,
            copies_reordered=groups.copies_reordered,
            commits_checked=groups.commits_checked,
            commits_refused=groups.commits_refused,
            commits_lost=groups.commits_lost,
            commits_of_zombies=groups.commits_of_zombies,
        )

    def _check(self) -> None:
        story, agents = self.story, self.story.agents()
        self._try(check_disjoint, self._acknowledged)
        self._try(check_real_time_order, story.operations)
        self._try(check_repeated, agents)
        self._try(check_foreign, agents)
        self._try(_check_histories, story.ledgers)
        self._try(_check_every_ledger, self._lost)
        self._try(self._check_log)
        self._try(_check_stale_epochs, story.others, self._acknowledged)
        self._try(_check_forbidden, story.others)
        self._try(_check_quotas, story.others, story.grants)
        for transactional_id, inits in story.inits.items():
            self._try(check_pairs, transactional_id, inits)
            self._try(_check_epochs, transactional_id, inits)

    def _try(self, check: Callable[..., None], *facts: object) -> None:
        try:
            check(*facts)
        except Violation as violation:
            self._violations.append(str(violation))

    def _check_log(self) -> None:
        """What needs the blocks in order of the log; a hole in what the members know explains a jump of the IDs."""
        story = self.story
        commits = story.commits()
        committed = committed_blocks(commits)
        seen = [block for block in self._acknowledged if block[0] not in self._unseen]
        self._try(check_owners, seen, committed)
        above_holes = {last + 1 for _, last in story.holes}
        floors = [commit for commit in commits if _next_id(commit.record) not in above_holes]
        self._try(check_floors, story.operations, floors)
        begun = _first_epochs(story.others)
        ours = {first: commit for first, commit in committed.items() if _is_since(commit.record, begun)}
        self._try(check_gaps, story.operations, self._acknowledged, ours)

    def _duplicates(self) -> int:
        """How often an ID was had again: by somebody else, in the block of a direct allocator, or in two of those."""
        had = np.sort(np.concatenate([*(one.ids for one in self.story.claimed), self.story.transactional_ids()]))
        distinct = had[np.diff(had, prepend=-1) != 0]
        firsts = np.array([first for first, _, _ in self._acknowledged], np.int64)
        ends = firsts + np.array([length for _, length, _ in self._acknowledged], np.int64)
        within = np.searchsorted(distinct, ends) - np.searchsorted(distinct, firsts)
        covered = np.maximum.accumulate(ends) if len(ends) else ends
        overlaps = np.clip(np.minimum(covered[:-1], ends[1:]) - firsts[1:], 0, None)
        return int(len(had) - len(distinct) + within.sum() + overlaps.sum())


def _next_id(record: object) -> int:
    found: int = getattr(record, "next_producer_id", -1)
    return found


def _first_epochs(entries: Iterable[Entry]) -> dict[int, int]:
    """The first epoch of each broker that registered in this run. Epochs rise with the log."""
    first: dict[int, int] = {}
    for entry in entries:
        if entry.kind == REGISTER and entry.outcome is Outcome.OK:
            broker_id, epoch = entry.arguments["broker_id"], entry.result["broker_epoch"]
            first[broker_id] = min(epoch, first.get(broker_id, epoch))
    return first


def _is_since(record: object, begun: Mapping[int, int]) -> bool:
    """Whether it is a block of a broker of this run: a cluster of others may have had one of the same id before."""
    if not isinstance(record, AllocateProducerIdsRecord) or record.broker_id not in begun:
        return False
    return record.broker_epoch >= begun[record.broker_id]


def _unseen(acknowledged: Iterable[AcknowledgedBlock], story: Story) -> frozenset[int]:
    """The first IDs of the acknowledged blocks that nobody knows, and nobody who was asked had to know."""
    known = {block.first for block in story.known}
    return frozenset(
        first
        for first, length, _ in acknowledged
        if first not in known and not story.coverage.has(first, first + length - 1)
    )


def _lost(acknowledged: Iterable[AcknowledgedBlock], ledgers: Iterable[Ledger]) -> dict[int, str]:
    """The first IDs of the acknowledged blocks that a member should know and does not, and who that is."""
    known = [(ledger, {block.first: block for block in ledger.blocks}) for ledger in ledgers]
    lost: dict[int, str] = {}
    for first, length, operation in acknowledged:
        for ledger, blocks in known:
            covered = ledger.complete_from <= first <= ledger.through
            if covered and not _is(block := blocks.get(first), first, length):
                lost[first] = f"{operation.request} was given {first} +{length}, member {ledger.member} says {block}"
    return lost


def _is(block: AllocatedBlock | None, first: int, length: int) -> bool:
    return block is not None and (block.first, block.last) == (first, first + length - 1)


def _check_every_ledger(lost: Mapping[int, str]) -> None:
    """Every acknowledged block is in the history of every member that says it has all from there on."""
    for text in lost.values():
        raise Violation("lost-by-a-member", text)


def _check_histories(ledgers: Iterable[Ledger]) -> None:
    """No two members say different things of one record, or of one ID."""
    by_offset: dict[int, tuple[int, AllocatedBlock]] = {}
    by_first: dict[int, tuple[int, AllocatedBlock]] = {}
    for ledger in ledgers:
        for block in ledger.blocks:
            for known in (
                by_offset.setdefault(block.offset, (ledger.member, block)),
                by_first.setdefault(block.first, (ledger.member, block)),
            ):
                if known[1] != block:
                    raise Violation(
                        "two-histories", f"member {known[0]} says {known[1]}, member {ledger.member} {block}"
                    )


def _check_stale_epochs(entries: Iterable[Entry], acknowledged: Iterable[AcknowledgedBlock]) -> None:
    """Nothing is granted that was asked for under an epoch when a newer one of its broker had been given."""
    given: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for entry in entries:
        if entry.kind == REGISTER and entry.outcome is Outcome.OK and entry.returned is not None:
            given[entry.arguments["broker_id"]].append((entry.returned, entry.result["broker_epoch"]))
    for _, _, operation in acknowledged:
        asked = operation.request
        assert isinstance(asked, AllocateProducerIds), "it was given a block"
        for time, epoch in given[asked.broker_id]:
            if epoch > asked.broker_epoch and time < operation.invoked:
                facts = f"{asked}, invoked at {operation.invoked}, but epoch {epoch} had been given at {time}"
                raise Violation("stale-epoch-granted", facts)


def _check_forbidden(entries: Iterable[Entry]) -> None:
    """Nobody was granted what nobody may have, and no instance acted that had been replaced."""
    for entry in entries:
        if entry.outcome is Outcome.OK and entry.kind == FORBIDDEN:
            raise Violation("forbidden-granted", str(entry))
        if entry.outcome is Outcome.OK and entry.kind == ZOMBIE:
            raise Violation("two-unfenced", str(entry))


def _check_quotas(entries: Iterable[Entry], granted: Sequence[Grant]) -> None:
    """A broker that asks for more than its quota gets no more: a burst from each leader, and what the time gives."""
    leaders = 1 + sum(
        one.member != other.member or other.returned - one.returned > OUTAGE_NS
        for one, other in itertools.pairwise(granted)
    )
    for entry in entries:
        if entry.kind != QUOTA or not granted:
            continue
        asked = entry.arguments
        had = sum(grant.broker_id == asked["broker_id"] for grant in granted)
        seconds = (granted[-1].returned - granted[0].returned) / 1e9
        if had > (most := asked["burst"] * leaders + asked["per_second"] * seconds):
            raise Violation("over-quota", f"broker {asked['broker_id']} was given {had} blocks, {most:.0f} at most")


def _check_epochs(transactional_id: str, inits: list[Operation]) -> None:
    """Whoever began after another had its pair has a higher epoch of the same ID, or an ID that nobody had before."""
    told = [one for one in inits if isinstance(one.answer, InitProducerIdResponse) and one.returned is not None]
    for one, other in itertools.pairwise(sorted(told, key=lambda init: init.invoked)):
        assert isinstance(one.answer, InitProducerIdResponse) and isinstance(other.answer, InitProducerIdResponse)
        if one.returned is None or one.returned > other.invoked:
            continue
        if other.answer.producer_id < one.answer.producer_id or (
            other.answer.producer_id == one.answer.producer_id
            and other.answer.producer_epoch <= one.answer.producer_epoch
        ):
            raise Violation("epoch-fell", f"{transactional_id}: {other.answer} came after {one.answer}")


def main(arguments: list[str]) -> int:
    """The command line."""
    if len(arguments) != 1:
        print("usage: python -m tests.chaos.checker DIRECTORY", file=sys.stderr)
        return 2
    try:
        verdict = check(Path(arguments[0]))
    except JournalError as error:
        print(error, file=sys.stderr)
        return 2
    print(msgspec.json.format(msgspec.json.encode(verdict)).decode())
    return 1 if verdict.violations or verdict.duplicates or verdict.lost or verdict.fatal_client_errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
