"""How long the requests of consumer groups may be, and what they have in common."""

from __future__ import annotations

from typing import Final

from pidkeeper.service.kafka.wire.primitives import Reader, WireError, int16, int32, tags

MAX_JOIN_FRAME_BYTES: Final = 256 * 1024
"""Largest JoinGroup after its length field: a subscription to 1000 topics of 60 characters, for each of four assignors.
It waits for the others with its frame in the memory of long requests, where 256 of these would have room."""

MAX_SYNC_FRAME_BYTES: Final = 1024 * 1024
"""Largest SyncGroup: a leader's has the assignments of all members. Kafka puts these into one record of at most
`message.max.bytes`, 1 MiB by default."""

MAX_OFFSETS_FRAME_BYTES: Final = 256 * 1024
"""Largest request about offsets: MAX_PARTITIONS with 44 bytes of metadata each, as Kafka Streams commits them."""

MAX_PARTITIONS: Final = 4096
"""In one request about offsets, over all its groups and topics: four records' worth (`MAX_COMMITTED_OFFSETS`). It
bounds what a frame is read into: the shortest partitions would be 65,536."""

MAX_MEMBERS: Final = 1024
"""In a SyncGroup or a LeaveGroup: more than a group may have (`MAX_MEMBERS_BYTES`)."""

MAX_PROTOCOLS: Final = 64
"""Of one member: a client has one for each assignor that it may use, and Kafka knows four."""


def bounded(count: int, most: int, what: str) -> int:
    """`count`, of an array. Raises WireError above `most`."""
    if count > most:
        raise WireError(f"{count} {what}, and at most {most} are taken")
    return count


def finish(reader: Reader, *, flexible: bool) -> None:
    """Read the end of a body. Raises WireError if something follows."""
    if flexible:
        reader.skip_tags()
    reader.finish()


def code_response(version: int, error_code: int, throttle_since: int, *, flexible: bool) -> bytes:
    """The body of an answer that is an error code alone, with a throttle time since version `throttle_since`."""
    throttle = int32(0) if version >= throttle_since else b""
    return throttle + int16(error_code) + tags(flexible=flexible)
