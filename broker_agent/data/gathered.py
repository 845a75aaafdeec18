"""What is on its way into objects: a request's batches, and an object made of those of many."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Final

from pidkeeper.broker_agent.data.batches import NewBatch
from pidkeeper.broker_agent.data.codes import REQUEST_TIMED_OUT
from pidkeeper.protocol.log_messages import CommitObjectRequest, JoiningBatch, OfferedBatch
from pidkeeper.protocol.logs import MAX_JOINING, MAX_JOINING_BYTES, ObjectId

_LOG: Final = itemgetter(0)
"""Of a part of an object."""


class PendingAppend:
    """The batches of one request. `outcomes`: for each its base offset, or minus Kafka's code.

    Until a batch is settled its outcome is that of a request whose time is up. `told(outcomes)` is called once, in a
    later turn of the event loop. `since` and `deadline`: by the loop's clock. `launched`: how many have gone into an
    object; `waiting_bytes`: of the others. It is among `untold` until it was told.
    """

    __slots__ = ("_left", "_told", "_untold", "batches", "deadline", "launched", "outcomes", "since", "waiting_bytes")

    def __init__(
        self,
        batches: Sequence[NewBatch],
        since: float,
        deadline: float,
        told: Callable[[list[int]], None],
        untold: dict[PendingAppend, None],
    ) -> None:
        assert batches, "nothing to append"
        untold[self] = None
        self._untold = untold
        self._told: Callable[[list[int]], None] | None = told
        self.batches = batches
        self.since = since
        self.deadline = deadline
        self.launched = 0
        self.waiting_bytes = sum([len(batch.data) for batch in batches])
        self.outcomes = [-REQUEST_TIMED_OUT] * len(batches)
        self._left = len(batches)

    def settle(self, index: int, outcome: int) -> None:
        """What has become of a batch. With the last one the request is done."""
        self.outcomes[index] = outcome
        self._left -= 1
        if self._left == 0:
            self.tell()

    def tell(self) -> None:
        """Tell the outcomes as they are. What is settled later is told to nobody."""
        told, self._told = self._told, None
        if told is None:
            return
        del self._untold[self]
        # Not from here: what breaks while one is told must keep nothing from the others of its object.
        asyncio.get_running_loop().call_soon(told, self.outcomes)


class GatheredObject:
    """Batches that are put as one object, as `pieces`, once they are grouped.

    `deadline`: of the last of its requests; nobody waits for it then.

    `id` and `founding_id` are its name, once it has one; `offered`: whether the quorum was ever told of that name.
    """

    __slots__ = ("_joining", "_joining_bytes", "_parts", "deadline", "founding_id", "id", "offered", "pieces", "size")

    def __init__(self) -> None:
        # The log, the batch, and where it comes from: whose it is, and which one of theirs.
        self._parts: list[tuple[int, NewBatch, PendingAppend, int]] = []
        self._joining = self._joining_bytes = 0
        self.pieces: list[bytes] = []
        self.size = 0
        self.deadline = 0.0
        self.id: ObjectId | None = None
        self.founding_id: uuid.UUID | None = None
        self.offered = False

    def __len__(self) -> int:
        return len(self._parts)

    def has_room_to_join(self, batch: NewBatch) -> bool:
        """Whether one more may have its partition join a transaction; those that do not need no such room."""
        if batch.joining_id is None:
            return True
        more = JoiningBatch(len(self), batch.joining_id).encoded_bytes
        return self._joining < MAX_JOINING and self._joining_bytes + more <= MAX_JOINING_BYTES

    def add(self, pending: PendingAppend) -> None:
        """Take the next batch of a request."""
        batch = pending.batches[pending.launched]
        size = len(batch.data)
        if batch.joining_id is not None:
            self._joining += 1
            self._joining_bytes += JoiningBatch(len(self), batch.joining_id).encoded_bytes
        self._parts.append((batch.log, batch, pending, pending.launched))
        self.size += size
        self.deadline = max(self.deadline, pending.deadline)
        pending.launched += 1
        pending.waiting_bytes -= size

    def group(self) -> None:
        """Have the batches of each log lie together, in their order: so whoever reads a log reads one range."""
        self._parts.sort(key=_LOG)
        self.pieces = [batch.data for _, batch, _, _ in self._parts]

    @property
    def path(self) -> str:
        """Its name in the store."""
        assert self.id is not None and self.founding_id is not None, "the object has no name yet"
        return self.id.path(self.founding_id)

    @property
    def logs(self) -> set[int]:
        """The logs that its batches want to join."""
        return {log for log, _, _, _ in self._parts}

    def commit_request(self) -> CommitObjectRequest:
        """What the quorum is asked, once it has a name."""
        assert self.id is not None and self.founding_id is not None, "the object has no name yet"
        offered: list[OfferedBatch] = []
        joining: list[JoiningBatch] = []
        position = 0
        for at, (_, batch, _, _) in enumerate(self._parts):
            offered.append(batch.offered(position))
            if batch.joining_id is not None:
                joining.append(JoiningBatch(at, batch.joining_id))
            position += len(batch.data)
        name = self.id
        return CommitObjectRequest(
            name.broker_id,
            name.broker_epoch,
            self.founding_id,
            name.number,
            self.size,
            tuple(offered),
            joining,
        )

    def settle(self, outcomes: Sequence[int]) -> None:
        """Tell the requests what has become of each batch."""
        for (_, _, pending, index), outcome in zip(self._parts, outcomes, strict=True):
            pending.settle(index, outcome)
