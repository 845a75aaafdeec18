"""What a request of an agent, or its answer, says of objects, and whether they are in the store just then."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from pidkeeper.disk.files import TEMPORARY_SUFFIX
from pidkeeper.protocol.log_messages import CommitObjectRequest, CommitObjectResponse
from pidkeeper.protocol.logs import ObjectId
from pidkeeper.protocol.messages import TransactionResponse
from pidkeeper.protocol.segment_messages import (
    CheckObjectsRequest,
    CheckObjectsResponse,
    CommitSegmentRequest,
    CommitSegmentResponse,
    FindGarbageResponse,
    FindRollsResponse,
    ObjectsDeletedRequest,
)
from pidkeeper.protocol.segments import LOG_SUFFIX, index_path
from tests.cuts.relay import Answer, Exchange

COMMIT: Final = "/v1/objects/commit"
END: Final = "/v1/transactions/end"
ROLLS: Final = "/v1/logs/rolls"
SEGMENT: Final = "/v1/segments/commit"
GARBAGE: Final = "/v1/objects/garbage"
DELETED: Final = "/v1/objects/deleted"
CHECK: Final = "/v1/objects/check"

OK: Final = 200
_Shape = TypeVar("_Shape")


class Sight(NamedTuple):
    """An exchange as it stands. `answer`: None before it has come. `garbage`: names by key, as agents were told."""

    store: Path
    exchange: Exchange
    answer: Answer | None
    garbage: dict[int, list[str]]

    def request(self, shape: type[_Shape]) -> _Shape:
        """The request."""
        return msgspec.json.decode(self.exchange.body, type=shape)

    def told(self, shape: type[_Shape]) -> _Shape | None:
        """The answer, if it is a good one."""
        if self.answer is None or self.answer.status != OK:
            return None
        return msgspec.json.decode(self.answer.body, type=shape)

    def there(self, names: list[str]) -> int:
        """How many of the names are in the store."""
        return sum((self.store / name).exists() for name in names)


def object_stored(sight: Sight) -> bool:
    """The object that is to be committed is in the store."""
    asked = sight.request(CommitObjectRequest)
    name = ObjectId(asked.broker_id, asked.broker_epoch, asked.number).path(asked.founding_id)
    return sight.there([name]) == 1


def object_joined(sight: Sight) -> bool:
    """The quorum says that batches of the object joined their logs."""
    told = sight.told(CommitObjectResponse)
    return told is not None and told.referenced


def transaction_ended(sight: Sight) -> bool:
    """The quorum says that the transaction is ended."""
    told = sight.told(TransactionResponse)
    return told is not None and told.error_code == 0


def segment_stored(sight: Sight) -> bool:
    """The segment that is to be committed is in the store, and its index."""
    asked = sight.request(CommitSegmentRequest)
    path = asked.name.path(ObjectId(asked.broker_id, asked.broker_epoch, asked.number), asked.founding_id)
    names = [path, index_path(path)]
    return sight.there(names) == len(names)


def segment_joined(sight: Sight) -> bool:
    """The quorum says that a log reads from the segment."""
    told = sight.told(CommitSegmentResponse)
    return told is not None and told.joined


def rolls_due(sight: Sight) -> bool:
    """Some log is to be rolled."""
    told = sight.told(FindRollsResponse)
    return told is not None and bool(told.logs)


def half_a_segment(sight: Sight) -> bool:
    """The newest segment that the agent has put is in the store, and not its index."""
    folders = sight.store.glob(f"segments/*/{sight.exchange.agent}/*/*")
    newest = max(folders, key=lambda one: (int(one.parent.name), one.name), default=None)
    if newest is None:
        return False
    segments = [*newest.glob(f"*/*{LOG_SUFFIX}")]
    return bool(segments) and not Path(index_path(str(segments[0]))).exists()


def unfinished_object(sight: Sight) -> bool:
    """Bytes of an object are in a file of the store that has no name of an object yet."""
    return any(sight.store.glob(f"~*{TEMPORARY_SUFFIX}"))


def garbage(sight: Sight) -> list[Path]:
    """The files that the agent is told to delete."""
    told = sight.told(FindGarbageResponse)
    return [] if told is None or told.held else [sight.store / name for one in told.objects for name in one.names]


def garbage_there(sight: Sight) -> bool:
    """All that is to be deleted is in the store yet, two files at least."""
    return _all_there(garbage(sight))


def garbage_gone(sight: Sight) -> bool:
    """All that the agent is about to tell of, or has told of, is gone from the store."""
    keys = sight.request(ObjectsDeletedRequest).keys
    names = [name for key in keys for name in sight.garbage.get(key, [])]
    return bool(names) and not sight.there(names)


def garbage_told(sight: Sight) -> bool:
    """And the quorum has forgotten it."""
    return sight.answer is not None and sight.answer.status == OK and garbage_gone(sight)


def orphans(sight: Sight) -> list[Path]:
    """The files of orphans that the agent is told of."""
    told = sight.told(CheckObjectsResponse)
    if told is None or told.held:
        return []
    asked = sight.request(CheckObjectsRequest)
    return [
        path
        for place in told.dead
        for path in _files(sight.store, asked.founding_id, asked.objects[place], segment=asked.segments)
    ]


def orphans_there(sight: Sight) -> bool:
    """Orphans are known to be dead and are in the store, two files at least."""
    return _all_there(orphans(sight))


def _all_there(paths: list[Path]) -> bool:
    return len(paths) > 1 and all(path.exists() for path in paths)


def _files(store: Path, founding_id: uuid.UUID, one: ObjectId, *, segment: bool) -> Iterator[Path]:
    """Those of an object: a segment has its index beside it."""
    if not segment:
        path = store / one.path(founding_id)
        yield from [path] if path.exists() else []
        return
    folder = store / f"segments/{founding_id}/{one.broker_id}/{one.broker_epoch}/{one.number:020}"
    yield from folder.glob("*/*")
