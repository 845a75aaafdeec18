"""What an object tells of batches whose partitions join transactions, and how many of these it takes."""

from __future__ import annotations

from pidkeeper.broker_agent.data.batches import NewBatch, checked_batch
from pidkeeper.broker_agent.data.gathered import GatheredObject, PendingAppend
from pidkeeper.protocol.log_messages import JoiningBatch
from pidkeeper.protocol.logs import MAX_JOINING, MAX_JOINING_BYTES, ObjectId
from tests.support.data_parts import records
from tests.support.log_leader import FOUNDING


def pending(*names: str | None) -> PendingAppend:
    data = memoryview(records())
    header = checked_batch(data, 0, max_bytes=1 << 20, transactional=False).header
    batches = [NewBatch(0, bytes(data), header, name) for name in names]
    return PendingAppend(batches, 0.0, 1.0, lambda _: None, {})


def test_the_quorum_is_told_which_batches_join() -> None:
    item, request = GatheredObject(), pending(None, "a", None, "b")
    for _ in request.batches:
        item.add(request)
    item.id, item.founding_id = ObjectId(7, 5, 0), FOUNDING
    assert item.commit_request().joining == [JoiningBatch(1, "a"), JoiningBatch(3, "b")]


def test_so_many_join_as_the_entry_has_room_for() -> None:
    for name in ("a", "x" * 249, "\U0001f600" * 249):
        item, request = GatheredObject(), pending(*[name] * (MAX_JOINING + 1), None)
        taken = 0
        while item.has_room_to_join(request.batches[taken]):
            item.add(request)
            taken += 1
        joined = sum(JoiningBatch(0, name).encoded_bytes for _ in range(taken))
        assert joined <= MAX_JOINING_BYTES < joined + JoiningBatch(0, name).encoded_bytes
        assert taken <= MAX_JOINING
        assert item.has_room_to_join(request.batches[-1]), "others may go along"
