"""The checker on small journals: what explains what, what is counted, and what a killed writer leaves behind."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from pidkeeper.protocol.ids import MAX_PRODUCER_ID, OWN
from pidkeeper.protocol.messages import AllocatedBlock
from tests.chaos.checker import Verdict, check, main
from tests.chaos.ledgers import LEDGER, Coverage, Ledger
from tests.chaos.load.journal import CHUNKS, IDS, OPERATIONS, ActorJournal, JournalError, Outcome, claims, entries
from tests.chaos.load.kinds import ALLOCATE, FATAL, FORBIDDEN, QUOTA, RAISE_FLOOR, REGISTER

BROKER = 1001
AGENT = 1
EPOCH = 5


class Told:
    """A run told line by line: broker BROKER is registered under EPOCH, and blocks have ten IDs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.journal = ActorJournal(directory, "teller")
        self.blocks: list[AllocatedBlock] = []
        number = self.journal.invoke(REGISTER, broker_id=BROKER, member="a")
        self.journal.ok(number, {"broker_epoch": EPOCH})

    def asked(self, **arguments: int) -> int:
        return self.journal.invoke(ALLOCATE, broker_id=BROKER, broker_epoch=EPOCH, member="a", **arguments)

    def granted(self, first: int) -> None:
        """A block is asked for, given, and in the log."""
        number = self.asked()
        self.committed(first)
        self.journal.ok(number, {"producer_id_start": first, "producer_id_len": 10})

    def committed(self, first: int, broker_id: int = BROKER) -> None:
        epoch = {BROKER: EPOCH, OWN: OWN}.get(broker_id, EPOCH)
        self.blocks.append(AllocatedBlock(first, first + 9, broker_id, epoch, EPOCH + 1 + len(self.blocks), 0))

    def keep(self, member: int = 1, complete_from: int = 0, through: int = MAX_PRODUCER_ID) -> None:
        blocks = [one for one in self.blocks if complete_from <= one.first <= through]
        ledger = Ledger(member, complete_from, through, blocks)
        (self.directory / f"member-{member}{LEDGER}").write_bytes(msgspec.json.encode(ledger))

    def verdict(self) -> Verdict:
        self.keep()
        return check(self.directory)


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    told = Told(tmp_path)
    with told.journal:
        yield told


def rules(verdict: Verdict) -> set[str]:
    return {text.partition(":")[0] for text in verdict.violations}


def test_a_directory_with_no_journal_proves_nothing(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="holds no journal"):
        check(tmp_path)


def test_a_block_that_nobody_holds_is_explained_by_a_request_without_an_outcome(told: Told) -> None:
    told.granted(0)
    number = told.asked()
    told.committed(10)
    told.journal.unknown(number, "gone")
    told.granted(20)
    assert told.verdict().violations == []


def granted_several(told: Told, *firsts: int, blocks: int) -> None:
    ranges = [{"producer_id_start": first, "producer_id_len": 10} for first in firsts]
    told.journal.ok(told.asked(blocks=blocks), {**ranges[0], "more": ranges[1:]})


def test_each_block_of_an_answer_is_somebodys(told: Told) -> None:
    for first in range(0, 50, 10):
        told.committed(first)
    granted_several(told, 0, 10, 20, blocks=3)
    granted_several(told, 30, blocks=2)
    told.granted(50)
    verdict = told.verdict()
    assert (verdict.violations, verdict.blocks_checked) == ([], 5), "the second one is explained by what was not told"


def test_a_request_for_several_blocks_explains_no_more_than_it_asked_for(told: Told) -> None:
    number = told.asked(blocks=2)
    for first in (0, 10, 20):
        told.committed(first)
    told.journal.unknown(number, "gone")
    told.granted(30)
    assert rules(told.verdict()) == {"unexplained-gap"}


@pytest.mark.parametrize(("more", "rule"), [([10, 10], "duplicate"), ([10, 40], "lost")])
def test_a_further_block_of_an_answer_is_checked_like_the_first(told: Told, more: list[int], rule: str) -> None:
    for first in (0, 10, 20):
        told.committed(first)
    granted_several(told, 0, *more, blocks=3)
    assert rule in rules(told.verdict())


def test_a_request_without_an_outcome_explains_no_block_of_before(told: Told) -> None:
    told.committed(0)
    told.granted(10)
    told.asked()
    assert rules(told.verdict()) == {"unexplained-gap"}


