"""The one tagged field of ours (KIP-482): what pidkeeper's agents and controllers tell each other beyond Kafka's words.

It holds JSON. Whoever does not know it skips it, as every tagged field: a broker of another system sends none, and
is answered as well.
"""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

import msgspec

from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.founding import Succession
from pidkeeper.protocol.ids import MAX_BLOCKS_AT_ONCE, MAX_PRODUCER_ID
from pidkeeper.protocol.messages import ClusterId, FurtherBlock, HeldIds
from pidkeeper.protocol.metadata_version import BASE, MetadataVersion
from pidkeeper.service.kafka.wire.primitives import tagged_fields

TAG: Final = 0x7069
"""`pi`. Kafka numbers the fields of each message from 0 on, and has given a handful."""

MAX_DETAIL_CHARACTERS: Final = 1000
"""Of why a request is refused: in UTF-8 a twentieth of what a frame holds."""


class Asked(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of a request. `kafka`: host:port where clients reach the broker. `held`: as in `HeldIds`. `reserve_ids`: how many
    are at hand. `cluster_id`: whose block is asked for. `blocks`: how many are. `store_id`: as in a registration.
    `metadata_version`: the newest that the broker knows."""

    kafka: str | None = None
    held: HeldIds | None = None
    reserve_ids: Annotated[int, msgspec.Meta(ge=0, le=MAX_PRODUCER_ID)] | None = None
    cluster_id: ClusterId | None = None
    blocks: Annotated[int, msgspec.Meta(ge=1, le=MAX_BLOCKS_AT_ONCE)] = 1
    store_id: UUID | None = None
    metadata_version: MetadataVersion | None = None


class Answered(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of an answer. `code`: the name in our table, since several have Kafka's number -1, and `detail`; `leader`: who
    leads, as kafka://host:port. The other fields are those of the answers over HTTP."""

    code: str = ErrorCode.NONE.name
    detail: str = ""
    leader: str | None = None
    cluster_id: str | None = None
    metadata_version: int = BASE
    founding_id: UUID | None = None
    succession: Succession | None = None
    more: list[FurtherBlock] = msgspec.field(default_factory=list)


NOTHING_ASKED: Final = Asked()
"""What a broker of another system sends."""

_asked = msgspec.json.Decoder(Asked)
_answered = msgspec.json.Decoder(Answered)


def read_asked(content: bytes | None) -> Asked:
    """What a request holds in the field; None without it. Raises RequestError."""
    if content is None:
        return NOTHING_ASKED
    try:
        return _asked.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"tagged field {TAG}: {error}; nothing was changed") from error


def read_answered(content: bytes | None) -> Answered:
    """What an answer holds in the field. Raises ValueError."""
    return Answered() if content is None else _answered.decode(content)


def tagged(content: Asked | Answered) -> bytes:
    """A section of tagged fields that has this one alone, also if it says nothing: it says who can read it."""
    return tagged_fields({TAG: msgspec.json.encode(content)})
