"""What a partition of a Produce request may hold."""

from __future__ import annotations

import pytest

from pidkeeper.broker_agent.data.batches import checked_batch
from pidkeeper.broker_agent.kafka.wire.data.record_batch import BatchError
from pidkeeper.protocol.log_messages import OfferedBatch
from tests.support.data_parts import records
from tests.support.segment_builder import START_MS, batch

PLAIN = bytes(records())
OLD = bytes(16) + b"\x01" + bytes(60)


def test_what_the_quorum_is_told() -> None:
    data = records(7, (b"a", b"b"), epoch=3, transactional=True)
    checked = checked_batch(data, 12, max_bytes=1000, transactional=True)
    assert checked.data == bytes(data)
    assert checked.offered(40) == OfferedBatch(12, 2, 40, len(data), 1000, 3, 7, START_MS, True)
    for plain in (records(), records(0, producer_id=-1), records(0, producer_id=-7, epoch=-5)):
        told = checked_batch(plain, 1, max_bytes=1000, transactional=False).offered(0)
        assert (told.producer_id, told.producer_epoch, told.base_sequence) == (-1, -1, -1)


def test_the_request_is_not_kept_in_memory() -> None:
    frame = bytearray(PLAIN + bytes(1000))
    checked = checked_batch(memoryview(frame)[: len(PLAIN)], 0, max_bytes=1000, transactional=False)
    frame[:] = bytes(len(frame))
    assert checked.data == PLAIN


@pytest.mark.parametrize(
    ("data", "code", "message"),
    [
        (None, 87, "no record batch"),
        (b"", 87, "no record batch"),
        (PLAIN * 2, 87, "exactly one record batch is taken, and another begins at 73"),
        (PLAIN[:-1], 2, "truncated"),
        (PLAIN[:-1] + b"x", 2, "CRC"),
        (OLD, 43, "magic 1"),
        (records(last_offset_delta=4), 87, "offset delta of 4"),
        (records(control=True), 87, "control"),
        (records(log_append_time=True), 32, "LogAppendTime"),
        (records(0, transactional=True), 53, "without transactional id"),
        (records(values=[bytes(2000)]), 10, "at most 1000"),
        (records(0, epoch=-1), 87, "has epoch -1 and sequence 0"),
        (memoryview(batch(0, producer=(5, 0, -1))), 87, "has epoch 0 and sequence -1"),
    ],
)
def test_what_is_refused(data: bytes | memoryview | None, code: int, message: str) -> None:
    with pytest.raises(BatchError, match=message) as refused:
        checked_batch(None if data is None else memoryview(data), 0, max_bytes=1000, transactional=False)
    assert refused.value.error_code == code


def test_a_transactional_batch_has_a_producer() -> None:
    with pytest.raises(BatchError, match="no producer id") as refused:
        checked_batch(records(transactional=True), 0, max_bytes=1000, transactional=True)
    assert refused.value.error_code == 87
