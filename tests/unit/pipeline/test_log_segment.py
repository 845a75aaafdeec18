"""Damage of every sort: it is named with its byte, and the good batches around it are read."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator

import pytest

import pidkeeper.pipeline.formats.log_segment as log_segment
from pidkeeper.pipeline.formats.log_segment import CHUNK_BATCHES, CHUNK_BYTES, ByteRange, SegmentReader
from pidkeeper.pipeline.formats.record_batch import HEADER_BYTES, BatchHeader, Chunk
from tests.support.segment_builder import batch, marker, old_message, write_many

BASE = 1000
PIECES = [
    batch(BASE, [b"first", b"second"], producer=(7, 0, 0), transactional=True),
    batch(BASE + 2, [b"third"], producer=(8, 3, 5), compression=4),
    marker(BASE + 3, (7, 0), commit=True, coordinator_epoch=4),
    batch(BASE + 4, [b"last", b"\x02" * 40]),
]
SEGMENT = b"".join(PIECES)
STARTS = [sum(map(len, PIECES[:number])) for number in range(len(PIECES))]


class CountingFile(io.BytesIO):
    """Remembers the largest read."""

    largest = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.largest = max(self.largest, size or 0)
        return super().read(size)


def chunks(data: bytes, base_offset: int | None = BASE, part: ByteRange | None = None) -> list[Chunk]:
    return list(SegmentReader(io.BytesIO(data), len(data), base_offset=base_offset, part=part).chunks())


def headers(found: list[Chunk]) -> list[BatchHeader]:
    return [each for chunk in found for each in chunk.batches()]


def offsets(found: list[Chunk]) -> list[int]:
    return [each.base_offset for each in headers(found)]


def problems(found: list[Chunk]) -> list[tuple[str, int]]:
    return [(each.kind, each.position) for chunk in found for each in chunk.problems]


def flipped(at: int, mask: int, data: bytes = SEGMENT) -> bytes:
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def flips() -> Iterator[tuple[int, int, int, int]]:
    """Batch, byte in it, byte in the segment, mask: one for each bit of the segment."""
    for number, (start, piece) in enumerate(zip(STARTS, PIECES, strict=True)):
        for byte in range(len(piece)):
            for bit in range(8):
                yield number, byte, start + byte, 1 << bit


def test_every_flipped_bit_under_the_crc_costs_one_batch_and_is_named() -> None:
    for number, byte, at, mask in flips():
        if byte >= 17:
            found = chunks(flipped(at, mask))
            assert problems(found) == [("bad_crc", STARTS[number])], f"bit {mask:#x} of byte {at}"
            assert [each.position for each in headers(found)] == [start for start in STARTS if start != STARTS[number]]


def test_a_flipped_leader_epoch_cannot_be_noticed_and_changes_nothing_else() -> None:
    good = headers(chunks(SEGMENT))
    for number, byte, at, mask in flips():
        if 12 <= byte < 16:
            found = chunks(flipped(at, mask))
            expected = list(good)
            (seen,) = [each for each in headers(found) if each.position == STARTS[number]]
            assert seen.partition_leader_epoch != 0 and not problems(found)
            expected[number] = seen
            assert headers(found) == expected
            assert [each.producer_id for each in headers(found)] == [each.producer_id for each in good]


def test_a_flipped_base_offset_is_read_and_named_unless_it_could_be_a_gap_at_the_end() -> None:
    for number, byte, at, mask in flips():
        if byte < 8:
            found = chunks(flipped(at, mask))
            assert len(headers(found)) == len(PIECES)
            seen = headers(found)[number].base_offset
            upward_in_the_last = number == len(PIECES) - 1 and BASE + 4 < seen < BASE + (1 << 31) - 1
            kinds = {kind for kind, _ in problems(found)}
            assert kinds == (set() if upward_in_the_last else {"offset_order"}), f"bit {mask:#x} of byte {at}: {seen}"


def test_a_flipped_length_or_magic_is_named_and_hides_no_other_batch() -> None:
    for number, byte, at, mask in flips():
        if 8 <= byte < 12 or byte == 16:
            found = chunks(flipped(at, mask))
            assert problems(found), f"bit {mask:#x} of byte {at}"
            assert all(position >= STARTS[number] for _, position in problems(found))
            seen = {each.position for each in headers(found)}
            assert seen == set(STARTS) - {STARTS[number]}, f"bit {mask:#x} of byte {at}: {problems(found)}"


def test_a_segment_cut_anywhere_gives_the_whole_batches_and_names_the_torn_one() -> None:
    for size in range(1, len(SEGMENT)):
        found = chunks(SEGMENT[:size])
        whole = [start for start, piece in zip(STARTS, PIECES, strict=True) if start + len(piece) <= size]
        assert [each.position for each in headers(found)] == whole
        end = sum(len(piece) for piece in PIECES[: len(whole)])
        if end == size:
            assert not problems(found)
        elif not any(SEGMENT[end:size]):
            assert problems(found) == [("zero_tail", end)]
        else:
            kind = "foreign" if size < 17 else "torn"
            assert problems(found) == [(kind, end)], f"{size} bytes"


@pytest.mark.parametrize("zeros", [1, 16, 61, 5000])
def test_zeros_to_the_end_are_a_tail_that_was_never_written(zeros: int) -> None:
    found = chunks(SEGMENT + bytes(zeros))
    assert (problems(found), len(headers(found))) == ([("zero_tail", len(SEGMENT))], len(PIECES))


def test_zeros_between_batches_are_a_lost_boundary() -> None:
    found = chunks(PIECES[0] + bytes(100) + PIECES[1])
    assert (problems(found), offsets(found)) == ([("lost_boundary", len(PIECES[0]))], [BASE, BASE + 2])


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_are_named_once_and_batches_after_them_are_read(magic: int) -> None:
    old = b"".join(old_message(magic, BASE + number) for number in range(3))
    newer = batch(BASE + 3)
    (chunk,) = chunks(old + newer)
    assert [(each.kind, each.position) for each in chunk.problems] == [("old_magic", 0)]
    assert f"3 messages up to byte {len(old)}" in chunk.problems[0].detail
    assert offsets([chunk]) == [BASE + 3]


def test_an_empty_file_has_one_problem_and_no_batch() -> None:
    found = chunks(b"")
    assert (problems(found), headers(found)) == ([("empty", 0)], [])


@pytest.mark.parametrize(
    "data",
    [b"x", b"some text that is no segment at all\n" * 10, random.Random(1).randbytes(100_000), b"\x02" * 300],
    ids=["one byte", "text", "noise", "many twos"],
)
def test_a_foreign_file_has_one_problem_and_no_batch(data: bytes) -> None:
    found = chunks(data)
    assert (problems(found), headers(found)) == ([("foreign", 0)], [])


def test_a_segment_under_a_name_with_another_base_offset_is_out_of_order_and_read() -> None:
    found = chunks(SEGMENT, base_offset=BASE + 1)
    assert problems(found) == [("offset_order", 0)]
    assert offsets(found) == [BASE, BASE + 2, BASE + 3, BASE + 4]
    assert not problems(chunks(SEGMENT, base_offset=None))


def test_a_batch_inside_a_record_is_no_batch_of_the_segment() -> None:
    inner = batch(BASE + 5)
    assert offsets(chunks(batch(BASE, [inner]) + batch(BASE + 1))) == [BASE, BASE + 1]


def test_a_batch_inside_a_damaged_record_is_skipped_with_it() -> None:
    outer = batch(BASE, [batch(BASE + 5), b"more"])
    assert problems(chunks(flipped(len(outer) - 3, 1, outer) + batch(BASE + 1))) == [("bad_crc", 0)]
    assert offsets(chunks(flipped(len(outer) - 3, 1, outer) + batch(BASE + 1))) == [BASE + 1]
    assert problems(chunks(flipped(len(outer) - 3, 1, outer))) == [("bad_crc", 0)]


def test_a_length_that_is_too_short_skips_so_much_and_searches_from_there() -> None:
    shorter = flipped(11, 8)
    assert shorter[11] < SEGMENT[11]
    assert problems(chunks(shorter)) == [("bad_crc", 0), ("lost_boundary", STARTS[1] - 8)]
    assert offsets(chunks(shorter)) == [BASE + 2, BASE + 3, BASE + 4]


def test_the_search_believes_in_no_batch_of_another_segment() -> None:
    data = flipped(16, 0x10, PIECES[0]) + batch(BASE - 1) + PIECES[1]
    found = chunks(data)
    assert (problems(found), offsets(found)) == ([("lost_boundary", 0)], [BASE + 2])


def test_a_batch_behind_old_messages_must_follow_them() -> None:
    data = old_message(1, BASE) + old_message(1, BASE + 4) + batch(BASE + 4)
    assert problems(chunks(data)) == [("old_magic", 0), ("offset_order", len(data) - len(batch(0)))]


def test_a_batch_larger_than_a_chunk_is_read_in_pieces() -> None:
    large = batch(BASE + 1, payload=b"\x02" * (3 * CHUNK_BYTES), record_count=1)
    data = batch(BASE) + large + batch(BASE + 2)
    file = CountingFile(data)
    found = list(SegmentReader(file, len(data), base_offset=BASE).chunks())
    assert (problems(found), offsets(found)) == ([], [BASE, BASE + 1, BASE + 2])
    assert file.largest <= CHUNK_BYTES
    broken = flipped(len(data) - 500, 1, data)
    assert problems(chunks(broken)) == [("bad_crc", len(batch(BASE)))]
    assert offsets(chunks(broken)) == [BASE, BASE + 2]


def test_a_control_batch_larger_than_a_chunk_gives_its_marker() -> None:
    records = marker(0, (7, 0), commit=True, coordinator_epoch=4)[HEADER_BYTES:]
    large = batch(BASE, control=True, payload=records + bytes(CHUNK_BYTES), record_count=1)
    (header,) = headers(chunks(large))
    assert (header.marker_type, header.coordinator_epoch) == (1, 4)
    tail = batch(BASE + 2)
    assert problems(chunks(large + tail + batch(BASE + 1))) == [("offset_order", len(large) + len(tail))]


def test_many_batches_come_in_bounded_chunks() -> None:
    file = io.BytesIO()
    size = write_many(file, 3 * CHUNK_BATCHES // 2, records=1, record_bytes=1)
    found = list(SegmentReader(file, size, base_offset=0).chunks())
    assert max(map(len, found)) <= CHUNK_BATCHES and len(found) == 2
    assert not problems(found)
    assert sum(map(len, found)) == 3 * CHUNK_BATCHES // 2
    assert list(found[1].column("base_offset"))[-1] == 3 * CHUNK_BATCHES // 2 - 1


def test_many_problems_come_in_bounded_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_segment, "CHUNK_PROBLEMS", 3)
    bad = [flipped(70, 1, batch(BASE + number, [b"some value"])) for number in range(10)]
    found = chunks(b"".join(bad))
    assert [len(chunk.problems) for chunk in found] == [3, 3, 3, 1]


def test_a_range_is_read_to_its_end_and_no_further() -> None:
    middle = ByteRange(STARTS[1], STARTS[3], BASE + 4)
    found = chunks(SEGMENT, part=middle)
    assert (problems(found), offsets(found)) == ([], [BASE + 2, BASE + 3])


def test_the_last_offset_of_a_range_stays_below_the_next_batch() -> None:
    assert not problems(chunks(SEGMENT, part=ByteRange(0, STARTS[1], BASE + 2)))
    assert problems(chunks(SEGMENT, part=ByteRange(0, STARTS[1], BASE + 1))) == [("offset_order", 0)]


def test_damage_at_the_end_of_a_range_is_not_taken_for_the_end_of_the_segment() -> None:
    part = ByteRange(0, STARTS[3], BASE + 4)
    longer = flipped(STARTS[2] + 10, 0x40)
    assert longer != SEGMENT
    assert problems(chunks(longer, part=part)) == [("lost_boundary", STARTS[2])]
    zeroed = SEGMENT[: STARTS[2]] + bytes(len(PIECES[2])) + PIECES[3]
    assert problems(chunks(zeroed, part=part)) == [("lost_boundary", STARTS[2])]
    jumping = flipped(STARTS[2] + 5, 0x40)
    assert problems(chunks(jumping, part=part)) == [("offset_order", STARTS[2])]


def test_a_file_that_shrinks_while_it_is_read_is_an_error() -> None:
    with pytest.raises(EOFError, match=f"ends at byte {len(SEGMENT)}"):
        list(SegmentReader(io.BytesIO(SEGMENT), len(SEGMENT) + HEADER_BYTES, base_offset=BASE).chunks())
