"""What brokers hold that was not handed out here: who is believed, what it stops, and what makes it go on."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.decide import decide, most_bytes, most_records
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.founding import EvidenceDismissedRecord, EvidenceRecord, FoundingRecord
from pidkeeper.protocol.ids import MAX_FLOOR_JUMP, MAX_PRODUCER_ID
from pidkeeper.protocol.messages import DismissEvidenceResponse, HeldIds
from pidkeeper.protocol.metadata_version import FOUNDING, LATEST, TRANSACTIONAL_BLOCKS
from pidkeeper.protocol.records import (
    AllocateProducerIdsRecord,
    FeatureLevelRecord,
    Record,
    RegisterBrokerRecord,
    encode_batch,
)
from pidkeeper.snapshots.image import MAX_EVIDENCE, Evidence
from pidkeeper.snapshots.snapshot_format import decode_snapshot
from tests.support.snapshot_file import snapshot_file

NOW = 1_700_000_000_000
OLD, NEW = uuid.UUID(int=1), uuid.UUID(int=2)
ALLOCATE = requests.AllocateProducerIds(1, 1)


def batch(machine: StateMachine, *asked: requests.Request) -> list[Any]:
    """Decide and replay as one batch; the answers, refusals among them."""
    draft = Draft(machine, NOW)
    answers = []
    for request in asked:
        records, size = len(draft.records), most_bytes(draft, request)
        try:
            answers.append(decide(draft, request))
        except RequestError as refusal:
            assert len(draft.records) == records, "a refusal changes nothing"
            answers.append(refusal)
        added = draft.records[records:]
        assert len(added) <= most_records(request)
        assert not added or len(encode_batch(added)) <= size
    machine.replay(draft.records)
    return answers


def holding(highest: int, broker_id: int = 2, founding_id: uuid.UUID = OLD, name: str = "b") -> requests.RegisterBroker:
    return requests.RegisterBroker(broker_id, name, None, HeldIds(founding_id, highest))


@pytest.fixture
def machine() -> StateMachine:
    """Of founding NEW, with broker 1, epoch 1, and one block given."""
    machine = StateMachine("c", 10)
    machine.replay([FeatureLevelRecord(LATEST), RegisterBrokerRecord(1, 1, "a"), FoundingRecord(NEW, 10, False, NOW)])
    assert batch(machine, ALLOCATE)[0].producer_id_start == 0
    return machine


def code(answer: Any) -> ErrorCode:
    assert isinstance(answer, RequestError), f"answered {answer}"
    return answer.code


def test_who_holds_what_was_handed_out_here_is_registered_and_nothing_follows(machine: StateMachine) -> None:
    (answer,) = batch(machine, holding(9))
    assert (answer.founding_id, answer.metadata_version) == (NEW, LATEST)
    assert machine.foundings.evidence == ()
    assert batch(machine, ALLOCATE)[0].producer_id_start == 10


def test_one_id_above_all_that_was_handed_out_stops_the_quorum_until_the_floor_is_above_it(
    machine: StateMachine,
) -> None:
    registered, refused = batch(machine, holding(10), ALLOCATE)
    assert registered.broker_epoch == machine.brokers.get(2).broker_epoch  # type: ignore[union-attr]
    assert code(refused) is ErrorCode.EVIDENCE_OPEN
    assert "broker 2 holds IDs up to 10 of founding 00000000-0000-0000-0000-000000000001" in refused.detail
    assert "`pidkeeper ids raise-floor`, 11 at least" in refused.detail
    assert "`pidkeeper quorum dismiss-evidence 2 --highest 10`" in refused.detail
    assert machine.foundings.evidence == (Evidence(2, OLD, 10, 5),)
    raised, given = batch(machine, requests.RaiseFloor(11), ALLOCATE)
    assert raised.raised
    assert given.producer_id_start == 11


@pytest.mark.parametrize(
    "asked",
    [requests.AllocateProducerIds(1, 1, None, HeldIds(NEW, 10)), requests.BrokerHeartbeat(1, 1, HeldIds(NEW, 10))],
    ids=["allocation", "heartbeat"],
)
def test_every_sign_of_life_can_be_evidence(machine: StateMachine, asked: requests.Request) -> None:
    """A quorum of the same founding that was restored from an old copy knows the broker's registration still."""
    first, second = batch(machine, asked, ALLOCATE)
    assert code(second) is ErrorCode.EVIDENCE_OPEN
    if isinstance(asked, requests.AllocateProducerIds):
        assert code(first) is ErrorCode.EVIDENCE_OPEN
    assert machine.foundings.evidence == (Evidence(1, NEW, 10, 4),)


