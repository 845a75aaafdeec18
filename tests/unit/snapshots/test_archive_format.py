from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.snapshots.archive_format import (
    HEADER_BYTES,
    MAX_ARCHIVE_ROWS,
    ROW_BYTES,
    ArchiveError,
    ArchiveHeader,
    decode_archive,
    decode_header,
    decode_row,
    encode_archive,
    encode_header,
)

GOLDEN = Path(__file__).parents[2] / "golden"
BLOCKS = [
    AllocatedBlock(1000, 1999, 1, 17, 100, 1_700_000_000_000),
    AllocatedBlock(5000, 5000, 2**31 - 1, 99, 199, -1),
]


def block(**changes: int) -> AllocatedBlock:
    return msgspec.structs.replace(BLOCKS[0], **changes)


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(1, 2**40), st.integers(1, 9), st.integers(0, 2**31 - 1)), max_size=20
    )
)
def test_round_trip(steps: list[tuple[int, int, int, int]]) -> None:
    blocks = []
    next_id = offset = 0
    for gap, length, step, broker_id in steps:
        offset += step
        blocks.append(AllocatedBlock(next_id + gap, next_id + gap + length - 1, broker_id, offset, offset, -offset))
        next_id += gap + length
    data = encode_archive("cluster-a", 0, offset + 1, blocks)
    header, found = decode_archive(data)
    assert found == blocks
    assert (header.cluster_id, header.from_offset, header.to_offset) == ("cluster-a", 0, offset + 1)
    assert header.rows == len(blocks)
    assert len(data) == HEADER_BYTES + ROW_BYTES * len(blocks)


def test_format_is_pinned() -> None:
    golden = (GOLDEN / "allocations.bin").read_bytes()
    assert encode_archive("cluster-a", 100, 200, BLOCKS) == golden
    header, blocks = decode_archive(golden)
    assert blocks == BLOCKS
    assert (header.first_id, header.last_id) == (1000, 5000)
    assert [decode_row(golden[at : at + 48]) for at in (128, 176)] == BLOCKS


OWN_BLOCK = AllocatedBlock(5001, 5010, -1, -1, 199, 7)


def test_the_format_with_the_quorums_own_blocks_is_pinned() -> None:
    """Members of a build before do not see such a file: the metadata version keeps them away. Readers are told."""
    golden = (GOLDEN / "allocations-own.bin").read_bytes()
    assert encode_archive("cluster-a", 100, 200, [BLOCKS[0], OWN_BLOCK]) == golden
    header, blocks = decode_archive(golden)
    assert (header.version, blocks) == (2, [BLOCKS[0], OWN_BLOCK])
    assert decode_archive(encode_archive("cluster-a", 100, 200, BLOCKS))[0].version == 1


def test_the_quorums_own_blocks_are_in_no_file_of_the_version_before() -> None:
    data = encode_archive("cluster-a", 100, 200, [BLOCKS[0], OWN_BLOCK])
    header = msgspec.structs.replace(decode_header(data), version=1)
    with pytest.raises(ArchiveError, match="the block of ID 5001 has no broker, in a file of version 1"):
        decode_archive(encode_header(header) + data[HEADER_BYTES:])


@pytest.mark.parametrize("version", [0, 3])
def test_a_file_of_another_version_is_refused(version: int) -> None:
    header = ArchiveHeader("cluster-a", 100, 200, 2, 1000, 5000, 0, version)
    with pytest.raises(ArchiveError, match=f"unknown archive version {version}: this build reads version 2 at most"):
        decode_header(encode_header(header))


def test_every_flipped_bit_is_refused() -> None:
    data = encode_archive("cluster-a", 100, 200, BLOCKS)
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ArchiveError):
            decode_archive(bytes(damaged))


def test_every_other_length_is_refused() -> None:
    data = encode_archive("cluster-a", 100, 200, BLOCKS)
    for damaged in [data[:cut] for cut in range(len(data))] + [data + b"\0", data + data[-ROW_BYTES:]]:
        with pytest.raises(ArchiveError, match=r"ends after|the file holds"):
            decode_archive(damaged)


@pytest.mark.parametrize(
    "blocks",
    [
        [BLOCKS[0], block(offset=101)],
        [BLOCKS[0], block(first=1999, last=2999, offset=101)],
        [BLOCKS[0], block(first=2000, last=2999)],
        [block(first=2000, last=2999, offset=101), block(offset=102)],
        [block(offset=99)],
        [block(offset=200)],
        [block(first=-1)],
        [block(first=2000)],
        [block(last=MAX_PRODUCER_ID)],
        [block(broker_id=2**31)],
        [block(broker_id=-1)],
        [block(broker_epoch=-1)],
        [block(broker_epoch=2**63)],
        [block(broker_id=-2, broker_epoch=-2)],
        [block(timestamp_ms=2**63)],
    ],
)
def test_rows_that_break_the_promise_are_refused(blocks: list[AllocatedBlock]) -> None:
    with pytest.raises(ArchiveError):
        encode_archive("cluster-a", 100, 200, blocks)


def test_block_that_starts_right_above_the_one_before_is_fine() -> None:
    encode_archive("cluster-a", 100, 102, [BLOCKS[0], block(first=2000, last=2999, offset=101)])
    encode_archive("cluster-a", 0, 1, [block(first=MAX_PRODUCER_ID - 1, last=MAX_PRODUCER_ID - 1, offset=0)])


@pytest.mark.parametrize(
    "changes",
    [
        {"from_offset": 200},
        {"from_offset": -1},
        {"rows": 101},
        {"rows": -1},
        {"rows": 0},
        {"first_id": -1},
        {"last_id": 999},
        {"first_id": -2, "last_id": -2},
    ],
)
def test_impossible_header_is_refused(changes: dict[str, int]) -> None:
    header = ArchiveHeader("cluster-a", 100, 200, 2, 1000, 5000, 0)
    assert decode_header(encode_header(header)) == header
    with pytest.raises(ArchiveError):
        encode_header(msgspec.structs.replace(header, **changes))


def test_rows_are_bounded() -> None:
    with pytest.raises(ArchiveError, match="do not fit into one file"):
        encode_header(ArchiveHeader("c", 0, 2**40, MAX_ARCHIVE_ROWS + 1, 0, 2**50, 0))


@pytest.mark.parametrize("changes", [{"first_id": 1}, {"last_id": 6000}, {"rows": 1}])
def test_header_that_contradicts_its_rows_is_refused(changes: dict[str, int]) -> None:
    data = encode_archive("cluster-a", 100, 200, BLOCKS)
    header = msgspec.structs.replace(decode_header(data), **changes)
    with pytest.raises(ArchiveError, match=r"the header names|the file holds"):
        decode_archive(encode_header(header) + data[HEADER_BYTES:])


def test_reserved_bytes_of_a_row_are_zero() -> None:
    row = encode_archive("cluster-a", 100, 200, BLOCKS)[HEADER_BYTES : HEADER_BYTES + ROW_BYTES]
    with pytest.raises(ArchiveError, match="reserved"):
        decode_row(row[:-1] + b"\1")
    with pytest.raises(ArchiveError, match="takes 48 bytes"):
        decode_row(row[:-1])
