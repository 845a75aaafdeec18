from __future__ import annotations

import pytest

from bench.grown_logs import logs_written
from bench.log_decisions import FOUNDING, commit_request, founded_machine, measure
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.founding import FoundingRecord
from pidkeeper.protocol.ids import DEFAULT_BLOCK_SIZE
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.protocol.records import FeatureLevelRecord


def test_each_producer_goes_on_with_its_next_sequence() -> None:
    seen: dict[int, list[int]] = {}
    for number in range(6):
        for batch in commit_request(number, 2, 4).batches:
            assert batch.log == batch.producer_id
            seen.setdefault(batch.producer_id, []).append(batch.base_sequence)
    assert seen == {0: [0, 1, 2], 1: [0, 1, 2], 2: [0, 1, 2], 3: [0, 1, 2]}


def test_what_is_measured_is_granted_and_not_nothing() -> None:
    cost = measure(40, 4, 8)
    assert min(cost.decide_us, cost.codec_us, cost.replay_us) > 0
    with pytest.raises(ValueError, match="9 producers do not come around"):
        measure(1, 4, 9)


def test_a_refusal_is_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.log_decisions.founded_machine", lambda logs, _: founded_machine(logs, 3))
    with pytest.raises(RuntimeError, match="object 0 was refused"):
        measure(1, 4, 4)


def test_grown_logs_are_what_a_member_replays() -> None:
    machine = StateMachine("bench")
    machine.replay([FeatureLevelRecord(LATEST), FoundingRecord(FOUNDING, DEFAULT_BLOCK_SIZE, False, 0)])
    for records in logs_written(machine.next_offset, 0, 300, 7, 4):
        machine.replay(records)
    image = machine.image(1, 1).logs
    assert image is not None
    assert len(image.producers) == 300
    assert sum(log.end for log in image.logs) == 1200