def test_who_is_not_registered_leaves_no_evidence(machine: StateMachine) -> None:
    for asked in (
        requests.AllocateProducerIds(1, 0, None, HeldIds(NEW, 10)),
        requests.BrokerHeartbeat(5, 1, HeldIds(NEW, 10)),
    ):
        assert code(batch(machine, asked)[0]) in {
            ErrorCode.STALE_BROKER_EPOCH,
            ErrorCode.BROKER_ID_NOT_REGISTERED,
        }
    assert machine.foundings.evidence == ()


def test_a_floor_that_is_too_low_changes_nothing_of_it(machine: StateMachine) -> None:
    batch(machine, holding(500))
    assert code(batch(machine, requests.RaiseFloor(500), ALLOCATE)[1]) is ErrorCode.EVIDENCE_OPEN


def test_nothing_is_handed_out_to_transactional_producers_either(machine: StateMachine) -> None:
    init = requests.InitProducerId(1, 1, "tx", 1000, -1, -1, -1, may_take_block=True)
    first = batch(machine, init)[0].producer_id
    batch(machine, holding(500))
    other = requests.InitProducerId(1, 1, "other", 1000, -1, -1, -1, may_take_block=True)
    assert code(batch(machine, other)[0]) is ErrorCode.EVIDENCE_OPEN
    assert code(batch(machine, requests.FillOwnIds())[0]) is ErrorCode.EVIDENCE_OPEN
    assert batch(machine, init)[0].producer_id == first, "who has an ID already goes on"


def test_an_operator_dismisses_it_and_that_broker_alone_is_refused(machine: StateMachine) -> None:
    batch(machine, holding(500))
    dismiss = requests.DismissEvidence(2)
    assert batch(machine, dismiss, dismiss) == [DismissEvidenceResponse(2, True), DismissEvidenceResponse(2, False)]
    assert batch(machine, ALLOCATE)[0].producer_id_start == 10
    assert code(batch(machine, holding(500))[0]) is ErrorCode.EVIDENCE_REFUSED
    for more in (400, 501, 20_000):
        assert code(batch(machine, holding(more))[0]) is ErrorCode.EVIDENCE_REFUSED, "it stops nobody else again"
    assert batch(machine, requests.RegisterBroker(2, "anew"))[0].founding_id == NEW, "it was started anew"
    assert batch(machine, ALLOCATE)[0].producer_id_start == 20
    # What another process holds was never judged, be it less.
    assert code(batch(machine, holding(499, name="anew"), ALLOCATE)[1]) is ErrorCode.EVIDENCE_OPEN


def test_what_was_not_seen_is_not_dismissed(machine: StateMachine) -> None:
    """Between health and the command another process of the broker, or the same one, has said more."""
    batch(machine, holding(500))
    batch(machine, holding(600, name="anew"))
    (refused,) = batch(machine, requests.DismissEvidence(2, 500))
    assert code(refused) is ErrorCode.INVALID_REQUEST
    assert refused.detail.endswith(
        "(`pidkeeper quorum dismiss-evidence 2 --highest 600`); not dismissed: you named 500"
    )
    assert code(batch(machine, ALLOCATE)[0]) is ErrorCode.EVIDENCE_OPEN
    assert batch(machine, requests.DismissEvidence(2, 600)) == [DismissEvidenceResponse(2, True)]


def test_a_process_that_follows_at_once_is_another_one(machine: StateMachine) -> None:
    """Nothing else is in the log between the evidence of the first and the registration of the second."""
    (first,) = batch(machine, requests.RegisterBroker(2, "b"))
    batch(machine, requests.BrokerHeartbeat(2, first.broker_epoch, HeldIds(NEW, 500)))
    (second,) = batch(machine, requests.RegisterBroker(2, "c"), requests.DismissEvidence(2))[:1]
    batch(machine, requests.BrokerHeartbeat(2, second.broker_epoch, HeldIds(NEW, 400)))
    assert machine.foundings.evidence == (Evidence(2, NEW, 400, 8),)


