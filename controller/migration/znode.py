"""What is in the znode of the latest producer ID block, and which IDs are free after it. Pure.

Kafka's JSON (`ProducerIdBlockZNode`): `version` 1, `broker` a number, `block_start` and `block_end` decimal strings,
the end inclusive. A controller of this project adds `claimed_by`, which Kafka's brokers do not look at.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.migration import CONTROLLER, MAX_CLAIMED_BY_LENGTH

ZNODE_VERSION: Final = 1

MAX_ZNODE_BYTES: Final = 4096
"""Kafka writes about 80 bytes, a controller 130 more. ZooKeeper itself would keep a megabyte."""

MAX_ZNODE_BLOCK: Final = 2**31 - 1
"""IDs in a block, else a Kafka broker cannot read it: it takes the size for an int32."""

SEAL_SIZE: Final = 1000
"""Kafka's block size: a broker that finds less than one block left reports exhaustion, and gives up."""

_DECIMAL: Final = re.compile("-?[0-9]{1,40}")


class ZnodeError(ValueError):
    """The znode does not hold a block; the message says why not."""


class ZnodeBlock(msgspec.Struct, frozen=True):
    """A block as it stands in the znode: IDs `first` to `last`, claimed by broker `broker_id`.

    `claimed_by`: the quorum whose controller wrote it, None for one that a broker wrote.
    """

    broker_id: int
    first: int
    last: int
    claimed_by: str | None = None

    @property
    def sealed(self) -> bool:
        """Whether a quorum has shut the znode for all brokers: nothing is left above the block."""
        return self.claimed_by is not None and self.last == MAX_PRODUCER_ID


def parse(data: bytes | None) -> ZnodeBlock | None:
    """The block in the data of a znode; None if nothing was stored in it yet, which comes before block 0 to 999.

    Raises ZnodeError.
    """
    if data is None:
        return None
    if len(data) > MAX_ZNODE_BYTES:
        raise ZnodeError(f"it holds {len(data)} bytes, a block takes {MAX_ZNODE_BYTES} at most")
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ZnodeError(f"bad JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ZnodeError(f"bad JSON: {_shown(fields)} is not an object")
    version = fields.get("version")
    if type(version) is not int or version != ZNODE_VERSION:
        raise ZnodeError(f"unknown version {_shown(version)}: only version {ZNODE_VERSION} is known")
    broker_id = fields.get("broker")
    if not isinstance(broker_id, int) or isinstance(broker_id, bool) or not CONTROLLER <= broker_id < 2**31:
        raise ZnodeError(f"broker is {_shown(broker_id)}, not the id of a broker")
    first, last = _producer_id(fields, "block_start"), _producer_id(fields, "block_end")
    if last < first:
        raise ZnodeError(f"block_end {last} is below block_start {first}")
    return ZnodeBlock(broker_id, first, last, _claimant(broker_id, fields.get("claimed_by")))


def encode(block: ZnodeBlock) -> bytes:
    """The data of a znode that holds `block`."""
    fields = {
        "version": ZNODE_VERSION,
        "broker": block.broker_id,
        "block_start": str(block.first),
        "block_end": str(block.last),
    }
    if block.claimed_by is not None:
        fields["claimed_by"] = block.claimed_by
    return json.dumps(fields, separators=(",", ":")).encode()


def claim(first: int, last: int, claimed_by: str) -> ZnodeBlock:
    """The block that keeps `first` to `last` from everybody else, shortened to what brokers can read."""
    return ZnodeBlock(CONTROLLER, max(first, last - MAX_ZNODE_BLOCK + 1), last, claimed_by)


def seal(claimed_by: str) -> ZnodeBlock:
    """The block after which a broker finds no ID left: it fails loudly ("Have exhausted all producerIds")."""
    return ZnodeBlock(CONTROLLER, MAX_PRODUCER_ID - SEAL_SIZE + 1, MAX_PRODUCER_ID, claimed_by)


def next_free(block: ZnodeBlock | None, claimed_by: str | None, quorum_next: int) -> int:
    """The lowest ID that nobody was given, and that nobody will be unless the znode is written again.

    After a broker's block that is its end *plus one* (KAFKA-15552). What stands in a claim of this very quorum was
    given to nobody from `quorum_next` on, the next ID of a leader that has applied all entries of its term and before:
    an earlier leader that claimed it can no longer commit its blocks. All blocks of brokers end below the start of such
    a claim. The result is above MAX_PRODUCER_ID if nothing is left.
    """
    if block is None:
        return quorum_next
    if block.claimed_by is None or block.claimed_by != claimed_by:
        return max(quorum_next, block.last + 1)
    return quorum_next if block.sealed else max(quorum_next, block.first)


def lowers(before: ZnodeBlock | None, after: ZnodeBlock | None) -> bool:
    """Whether `after` in the place of `before` says of fewer IDs that they are taken."""
    return before is not None and (after is None or after.last < before.last)


def went_back(block: ZnodeBlock | None, quorum_next: int) -> bool:
    """Whether the znode is behind the quorum: every block is claimed first, so it was set back or made anew."""
    return (0 if block is None else block.last + 1) < quorum_next


def _producer_id(fields: dict[str, Any], key: str) -> int:
    text = fields.get(key)
    if not isinstance(text, str) or _DECIMAL.fullmatch(text) is None:
        raise ZnodeError(f"{key} is {_shown(text)}, not a decimal number in quotes")
    value = int(text)
    if value < 0:
        raise ZnodeError(f"{key} is {value}: producer IDs are not negative")
    if value > MAX_PRODUCER_ID:
        raise ZnodeError(f"{key} is {value}, above the highest producer ID {MAX_PRODUCER_ID}")
    return value


def _claimant(broker_id: int, claimed_by: object) -> str | None:
    """A broker that writes back the keys it read has copied the name, not claimed for the quorum.

    The name of a quorum is printable ASCII: what is not would neither go into a log line nor, half a surrogate pair, be
    encoded into an answer.
    """
    if broker_id != CONTROLLER or not isinstance(claimed_by, str) or not 1 <= len(claimed_by) <= MAX_CLAIMED_BY_LENGTH:
        return None
    return claimed_by if claimed_by.isascii() and claimed_by.isprintable() else None


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."
