"""The leader's duties, tick by tick: each transaction is completed, aborted in time, and each idle id forgotten."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from pidkeeper.controller.node import transaction_duties as module
from pidkeeper.controller.node.markers import Markers, RecordedMarkers
from pidkeeper.controller.node.transaction_duties import TransactionDuties
from pidkeeper.controller.state import requests
from pidkeeper.controller.state.decide import decide
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.transitions import TransactionStatus
from pidkeeper.protocol.metadata_version import TRANSACTIONS
from pidkeeper.protocol.records import FeatureLevelRecord, ProducerIdFloorRecord, RegisterBrokerRecord
from pidkeeper.protocol.transactions import TopicPartitions

TOPICS = (TopicPartitions("t", (0, 3)),)
NOW = 1_700_000_000_000
TICK_MS = 10
EXPIRATION_MS = 100_000
ABORT_CHECK_MS = 1000
SECOND_LOOK = (ABORT_CHECK_MS + EXPIRATION_MS) // TICK_MS
"""The tick at which a new leader looks for idle ids the second time."""

TEN_YEARS_MS = 10 * 365 * 86_400_000


class SlowMarkers:
    """Keeps the markers until the test says that they are written."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Markers, Callable[[], None]]] = []

    def write(self, markers: Markers, written: Callable[[], None]) -> None:
        self.waiting.append((markers, written))


