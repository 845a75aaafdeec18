"""The bounds of partition logs, at which producers are told 19 and try again; and which producers are forgotten."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.logs import limits
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.log_messages import OfferedBatch
from pidkeeper.protocol.logs import MAX_INT64, MAX_OBJECT_BATCHES, MAX_OBJECT_BYTES, MAX_SEQUENCE
from pidkeeper.protocol.transactions import MAX_TOPIC_LENGTH
from tests.support.log_state import (
    EPOCHS,
    FIRST_OWN,
    NOW,
    batch,
    commit,
    data,
    drop,
    end,
    init,
    join,
    log_of,
    make,
    one,
    outcomes,
    silent,
    topic,
)

FULL = -ErrorCode.NOT_ENOUGH_REPLICAS.kafka_code
UNKNOWN = -ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.kafka_code
P = (7, 0)
"""A producer with an ID out of a broker's block."""
TX = (FIRST_OWN, 0)
"""The first that has a transactional id."""


@pytest.fixture
def machine() -> StateMachine:
    """Topic `t` has the logs 0 to 2."""
    machine = make()
    one(machine, topic("t", 3))
    return machine


def begun(machine: StateMachine, *partitions: int) -> None:
    """A transaction of TX is under way with these partitions of `t`."""
    batch(machine, init("tx"), join("tx", TX, "t", *partitions))


def limited(monkeypatch: pytest.MonkeyPatch, name: str, value: int) -> None:
    monkeypatch.setattr(limits, name, value)


def test_no_more_rows_than_are_kept(machine: StateMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, "MAX_ROWS", 3)
    assert outcomes(machine, commit(1, data(0), data(0), data(0, P, 0), data(0), data(0, P, 0))) == [0, 1, 2, FULL, 2]
    assert outcomes(machine, commit(2, data(1))) == [FULL]
    batch(machine, topic("u"), drop("t"))
    assert outcomes(machine, commit(3, data(3))) == [0], "what was deleted makes room"


def test_a_marker_has_its_place_whenever_it_comes(machine: StateMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, "MAX_ROWS", 4)
    begun(machine, 0, 1)
    first = commit(1, data(0, TX, 0, transactional=True), data(0, TX, 1, transactional=True), data(0), data(0))
    assert outcomes(machine, first) == [0, 1, 2, FULL]
    assert outcomes(machine, commit(2, data(1, TX, 0, transactional=True))) == [FULL]
    one(machine, end("tx", TX))
    assert (machine.logs.rows, machine.logs.open, log_of(machine, 0).end) == (4, 0, 4)
    assert outcomes(machine, commit(3, data(2))) == [FULL]


def test_a_transaction_takes_two_places_at_first(machine: StateMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, "MAX_ROWS", 2)
    begun(machine, 0)
    assert outcomes(machine, commit(1, data(1), data(0, TX, 0, transactional=True), data(1))) == [0, FULL, 1]


def test_no_more_producers_than_are_kept(machine: StateMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, "MAX_PRODUCERS", 2)
    first = commit(1, data(0, (1, 0), 0), data(1, (1, 0), 0), data(0, (2, 0), 0), data(0, (1, 0), 1), data(0))
    assert outcomes(machine, first) == [0, 0, FULL, 1, 2]
    assert outcomes(machine, commit(2, data(2, (3, 0), 0), data(0, (1, 0), 2))) == [FULL, 3]
    one(machine, silent(machine))
    assert machine.logs.producer_count == 0
    assert outcomes(machine, commit(3, data(2, (3, 0), 0))) == [0]


def test_no_more_objects_than_are_kept(machine: StateMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, "MAX_OBJECTS", 2)
    answers = batch(machine, commit(1, data(0, P, 0)), commit(2, data(0)), commit(3, data(0), data(0, P, 0), data(9)))
    assert [answer.outcomes for answer in answers] == [[0], [1], [FULL, 0, UNKNOWN]]
    assert answers[2].referenced is False
    assert outcomes(machine, commit(4, data(1))) == [FULL]


def test_no_more_aborted_transactions_than_are_kept(machine: StateMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, "MAX_ABORTED", 1)
    begun(machine, 0, 1)
    written = commit(1, data(0, TX, 0, transactional=True), data(1, TX, 0, transactional=True))
    assert outcomes(machine, written) == [0, FULL]
    assert outcomes(machine, commit(2, data(0, TX, 1, transactional=True), data(1))) == [1, 0]
    one(machine, end("tx", TX, committed=False))
    assert (machine.logs.aborted, machine.logs.open) == (1, 0)
    one(machine, join("tx", TX, "t", 2))
    assert outcomes(machine, commit(3, data(2, TX, 0, transactional=True), data(2, TX, 0))) == [FULL, 0]
    one(machine, drop("t"))
    assert machine.logs.aborted == 0