def test_a_request_that_was_refused_explains_no_block(told: Told) -> None:
    told.journal.refuse(told.asked(), "NOT_ME")
    told.committed(0)
    told.granted(10)
    assert rules(told.verdict()) == {"unexplained-gap"}


def test_a_block_is_in_the_log_before_anybody_is_told_of_one_behind_it(told: Told) -> None:
    slow = told.asked()
    told.committed(0)
    told.committed(10)
    told.granted(20)
    told.asked()
    told.journal.ok(slow, {"producer_id_start": 10, "producer_id_len": 10})
    assert rules(told.verdict()) == {"unexplained-gap"}


def test_a_block_under_an_epoch_that_a_registration_has_ended_is_found(told: Told) -> None:
    told.granted(0)
    number = told.asked()
    registration = told.journal.invoke(REGISTER, broker_id=BROKER, member="a")
    told.journal.ok(registration, {"broker_epoch": EPOCH + 2})
    told.blocks.append(AllocatedBlock(10, 19, BROKER, EPOCH, EPOCH + 3, 0))
    told.journal.ok(number, {"producer_id_start": 10, "producer_id_len": 10})
    assert rules(told.verdict()) == {"stale-epoch"}


def test_histories_that_meet_cover_what_lies_in_both() -> None:
    coverage = Coverage([Ledger(1, 20, 39, []), Ledger(2, 0, 19, []), Ledger(3, 50, 60, [])])
    assert coverage.has(0, 39)
    assert coverage.has(15, 25)
    assert coverage.has(50, 60)
    assert not coverage.has(30, 50)
    assert not coverage.has(61, 61)


def test_blocks_of_agents_need_no_explanation(told: Told) -> None:
    told.committed(0, AGENT)
    told.granted(10)
    told.committed(20, OWN)
    assert told.verdict().violations == []


@pytest.mark.parametrize(("at_least", "found"), [(50, set()), (60, {"unexplained-floor"})])
def test_a_jump_of_the_ids_is_explained_by_just_that_floor(told: Told, at_least: int, found: set[str]) -> None:
    told.granted(0)
    told.journal.unknown(told.journal.invoke(RAISE_FLOOR, at_least=at_least), "gone")
    told.granted(50)
    assert rules(told.verdict()) == found


def test_ids_below_a_floor_that_was_acknowledged_are_not_given_any_more(told: Told) -> None:
    number = told.journal.invoke(RAISE_FLOOR, at_least=50)
    told.journal.ok(number, {"next_producer_id": 50, "raised": True})
    told.granted(0)
    assert "real-time-order" in rules(told.verdict())


def test_a_member_need_not_know_what_lies_below_its_history(told: Told) -> None:
    told.granted(0)
    told.granted(10)
    told.keep(member=2, complete_from=10)
    assert told.verdict().violations == []


def test_a_hole_in_what_all_members_know_is_no_gap_and_nothing_in_it_is_lost(told: Told) -> None:
    told.granted(0)
    told.committed(10, AGENT)
    told.granted(20)
    told.journal.claims(AGENT).take(array("q", [12, 13]))
    told.keep(complete_from=20)
    verdict = check(told.directory)
    assert (verdict.violations, verdict.lost, verdict.unseen) == ([], 0, 1)


def test_what_a_member_knew_before_it_lost_its_disk_counts(told: Told) -> None:
    told.granted(0)
    told.granted(10)
    told.keep(member=2, through=19)
    told.granted(20)
    told.keep(complete_from=20)
    verdict = check(told.directory)
    assert (verdict.violations, verdict.lost, verdict.unseen) == ([], 0, 0)
    del told.blocks[1]
    told.keep(member=2, through=19)
    verdict = check(told.directory)
    assert (verdict.lost, verdict.unseen, "lost-by-a-member" in rules(verdict)) == (1, 0, True)


def test_a_run_without_the_history_of_a_member_is_not_judged(told: Told) -> None:
    told.granted(0)
    with pytest.raises(JournalError, match="no history of a member"):
        check(told.directory)


def test_requests_explain_blocks_in_whatever_order_their_outcomes_came(told: Told) -> None:
    first = told.asked()
    told.committed(0)
    told.granted(10)
    later = [told.asked(), told.asked()]
    for number in (*later, first):
        told.journal.unknown(number, "gone")
    assert told.verdict().violations == []