@dataclasses.dataclass
class Leader:
    """A member that leads: what it asks for waits in `asked` until the test decides or refuses it."""

    machine: StateMachine = dataclasses.field(default_factory=lambda: StateMachine("c"))
    markers: SlowMarkers | RecordedMarkers = dataclasses.field(default_factory=SlowMarkers)
    asked: list[tuple[requests.Request, Callable[[], None]]] = dataclasses.field(default_factory=list)
    now: int = 0
    now_ms: int = NOW
    duties: TransactionDuties = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.machine.replay([FeatureLevelRecord(TRANSACTIONS), ProducerIdFloorRecord(1000, 0)])
        self.machine.replay([RegisterBrokerRecord(1, 2, "a")])
        self.take_over(term=1)

    def take_over(self, term: int) -> None:
        """Another member leads, with the same state."""
        self.asked = []
        self.duties = TransactionDuties(
            self.machine,
            self.markers,
            lambda request, refused: self.asked.append((request, refused)),
            ticks=lambda milliseconds: -(-milliseconds // TICK_MS),
            abort_check_ms=ABORT_CHECK_MS,
            expiration_ms=EXPIRATION_MS,
        )
        self.duties.lead(term, self.now)

    def decide(self, *wanted: requests.Request) -> None:
        """Decide, commit and apply one batch."""
        draft = Draft(self.machine, self.now_ms)
        for request in wanted:
            decide(draft, request)
        self.machine.replay(draft.records)
        self.duties.applied(draft.records, self.now)

    def pass_ticks(self, ticks: int) -> None:
        """Let time pass, with a look every ten ticks."""
        for _ in range(ticks // 10):
            self.now += 10
            self.now_ms += 10 * TICK_MS
            self.duties.tick(self.now, self.now_ms)

    def take(self) -> list[requests.Request]:
        """What was asked for since."""
        taken, self.asked = self.asked, []
        return [request for request, _ in taken]

    def begin(self, *names: str, timeout_ms: int = 5000) -> None:
        """A transaction under each of the ids, by producer ID and epoch 0."""
        for name in names:
            number = int(name.split("-")[1])
            self.decide(
                requests.InitProducerId(1, 2, name, timeout_ms, -1, -1, number),
                requests.AddPartitionsToTxn(1, 2, name, number, 0, TOPICS),
            )

    def end(self, name: str, *, committed: bool = True) -> None:
        number = int(name.split("-")[1])
        self.decide(requests.EndTxn(1, 2, name, number, 0, committed))

    def status(self, name: str) -> str:
        record = self.machine.transactions.get(name)
        return "unknown" if record is None else TransactionStatus(record.status).name

    @property
    def slow(self) -> SlowMarkers:
        assert isinstance(self.markers, SlowMarkers)
        return self.markers


@pytest.fixture
def leader() -> Leader:
    return Leader()


COMPLETE = requests.CompleteTransaction("tx-1", 1, 0)


@pytest.mark.parametrize("committed", [True, False])
def test_a_decided_transaction_is_completed_when_its_markers_are_written(leader: Leader, committed: bool) -> None:
    leader.begin("tx-1")
    leader.end("tx-1", committed=committed)
    ((markers, written),) = leader.slow.waiting
    assert markers == Markers("tx-1", 1, 0, 1, committed, TOPICS)
    leader.pass_ticks(1000)
    assert leader.take() == [], "the markers are not written yet"
    written()
    assert leader.take() == [COMPLETE]
    leader.decide(COMPLETE)
    leader.pass_ticks(1000)
    assert leader.take() == []
    assert leader.status("tx-1") == ("COMPLETE_COMMIT" if committed else "COMPLETE_ABORT")


def test_without_partition_logs_it_is_completed_at_once() -> None:
    leader = Leader(markers=RecordedMarkers())
    leader.begin("tx-1")
    leader.end("tx-1")
    assert leader.take() == [COMPLETE]


def test_a_refused_completion_is_asked_for_again_until_it_is_granted(leader: Leader) -> None:
    leader.begin("tx-1")
    leader.end("tx-1")
    leader.slow.waiting[0][1]()
    for _ in range(3):
        ((request, refused),) = leader.asked
        assert request == COMPLETE
        leader.asked = []
        refused()
        assert leader.asked == [], "not at once, which would be for ever"
        leader.pass_ticks(10)
    assert leader.take() == [COMPLETE]
    leader.pass_ticks(1000)
    assert leader.take() == []


def test_a_new_leader_writes_the_markers_of_what_it_finds_decided(leader: Leader) -> None:
    leader.begin("tx-1", "tx-2", "tx-3")
    leader.end("tx-1")
    leader.end("tx-2", committed=False)
    leader.slow.waiting.clear()
    leader.take_over(term=4)
    assert [markers for markers, _ in leader.slow.waiting] == [
        Markers("tx-1", 1, 0, 4, True, TOPICS),
        Markers("tx-2", 2, 0, 4, False, TOPICS),
    ]


def test_markers_of_an_older_term_complete_nothing(leader: Leader) -> None:
    """By the time they are written, the same producer may be in its next transaction."""
    leader.begin("tx-1")
    leader.end("tx-1")
    ((_, late),) = leader.slow.waiting
    leader.slow.waiting.clear()
    leader.duties.lead(3, leader.now)
    late()
    assert leader.take() == []
    leader.slow.waiting[0][1]()
    ((_, refused),) = leader.asked
    leader.duties.lead(5, leader.now)
    leader.asked = []
    refused()
    leader.pass_ticks(10)
    assert leader.take() == []


def test_a_refusal_of_an_older_term_is_not_made_good_in_the_next_one(leader: Leader) -> None:
    leader.begin("tx-1")
    leader.end("tx-1")
    leader.slow.waiting[0][1]()
    ((_, refused),) = leader.asked
    refused()
    leader.asked = []
    leader.duties.lead(3, leader.now)
    leader.pass_ticks(10)
    assert leader.take() == [], "the markers of term 3 are not written"


def test_a_transaction_whose_time_is_up_is_aborted_and_its_producer_fenced(leader: Leader) -> None:
    leader.begin("tx-1", timeout_ms=5000)
    leader.begin("tx-2", timeout_ms=60_000)
    leader.pass_ticks(490)
    assert leader.take() == []
    leader.pass_ticks(10)
    abort = requests.AbortTransaction("tx-1", 1, 0, timed_out=True)
    assert leader.take() == [abort]
    assert leader.duties.timed_out == 0, "not yet"
    leader.decide(abort)
    assert (leader.duties.fenced, leader.duties.timed_out) == (1, 1)
    assert [markers for markers, _ in leader.slow.waiting] == [Markers("tx-1", 1, 1, 1, False, TOPICS)]
    leader.pass_ticks(1000)
    assert leader.take() == []


MORE = requests.AddPartitionsToTxn(1, 2, "tx-1", 1, 0, (TopicPartitions("u", (1,)),))


def test_partitions_that_join_do_not_prolong_a_transaction(leader: Leader) -> None:
    leader.begin("tx-1", timeout_ms=5000)
    leader.pass_ticks(300)
    leader.decide(MORE)
    leader.pass_ticks(190)
    assert leader.take() == []
    leader.pass_ticks(10)
    assert leader.take() == [requests.AbortTransaction("tx-1", 1, 0, timed_out=True)]


def test_the_next_transaction_of_the_same_producer_has_its_own_time(leader: Leader) -> None:
    leader.begin("tx-1", timeout_ms=5000)
    leader.pass_ticks(300)
    leader.end("tx-1")
    leader.decide(COMPLETE)
    leader.decide(MORE)
    leader.pass_ticks(490)
    assert leader.take() == []
    leader.pass_ticks(10)
    assert leader.take() == [requests.AbortTransaction("tx-1", 1, 0, timed_out=True)]
    leader.end("tx-1")
    assert (leader.duties.fenced, leader.duties.timed_out) == (0, 0), "the producer was faster"


def test_an_abort_that_was_refused_is_asked_for_at_the_next_look(leader: Leader) -> None:
    leader.begin("tx-1", timeout_ms=1)
    leader.pass_ticks(100)
    ((request, refused),) = leader.asked
    refused()
    leader.pass_ticks(90)
    assert len(leader.take()) == 1
    leader.pass_ticks(10)
    assert leader.take() == [request]


def test_a_new_leader_gives_every_transaction_its_full_time(leader: Leader) -> None:
    leader.begin("tx-1", timeout_ms=5000)
    leader.pass_ticks(400)
    leader.take_over(term=2)
    leader.now_ms -= 10**12  # whatever its clock says
    leader.pass_ticks(490)
    assert leader.take() == []
    leader.pass_ticks(10)
    assert leader.take() == [requests.AbortTransaction("tx-1", 1, 0, timed_out=True)]


def test_a_leader_that_comes_back_knows_no_better_than_a_new_one(leader: Leader) -> None:
    leader.begin("tx-1", timeout_ms=5000)
    leader.pass_ticks(400)
    leader.duties.lead(2, leader.now)
    leader.pass_ticks(490)
    assert leader.take() == []
    leader.pass_ticks(10)
    assert len(leader.take()) == 1


def test_one_look_aborts_no_more_than_a_batch(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ABORTED", 2)
    leader.begin("tx-1", "tx-2", "tx-3", timeout_ms=1)
    leader.pass_ticks(100)
    first = leader.take()
    assert len(first) == 2
    leader.decide(*first)
    leader.pass_ticks(100)
    assert leader.take() == [requests.AbortTransaction("tx-3", 3, 0, timed_out=True)]


def test_a_fence_by_a_newer_instance_is_counted_as_such(leader: Leader) -> None:
    leader.begin("tx-1")
    # The one before was late, but its producer was faster than the abort.
    leader.pass_ticks(500)
    assert leader.take() == [requests.AbortTransaction("tx-1", 1, 0, timed_out=True)]
    leader.end("tx-1")
    leader.decide(COMPLETE, MORE)
    leader.decide(requests.InitProducerId(1, 2, "tx-1", 5000, -1, -1, 9))
    assert leader.status("tx-1") == "PREPARE_ABORT"
    assert (leader.duties.fenced, leader.duties.timed_out, leader.duties.forgotten) == (1, 0, 0)


def test_idle_ids_are_forgotten_and_no_others(leader: Leader) -> None:
    leader.begin("tx-1", "tx-2", "tx-3", timeout_ms=900_000)
    leader.end("tx-1")
    leader.end("tx-2")
    leader.decide(COMPLETE)
    leader.now_ms += EXPIRATION_MS
    leader.begin("tx-4", timeout_ms=900_000)
    leader.decide(requests.EndTxn(1, 2, "tx-4", 4, 0, True), requests.CompleteTransaction("tx-4", 4, 0))
    leader.pass_ticks(SECOND_LOOK)
    forget = requests.ForgetTransactionalId("tx-1", 1, 0)
    assert leader.take() == [forget], "2 and 3 are under way, 4 is young"
    leader.decide(forget)
    assert leader.status("tx-1") == "unknown"
    assert leader.duties.forgotten == 1


@pytest.fixture
def idle(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> Leader:
    """Five ids that have expired, of which two at a time may be on their way out."""
    monkeypatch.setattr(module, "MAX_FORGETTING", 2)
    for number in range(5):
        leader.decide(requests.InitProducerId(1, 2, f"tx-{number}", 5000, -1, -1, number))
    leader.now_ms += EXPIRATION_MS + 1
    leader.pass_ticks(SECOND_LOOK - 100)
    assert leader.take() == [], "they were seen once"
    return leader


def _names(asked: list[requests.Request]) -> list[str]:
    assert all(isinstance(request, requests.ForgetTransactionalId) for request in asked)
    return [request.transactional_id for request in asked if isinstance(request, requests.ForgetTransactionalId)]


def test_all_idle_ids_are_forgotten_after_one_look_in_bounded_batches(idle: Leader) -> None:
    forgotten = []
    for size in (2, 2, 1, 0):
        idle.pass_ticks(100)
        asked = idle.take()
        idle.pass_ticks(100)
        assert idle.take() == [], "those before are not out of the way yet"
        assert len(asked) == size
        forgotten += _names(asked)
        idle.decide(*asked)
    assert forgotten == [f"tx-{number}" for number in range(5)]
    assert idle.duties.forgotten == 5


def test_what_was_used_since_the_look_is_not_forgotten(idle: Leader) -> None:
    idle.pass_ticks(100)
    first = idle.take()
    idle.decide(requests.InitProducerId(1, 2, "tx-3", 5000, -1, -1, 9))
    idle.decide(*first)
    idle.pass_ticks(100)
    assert _names(idle.take()) == ["tx-2", "tx-4"]


def test_a_look_at_many_ids_takes_several_ticks(idle: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle ids that it has passed are used or forgotten, and new ones come, before it is over."""
    monkeypatch.setattr(module, "LOOKED_AT", 2)
    idle.pass_ticks(100)
    first = idle.take()
    assert _names(first) == [], "two of the five are looked at"
    idle.decide(requests.InitProducerId(1, 2, "tx-0", 5000, -1, -1, 9), requests.ForgetTransactionalId("tx-2", 2, 0))
    idle.decide(requests.InitProducerId(1, 2, "tx-7", 5000, -1, -1, 10))
    idle.pass_ticks(20)
    assert _names(idle.take()) == ["tx-1", "tx-3"]


def test_the_next_look_waits_for_the_one_before(idle: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKED_AT", 1)
    monkeypatch.setattr(module, "FORGET_CHECK_MS", 1)
    idle.pass_ticks(100)
    for seen in range(5):
        assert idle.take() == [], f"{seen} of five are looked at"
        idle.pass_ticks(10)
    assert _names(idle.take()) == ["tx-0", "tx-1"]


def test_a_refusal_makes_room_and_waits_for_the_next_look(idle: Leader) -> None:
    idle.pass_ticks(100)
    for _, refused in idle.asked:
        refused()
    idle.asked.clear()
    idle.pass_ticks(100)
    asked = idle.take()
    assert _names(asked) == ["tx-2", "tx-3"]
    idle.decide(*asked)
    idle.pass_ticks(360_000)
    assert _names(idle.take())[:1] == ["tx-4"]
    assert idle.status("tx-0") == "EMPTY"


def test_a_refusal_of_an_earlier_term_changes_nothing(idle: Leader) -> None:
    idle.pass_ticks(100)
    stale = idle.asked
    idle.asked = []
    idle.duties.lead(2, idle.now)
    idle.pass_ticks(SECOND_LOOK)
    assert len(idle.take()) == 2
    for _, refused in stale:
        refused()
    idle.pass_ticks(100)
    assert idle.take() == []


def test_a_clock_that_is_behind_forgets_nothing(leader: Leader) -> None:
    leader.decide(requests.InitProducerId(1, 2, "tx-1", 5000, -1, -1, 1))
    leader.now_ms = 0
    leader.pass_ticks(SECOND_LOOK)
    assert leader.take() == []


def test_a_clock_that_leaps_ahead_and_is_set_right_forgets_nothing(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FORGET_CHECK_MS", EXPIRATION_MS // 10)
    leader.decide(requests.InitProducerId(1, 2, "tx-1", 5000, -1, -1, 1))
    leader.now_ms += TEN_YEARS_MS
    leader.pass_ticks(ABORT_CHECK_MS // TICK_MS)
    leader.now_ms -= TEN_YEARS_MS
    leader.pass_ticks(SECOND_LOOK // 2)
    assert leader.take() == []


def test_an_id_that_is_used_between_two_looks_stays_whatever_clocks_say(leader: Leader) -> None:
    """They say that each use was ten years ago."""
    for _ in range(6):
        leader.now_ms -= TEN_YEARS_MS
        leader.decide(requests.InitProducerId(1, 2, "tx-1", 5000, -1, -1, 1))
        leader.now_ms += TEN_YEARS_MS
        leader.pass_ticks(SECOND_LOOK // 2)
    assert leader.take() == []


def test_an_id_whose_only_use_was_under_a_wrong_clock_is_forgotten_in_the_end(leader: Leader) -> None:
    leader.now_ms -= TEN_YEARS_MS
    leader.decide(requests.InitProducerId(1, 2, "tx-1", 5000, -1, -1, 1))
    leader.now_ms += TEN_YEARS_MS
    leader.pass_ticks(SECOND_LOOK)
    assert _names(leader.take()) == ["tx-1"]


def test_two_looks_are_an_hour_apart_at_most(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FORGET_CHECK_MS", EXPIRATION_MS // 2)
    leader.decide(requests.InitProducerId(1, 2, "tx-1", 5000, -1, -1, 1))
    leader.now_ms += EXPIRATION_MS
    leader.pass_ticks(SECOND_LOOK // 2 + ABORT_CHECK_MS // TICK_MS)
    assert _names(leader.take()) == ["tx-1"]


def test_other_records_are_passed_over(leader: Leader) -> None:
    leader.duties.applied([ProducerIdFloorRecord(5000, 0)], 1)
    assert leader.take() == []