@pytest.mark.parametrize("sign", [requests.AllocateProducerIds, requests.BrokerHeartbeat])
def test_an_epoch_of_another_cluster_is_none_here(machine: StateMachine, sign: type) -> None:
    """It may be the same number. As the broker registers, it has to name its cluster."""
    held = HeldIds(OLD, 500)
    asked = sign(1, 1, None, held) if sign is requests.AllocateProducerIds else sign(1, 1, held)
    refused, given = batch(machine, asked, ALLOCATE)
    assert code(refused) is ErrorCode.STALE_BROKER_EPOCH
    assert "which is not known here: it has to register" in refused.detail
    assert given.producer_id_start == 10
    # Once it has registered with that, it has left its evidence, and its signs of life are told nothing new.
    (registered,) = batch(machine, holding(500, broker_id=1, name="anew"))
    epoch = registered.broker_epoch
    again = sign(1, epoch, None, held) if sign is requests.AllocateProducerIds else sign(1, epoch, held)
    (answer,) = batch(machine, again)
    assert not isinstance(answer, RequestError) or answer.code is ErrorCode.EVIDENCE_OPEN
    assert [one.broker_id for one in machine.foundings.evidence] == [1]


def test_there_is_nothing_to_dismiss_where_nothing_is_open(machine: StateMachine) -> None:
    assert batch(machine, requests.DismissEvidence(2)) == [DismissEvidenceResponse(2, False)]
    batch(machine, holding(500), requests.RaiseFloor(501))
    assert batch(machine, requests.DismissEvidence(2)) == [DismissEvidenceResponse(2, False)]


def test_one_broker_cannot_burn_the_ids_nor_stop_the_quorum_with_what_cannot_be(machine: StateMachine) -> None:
    """Else an operator who believes it raises the floor to where nothing is left."""
    for highest in (10 + MAX_FLOOR_JUMP + 1, MAX_PRODUCER_ID - 1):
        (answer,) = batch(machine, holding(highest))
        assert code(answer) is ErrorCode.EVIDENCE_REFUSED
        assert machine.brokers.get(2) is None
    assert batch(machine, ALLOCATE)[0].producer_id_start == 10
    assert batch(machine, holding(20 + MAX_FLOOR_JUMP))[0].founding_id == NEW


def test_the_same_word_is_kept_once_and_a_higher_one_in_its_place(machine: StateMachine) -> None:
    batch(machine, holding(500), holding(500), holding(499))
    assert machine.foundings.evidence == (Evidence(2, OLD, 500, 5),)
    batch(machine, holding(600), holding(700, broker_id=1, name="a"))
    assert [(one.broker_id, one.highest_producer_id) for one in machine.foundings.evidence] == [(1, 700), (2, 600)]
    assert code(batch(machine, requests.RaiseFloor(601), ALLOCATE)[1]) is ErrorCode.EVIDENCE_OPEN
    assert batch(machine, requests.RaiseFloor(701), ALLOCATE)[1].producer_id_start == 701


def test_what_the_floor_has_passed_is_forgotten_with_the_next_word(machine: StateMachine) -> None:
    batch(machine, holding(500), requests.RaiseFloor(501), holding(600, broker_id=3))
    assert [one.broker_id for one in machine.foundings.evidence] == [3]


def test_what_the_floor_has_just_reached_is_kept_and_open(machine: StateMachine) -> None:
    batch(machine, holding(500), requests.RaiseFloor(500), holding(600, broker_id=3))
    assert [one.broker_id for one in machine.foundings.evidence] == [2, 3]
    batch(machine, requests.DismissEvidence(3))
    assert [one.broker_id for one in machine.foundings.evidence] == [2, 3]
    assert code(batch(machine, ALLOCATE)[0]) is ErrorCode.EVIDENCE_OPEN