def test_the_largest_requests_take_no_more_room_than_is_kept_for_them(machine: StateMachine) -> None:
    """`batch` compares what is encoded with what was said before."""
    broad = OfferedBatch(0, 2**31 - 1, 0, 1, FIRST_OWN - 1, 2**15 - 1, MAX_SEQUENCE, -MAX_INT64 - 1, False)
    batches = [broad]
    for number in range(1, MAX_OBJECT_BATCHES):
        last = batches[-1]
        sequence = (last.base_sequence + last.records) & MAX_SEQUENCE
        batches.append(replace(broad, position=MAX_OBJECT_BYTES - MAX_OBJECT_BATCHES + number, base_sequence=sequence))
    request = replace(commit(MAX_INT64, data(0)), size=MAX_OBJECT_BYTES, batches=tuple(batches))
    assert outcomes(machine, request)[-1] == (MAX_OBJECT_BATCHES - 1) * (2**31 - 1)
    wanted = replace(topic("x" * MAX_TOPIC_LENGTH), retention_ms=MAX_INT64, retention_bytes=MAX_INT64)
    assert one(machine, wanted).partitions == 1
    assert one(machine, drop(wanted.name)).name == wanted.name


# What is forgotten.


def test_producers_that_were_silent_are_forgotten(machine: StateMachine) -> None:
    batch(machine, commit(1, data(0, (1, 0), 0)), now=NOW)
    batch(machine, commit(2, data(0, (2, 0), 0)), now=NOW + 1)
    batch(machine, commit(3, data(0, (1, 0), 1)), now=NOW + 2)
    assert [place for place, _ in machine.logs.silent_longest(9)] == [(0, 2), (0, 1)]
    one(machine, requests.ExpireProducers(((0, 2, NOW + 1), (0, 1, NOW), (5, 2, NOW))))
    assert [place for place, _ in machine.logs.silent_longest(9)] == [(0, 1)], "the other one has written since"
    one(machine, requests.ExpireProducers(((0, 1, NOW + 2), (0, 1, NOW + 2))))
    assert machine.logs.producer_count == 0


def test_an_open_transaction_keeps_its_producer(machine: StateMachine) -> None:
    begun(machine, 0)
    batch(machine, commit(1, data(0, TX, 0, transactional=True), data(0, (1, 0), 0)))
    one(machine, requests.ExpireProducers(((0, 1, NOW), (0, TX[0], NOW))))
    assert machine.logs.producer(0, 1) is None
    assert machine.logs.producer(0, TX[0]) is not None
    one(machine, end("tx", TX), now=NOW + 2)
    entry = machine.logs.producer(0, TX[0])
    assert entry is not None and entry.timestamp_ms == NOW + 2, "a marker is a sign of life"


def test_what_one_batch_forgets_and_hears_again(machine: StateMachine) -> None:
    batch(machine, commit(1, data(0, P, 0)))
    expire = requests.ExpireProducers(((0, P[0], NOW),))
    answers = batch(machine, expire, commit(2, data(0, P, 7)), commit(3, data(0, P, 8)), expire)
    assert [answers[1].outcomes, answers[2].outcomes] == [[1], [2]], "of an unknown one any sequence will do"
    assert machine.logs.producer_count == 0, "its time is the same, to the millisecond"


def test_no_more_brokers_commit_than_are_kept(machine: StateMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, "MAX_COMMITTERS", 1)
    answers = batch(machine, commit(1, data(9)), commit(1, data(0), broker=2), commit(2, data(0)))
    assert [answers[0].outcomes, answers[1], answers[2].outcomes] == [[UNKNOWN], ErrorCode.NOT_ENOUGH_REPLICAS, [0]]
    one(machine, requests.UnregisterBroker(1, EPOCHS[1]))
    assert outcomes(machine, commit(1, data(0), broker=2)) == [1]


def test_a_silent_producer_is_forgotten_and_starts_with_any_sequence(machine: StateMachine) -> None:
    assert outcomes(machine, commit(1, data(0, (7, 4), 0), data(0, (7, 4), 5))) == [0, -45]
    one(machine, silent(machine))
    assert outcomes(machine, commit(2, data(0, (7, 4), 5), data(0, (7, 4), 0))) == [1, -45]
