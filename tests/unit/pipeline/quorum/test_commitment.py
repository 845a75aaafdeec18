"""Which entries count as committed that no member calls so: against logs of the product, and against its consensus."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from pidkeeper.controller.raft.messages import Entry, HardState
from pidkeeper.controller.storage.founding import Founding, FoundingVoter, write_founding
from pidkeeper.controller.storage.wal import WriteAheadLog
from pidkeeper.pipeline.audit import AuditOptions, keep, look
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.files.location import locate
from pidkeeper.pipeline.formats.acceptance import Acceptance
from pidkeeper.pipeline.paths import AuditPaths
from pidkeeper.pipeline.quorum.commitment import majority_index
from pidkeeper.protocol.records import VotersRecord, encode_batch
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.support import raft_network
from tests.support.member_files import MemberFiles
from tests.support.raft_chaos import Chaos
from tests.support.raft_network import Disk, members
from tests.support.sound_quorum import FIRST_BLOCK, IDS, records

SEEDS = 60
COMMIT = 10
"""Of all logs, as recorded: seven blocks."""
TOLD = records()
Step = HardState | Entry


def entries(term: int, first: int, last: int) -> list[Step]:
    return [Entry(term, index, encode_batch([TOLD[index - 1]])) for index in range(first, last + 1)]


def state(term: int, commit: int = COMMIT, *, recovering: bool = False) -> HardState:
    return HardState(term=term, vote=1, commit=commit, recovering=recovering)


SOUND = [state(1, 0), *entries(1, 1, COMMIT), state(1)]


def write(path: Path, node: int, steps: Sequence[Step], founders: Sequence[int] = (1, 2, 3)) -> None:
    member = MemberFiles(path / str(node), node)
    if founders:
        voters = [FoundingVoter(one, f"host-{one}:9000", f"http://host-{one}:8080") for one in founders]
        write_founding(member.files, member.path, Founding.of(voters))
    log, _ = WriteAheadLog.open(member.files, member.path / "wal", member.meta)
    for step in steps:
        log.append([step] if isinstance(step, Entry) else [], step if isinstance(step, HardState) else None)
    log.close()


def told(path: Path, *logs: Sequence[Step], founders: Sequence[int] = (1, 2, 3)) -> int:
    """The last log index up to which an audit of members with these logs sees blocks."""
    for node, steps in enumerate(logs, 1):
        write(path / "data", node, steps, founders)
    verdict = look(LocalEngine(), AuditOptions(AuditPaths([str(path / "data")], []), locate(path / "out"))).verdict
    assert verdict.violations == 0, verdict
    assert verdict.highest_id is not None
    return FIRST_BLOCK + (verdict.highest_id + 1) // IDS


def test_the_last_entries_of_a_quorum_at_rest_count(tmp_path: Path) -> None:
    behind = [*SOUND, *entries(1, 11, 11)]
    ahead = [*SOUND, *entries(1, 11, 14)]
    assert told(tmp_path / "all", ahead, ahead, ahead) == 14
    assert told(tmp_path / "two", ahead, ahead, behind) == 14
    assert told(tmp_path / "one", ahead, behind, behind) == 11
    assert told(tmp_path / "unread", ahead, ahead) == 14, "two of three are a majority"
    assert told(tmp_path / "alone", ahead) == COMMIT


def test_what_a_later_leader_handed_on_does_not_count_before_an_entry_of_its_own(tmp_path: Path) -> None:
    """Figure 8: a majority has entry 11 of term 2, and the third may lead yet and replace it."""
    handed_on = [*SOUND, state(2), state(4), *entries(2, 11, 11)]
    third = [*SOUND, state(3), *entries(3, 11, 11)]
    assert told(tmp_path / "c", handed_on, handed_on, third) == COMMIT
    settled = [*handed_on, *entries(4, 12, 12)]
    assert told(tmp_path / "e", settled, settled, third) == 12


def test_an_entry_that_few_have_in_the_place_of_a_committed_one_does_not_count(tmp_path: Path) -> None:
    most = [*SOUND, *entries(1, 11, 14)]
    other = [*SOUND, *entries(1, 11, 11), state(2), Entry(2, 12, encode_batch([TOLD[20]]))]
    assert told(tmp_path, most, most, other) == 14


def test_what_was_replaced_is_not_accepted() -> None:
    followed = Acceptance()
    followed.hard_state(1, recovering=False)
    for index in range(1, 6):
        followed.entry(1, index)
    followed.hard_state(3, recovering=False)
    for index in (4, 5, 6):
        followed.entry(3, index)
    assert followed.last == {1: 3, 3: 6}
    followed.entry(3, 3)
    assert followed.last == {1: 2, 3: 3}
    followed.hard_state(4, recovering=False)
    followed.entry(4, 2)
    assert followed.last == {1: 1, 4: 2}
    followed.restart(9)
    assert followed.last == {}


def test_what_was_replaced_does_not_count(tmp_path: Path) -> None:
    replaced = [*SOUND, *entries(1, 11, 14), state(2), *entries(2, 12, 12)]
    assert told(tmp_path, replaced, replaced, SOUND) == 12


def test_a_member_that_lost_its_memory_does_not_count(tmp_path: Path) -> None:
    forgetful = [state(1, 0, recovering=True), *entries(1, 1, 11), state(1, recovering=True)]
    sound = [*SOUND, *entries(1, 11, 11)]
    assert told(tmp_path / "one", sound, forgetful, SOUND) == COMMIT
    recovered = [*forgetful, state(1), *entries(1, 12, 12)]
    assert told(tmp_path / "then", [*sound, *entries(1, 12, 12)], recovered, SOUND) == 12


def test_a_block_that_counted_and_is_in_a_log_yet_is_not_lost(tmp_path: Path) -> None:
    """A disk was replaced: the other log that has the last block cannot show alone that it is committed."""
    ahead = [*SOUND, *entries(1, 11, 14)]
    for node, steps in enumerate([ahead, ahead, SOUND], 1):
        write(tmp_path / "data", node, steps)
    options = AuditOptions(AuditPaths([str(tmp_path / "data")], []), locate(tmp_path / "out"))

    def audit() -> tuple[int, int | None]:
        outcome = look(LocalEngine(), options)
        keep(outcome, options.out)
        return outcome.verdict.checks["memory"].violations, outcome.verdict.highest_id

    assert audit() == (0, (14 - FIRST_BLOCK) * IDS - 1)
    whole = tmp_path / "whole"
    (tmp_path / "data" / "1").rename(whole)
    assert audit() == (0, (COMMIT - FIRST_BLOCK) * IDS - 1)
    (tmp_path / "data" / "2").rename(tmp_path / "gone")
    assert audit() == (1, (COMMIT - FIRST_BLOCK) * IDS - 1), "no log has them now"
    assert audit() == (1, (COMMIT - FIRST_BLOCK) * IDS - 1)
    (tmp_path / "gone").rename(tmp_path / "data" / "2")
    whole.rename(tmp_path / "data" / "1")
    assert audit() == (0, (14 - FIRST_BLOCK) * IDS - 1)


def test_another_block_of_the_same_ids_in_a_log_is_no_excuse(tmp_path: Path) -> None:
    """The last block was lost, and a new leader is about to give its IDs to another broker."""
    ahead = [*SOUND, *entries(1, 11, 11)]
    for node, steps in enumerate([ahead, ahead, SOUND], 1):
        write(tmp_path / "data", node, steps)
    options = AuditOptions(AuditPaths([str(tmp_path / "data")], []), locate(tmp_path / "out"))
    keep(look(LocalEngine(), options), options.out)
    shutil.rmtree(tmp_path / "data")
    given = msgspec.structs.replace(TOLD[10], broker_id=9, broker_epoch=0)
    write(tmp_path / "data", 1, [*SOUND, state(2), Entry(2, 11, encode_batch([given]))])
    write(tmp_path / "data", 3, SOUND)
    assert look(LocalEngine(), options).verdict.checks["memory"].violations == 1


def test_a_majority_is_one_of_those_who_vote(tmp_path: Path) -> None:
    logs = [[*SOUND, *entries(1, 11, 11)]] * 3
    assert told(tmp_path / "five", *logs, founders=(1, 2, 3, 4, 5)) == 11
    assert told(tmp_path / "seven", *logs, founders=(1, 2, 3, 4, 5, 6, 7)) == COMMIT
    assert told(tmp_path / "others", *logs, founders=(1, 8, 9)) == COMMIT
    assert told(tmp_path / "unknown", *logs, founders=()) == COMMIT


def test_none_counts_while_the_voters_are_being_changed(tmp_path: Path) -> None:
    def changing(at: int, commit: int) -> list[Step]:
        change = Entry(1, at, encode_batch([VotersRecord(members(1, 2, 3, learners=[4]).members)]))
        return [state(1, 0), *entries(1, 1, at - 1), change, state(1, commit), *entries(1, at + 1, at + 1)]

    assert told(tmp_path / "open", *[changing(11, COMMIT)] * 3) == COMMIT
    assert told(tmp_path / "done", *[changing(11, 11)] * 3) == 12


@pytest.mark.parametrize(
    ("indexes", "voters", "found"), [([7, 9, 8], 3, 8), ([9, 7], 3, 7), ([9], 3, None), ([9], 1, 9), ([], 1, None)]
)
def test_majorities(indexes: list[int], voters: int, found: int | None) -> None:
    assert majority_index(indexes, voters) == found


class FollowedDisk(Disk):
    """Notes what a log on it would tell."""

    def __init__(self, recovering: bool) -> None:
        super().__init__(recovering)
        self.acceptance = Acceptance()

    def sync_one(self) -> int:
        ready = self.pending[0]
        if ready.hard_state is not None:
            self.acceptance.hard_state(ready.hard_state.term, recovering=ready.hard_state.recovering)
        for entry in ready.entries:
            self.acceptance.entry(entry.term, entry.index)
        return super().sync_one()

    def install(self, snapshot: SnapshotId, image: bytes) -> None:
        super().install(snapshot, image)
        if not self.entries:
            self.acceptance.restart(snapshot.index)


class FollowedChaos(Chaos):
    """After each event, whatever the rule finds committed stays so: no member ever applies anything else there.

    found: by index the term; early: how many were found before any member applied them.
    """

    def __init__(self, seed: int) -> None:
        self.found: dict[int, int] = {}
        self.early = 0
        super().__init__(seed)

    def check(self) -> None:
        super().check()
        accepted: dict[int, list[int]] = defaultdict(list)
        for node in self.nodes.values():
            assert isinstance(node.disk, FollowedDisk)
            for term, last in node.disk.acceptance.last.items():
                accepted[term].append(last)
        for term, indexes in accepted.items():
            index = majority_index(indexes, len(self.nodes))
            if index is not None and index not in self.found:
                self.early += index > max(self.committed, default=0)
                self.found[index] = term
        for index, term in self.found.items():
            assert index not in self.committed or self.committed[index][1] == term, f"entry {index} of term {term}"


def test_no_course_of_the_product_contradicts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raft_network, "Disk", FollowedDisk)
    found = early = 0
    for seed in range(SEEDS):
        chaos = FollowedChaos(seed)
        chaos.run()
        applied = {index: term for index, term, _ in chaos.nodes[1].applied}
        assert chaos.found.items() <= applied.items(), f"seed {seed}"
        found, early = found + len(chaos.found), early + chaos.early
    assert early > SEEDS, f"{found} entries were found, {early} of them early"