def test_only_so_much_of_it_is_kept(machine: StateMachine) -> None:
    batch(machine, *(holding(1000 + one, broker_id=10 + one) for one in range(MAX_EVIDENCE)))
    assert len(machine.foundings.evidence) == MAX_EVIDENCE
    assert code(batch(machine, holding(5000, broker_id=5))[0]) is ErrorCode.EVIDENCE_OPEN, "it is to ask again"
    assert batch(machine, holding(5000, broker_id=10))[0].founding_id == NEW
    raised, given, answer = batch(machine, requests.RaiseFloor(5001), ALLOCATE, holding(6000, broker_id=5))
    assert (raised.raised, given.producer_id_start, answer.founding_id) == (True, 5001, NEW)
    assert [one.broker_id for one in machine.foundings.evidence] == [5], "what the floor has passed makes room"


def test_a_quorum_of_older_members_believes_nothing_yet() -> None:
    machine = StateMachine("c", 10)
    machine.replay([FeatureLevelRecord(TRANSACTIONAL_BLOCKS)])
    (answer,) = batch(machine, holding(500))
    assert answer.founding_id is None
    assert code(batch(machine, requests.DismissEvidence(2))[0]) is ErrorCode.UNSUPPORTED_VERSION
    assert code(batch(machine, requests.RecordFounding(NEW, 20, True))[0]) is ErrorCode.UNSUPPORTED_VERSION


def test_the_first_version_that_knows_foundings_takes_evidence() -> None:
    machine = StateMachine("c", 10)
    machine.replay([FeatureLevelRecord(FOUNDING), FoundingRecord(NEW, 10, False, NOW)])
    batch(machine, holding(500))
    assert [(one.broker_id, one.highest_producer_id) for one in machine.foundings.evidence] == [(2, 500)]


def test_the_founding_is_recorded_once() -> None:
    machine = StateMachine("c", 10)
    machine.replay([FeatureLevelRecord(FOUNDING)])
    assert batch(machine, requests.RecordFounding(OLD, 10, False), requests.RecordFounding(NEW, 20, True)) == [OLD, OLD]
    assert batch(machine, requests.RecordFounding(NEW, 20, True)) == [OLD]
    assert machine.foundings.founding == FoundingRecord(OLD, 10, False, NOW)
    assert batch(machine, requests.RegisterBroker(1, "a"))[0].founding_id == OLD
    assert batch(machine, requests.BrokerHeartbeat(1, 2))[0].founding_id == OLD


def test_the_block_size_is_that_of_the_founding_whatever_a_member_is_told() -> None:
    machine = StateMachine("c", 7)
    machine.replay([FeatureLevelRecord(LATEST), RegisterBrokerRecord(1, 1, "a")])
    assert batch(machine, ALLOCATE)[0].producer_id_len == 7
    batch(machine, requests.RecordFounding(NEW, 20, False))
    assert batch(machine, ALLOCATE)[0].producer_id_len == 20
    restored = StateMachine("c", 5)
    restored.restore(machine.image(9, 1))
    assert batch(restored, ALLOCATE)[0].producer_id_len == 20


def test_a_snapshot_holds_the_founding_and_the_evidence(machine: StateMachine) -> None:
    batch(machine, holding(500), holding(600, broker_id=3))
    batch(machine, requests.DismissEvidence(3))
    image = decode_snapshot(snapshot_file("c", machine.image(9, 1)), "s", "c")
    restored = StateMachine("c", 10)
    restored.restore(image)
    assert restored.foundings == machine.foundings
    assert restored.foundings.of(3) == Evidence(3, OLD, 600, 7, dismissed=True)
    assert code(batch(restored, ALLOCATE)[0]) is ErrorCode.EVIDENCE_OPEN


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            FoundingRecord(OLD, 10, False, NOW),
            "F1: offset 4 founds the quorum of founding 00000000-0000-0000-0000-000000000002",
        ),
        (EvidenceRecord(2, OLD, 9, NOW), "F2: offset 4 has .* but the next producer ID is 10"),
        (EvidenceDismissedRecord(2, NOW), "F3: offset 4 dismisses evidence of broker 2, who left none"),
    ],
)
def test_a_record_that_nobody_can_have_decided_stops_the_member(
    machine: StateMachine, record: Record, message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        machine.replay([record])


def test_a_block_that_is_handed_out_under_open_evidence_stops_the_member(machine: StateMachine) -> None:
    batch(machine, holding(500))
    with pytest.raises(AssertionError, match="F4: offset 6 hands out, but there is"):
        machine.replay([AllocateProducerIdsRecord(1, 1, 19, 10, 10, NOW)])
