"""Arrays of requests about groups are refused before memory is taken. `data/test_malformed.py` has the rest."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any, Final

import pytest

from pidkeeper.broker_agent.kafka.wire.groups.frames import MAX_MEMBERS, MAX_PARTITIONS, MAX_PROTOCOLS
from pidkeeper.service.kafka.wire.primitives import WireError
from tests.support.data_codecs import read
from tests.support.plain_messages import Plain, requests

HUGE: Final = struct.pack(">i", 2**31 - 1)
HUGE_COMPACT: Final = b"\xff\xff\xff\xff\x0f"
G: Final = b"\x00\x01g"
ONE: Final = struct.pack(">ih1s", 1, 1, b"t")
MEMBER: Final = G + struct.pack(">i", 3) + b"\x00\x00"


def head(key: int, version: int, *, flexible: bool = False) -> bytes:
    return struct.pack(">hhih", key, version, 0, -1) + b"\x00" * flexible


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (head(8, 2) + MEMBER + bytes(8) + HUGE, "array of 2147483647"),
        (head(8, 2) + MEMBER + bytes(8) + ONE + HUGE, "array of 2147483647"),
        (head(8, 8, flexible=True) + b"\x02g" + bytes(4) + b"\x01\x00" + HUGE_COMPACT, "array of 4294967294"),
        (head(8, 10), "version 10 of API key 8"),
        (head(8, 1), "version 1 of API key 8"),
        (head(9, 1) + G + struct.pack(">i", -1), "must not be null"),
        (head(9, 1) + G + ONE + HUGE, "array of 2147483647"),
        (head(9, 8, flexible=True) + HUGE_COMPACT, "array of 4294967294"),
        (head(9, 8, flexible=True) + b"\x02\x02g" + HUGE_COMPACT, "array of 4294967294"),
        (head(9, 10), "version 10 of API key 9"),
        (head(11, 0) + G + bytes(4) + b"\x00\x00\x00\x00" + HUGE, "array of 2147483647"),
        (head(11, 0) + G + bytes(4) + b"\x00\x00\x00\x00" + ONE + HUGE, "2147483647 bytes wanted"),
        (head(11, 0) + G + bytes(4) + b"\x00\x00\x00\x00" + ONE + struct.pack(">i", -1), "bytes of length -1"),
        (head(13, 3) + G + HUGE, "array of 2147483647"),
        (head(14, 0) + MEMBER + HUGE, "array of 2147483647"),
        (head(14, 0) + MEMBER + ONE + HUGE, "2147483647 bytes wanted"),
        (head(15, 0) + HUGE, "array of 2147483647"),
        (head(16, 4, flexible=True) + HUGE_COMPACT, "array of 4294967294"),
        (head(28, 0) + b"\x00\x01x" + G + bytes(10) + HUGE, "array of 2147483647"),
        (head(28, 6), "version 6 of API key 28"),
        (head(42, 0) + HUGE, "array of 2147483647"),
        (head(47, 0) + G + HUGE, "array of 2147483647"),
        (head(47, 0) + G + ONE + HUGE, "array of 2147483647"),
    ],
)
def test_malformed(frame: bytes, message: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match=message):
            read(frame)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def numbers(name: str, counts: list[int]) -> list[Plain]:
    return [{"name": "t", name: list(range(count))} for count in counts]


def commits(counts: list[int]) -> list[Plain]:
    one = {"committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}
    return [{"name": "t", "partitions": [one | {"partition_index": at} for at in range(count)]} for count in counts]


MEMBER_FIELDS: Final[Plain] = {"group_id": "g", "member_id": "", "group_instance_id": None}
PRODUCER: Final[Plain] = MEMBER_FIELDS | {"transactional_id": "x", "producer_id": 1, "producer_epoch": 0}


def message(api: str, counts: list[int]) -> tuple[str, int, Plain]:
    """A request with so many elements of what is counted: partitions are counted over all topics and groups."""
    match api:
        case "offset_commit":
            fields = MEMBER_FIELDS | {"generation_id_or_member_epoch": -1, "topics": commits(counts)}
            return api, 9, fields
        case "txn_offset_commit":
            return api, 3, PRODUCER | {"generation_id": -1, "topics": commits(counts)}
        case "offset_fetch":
            groups = [
                {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": [one]}
                for one in numbers("partition_indexes", counts)
            ]
            return api, 9, {"groups": groups, "require_stable": True}
        case "offset_delete":
            topics = [{"name": "t", "partitions": [{"partition_index": at} for at in range(count)]} for count in counts]
            return api, 0, {"group_id": "g", "topics": topics}
        case "join_group":
            protocols = [{"name": f"{at}", "metadata": b""} for at in range(sum(counts))]
            times = {"session_timeout_ms": 1, "rebalance_timeout_ms": 1, "reason": None}
            return api, 9, MEMBER_FIELDS | times | {"protocol_type": "consumer", "protocols": protocols}
        case "sync_group":
            assignments = [{"member_id": f"{at}", "assignment": b""} for at in range(sum(counts))]
            protocol = {"generation_id": 1, "protocol_type": None, "protocol_name": None}
            return api, 5, MEMBER_FIELDS | protocol | {"assignments": assignments}
    members = [{"member_id": f"{at}", "group_instance_id": None, "reason": None} for at in range(sum(counts))]
    return api, 5, {"group_id": "g", "members": members}


@pytest.mark.parametrize(
    ("api", "most"),
    [
        ("offset_commit", MAX_PARTITIONS),
        ("txn_offset_commit", MAX_PARTITIONS),
        ("offset_fetch", MAX_PARTITIONS),
        ("offset_delete", MAX_PARTITIONS),
        ("join_group", MAX_PROTOCOLS),
        ("sync_group", MAX_MEMBERS),
        ("leave_group", MAX_MEMBERS),
    ],
)
def test_a_request_has_so_many_at_most(api: str, most: int) -> None:
    def frame(counts: list[int]) -> Any:
        return requests(*message(api, counts))[0]

    read(frame([most - 3, 3]))
    with pytest.raises(WireError, match=f"at most {most} are taken"):
        read(frame([most - 3, 4]))