def test_every_id_that_was_had_again_is_counted(told: Told) -> None:
    told.committed(0, AGENT)
    told.granted(10)
    told.journal.claims(AGENT).take(array("q", [0, 1, 2, 1, 12, 13]))
    with ActorJournal(told.directory, "other") as other:
        other.claims(AGENT).take(array("q", [2, 3]))
    number = told.asked()
    told.journal.ok(number, {"producer_id_start": 16, "producer_id_len": 10})
    verdict = told.verdict()
    assert verdict.duplicates == 1 + 1 + 2 + 4
    assert {"repeated-id", "foreign-id", "duplicate"} <= rules(verdict)


def test_few_duplicates_among_many_ids_are_found(told: Told) -> None:
    for first in range(0, 200_000, 10):
        told.committed(first, AGENT)
    random = np.random.default_rng(1)
    ids = random.permutation(200_000).astype(np.int64)
    told.journal.claims(AGENT).take(array("q", ids.tobytes()))
    again = told.verdict()
    assert (again.ids_checked, again.duplicates, again.violations) == (200_000, 0, [])
    told.journal.claims(AGENT).take(array("q", ids[:3].tobytes()))
    again = told.verdict()
    assert (again.duplicates, rules(again)) == (3, {"repeated-id"})


def test_what_is_granted_although_it_is_forbidden_is_found(told: Told) -> None:
    told.journal.refuse(told.journal.invoke(FORBIDDEN, path="/", member="a"), "NO")
    assert told.verdict().violations == []
    told.journal.ok(told.journal.invoke(FORBIDDEN, path="/", member="a"), {})
    assert rules(told.verdict()) == {"forbidden-granted"}


@pytest.mark.parametrize(("burst", "found"), [(3, set()), (2, {"over-quota"})])
def test_a_broker_gets_its_quota_and_no_more(told: Told, burst: int, found: set[str]) -> None:
    told.journal.ok(told.journal.invoke(QUOTA, broker_id=BROKER, per_second=0.001, burst=burst))
    for first in (0, 10, 20):
        told.granted(first)
    assert rules(told.verdict()) == found


def test_fatal_errors_of_clients_are_counted_and_told(told: Told) -> None:
    told.journal.ok(told.journal.invoke(FATAL, library="x", text="it broke"))
    assert (told.verdict().fatal_client_errors, told.verdict().fatal_errors) == (1, ["x: it broke"])


def test_what_a_killed_writer_left_is_read_and_gone_on_with(tmp_path: Path) -> None:
    with ActorJournal(tmp_path, "one") as journal:
        done, open_ = journal.invoke("work"), journal.invoke("work")
        journal.ok(done, {"a": 1})
        journal.claims(7).take(array("q", [1, 2]))
    for name, torn in ((f"one{OPERATIONS}", b'{"line":"ret'), (f"one.7{IDS}", b"abc"), (f"one.7{CHUNKS}", b"\0" * 9)):
        with (tmp_path / name).open("ab") as file:
            file.write(torn)
    assert {entry.number: entry.outcome for entry in entries(tmp_path)} == {done: Outcome.OK, open_: Outcome.UNKNOWN}
    (before,) = claims(tmp_path)
    assert (before.agent, before.ids.tolist(), before.chunks[:, 1].tolist()) == (7, [1, 2], [2])
    with ActorJournal(tmp_path, "one") as journal:
        journal.refuse(journal.invoke("more"), "no")
        journal.claims(7).take(array("q", [3]))
    assert len({entry.number for entry in entries(tmp_path)}) == 3
    (after,) = claims(tmp_path)
    assert (after.ids.tolist(), after.chunks[:, 1].tolist()) == ([1, 2, 3], [2, 1])


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (f"x{OPERATIONS}", b"nonsense\n", "not a line of a journal"),
        (f"x{OPERATIONS}", b'{"line":"returned","number":1,"at":1,"outcome":"ok"}\n', "which is not under way"),
        (f"x{OPERATIONS}", b'{"line":"invoked","number":1,"at":1,"kind":"allocate","arguments":{}}\n', "lacks"),
        (f"x{LEDGER}", b"{}", "not the history of a member"),
        (f"x{IDS}", b"", "does not say whose IDs"),
    ],
)
def test_files_that_are_no_journal_are_refused(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    with ActorJournal(tmp_path, "whole"):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(JournalError, match=said):
        check(tmp_path)
    assert main([str(tmp_path)]) == 2


def test_a_kept_run_is_judged_again_from_its_directory(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    told.granted(0)
    told.keep()
    assert main([str(told.directory)]) == 0
    shown: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (shown["blocks_checked"], shown["violations"]) == (1, [])
    told.granted(0)
    assert main([str(told.directory)]) == 1
    assert main([]) == 2
    assert main([str(told.directory / "nowhere")]) == 2
