from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable

import msgspec
import pytest

from pidkeeper.controller.raft.messages import HardState
from pidkeeper.controller.storage import frames
from pidkeeper.controller.storage.errors import LogCorruption
from pidkeeper.controller.storage.frames import Frame
from pidkeeper.controller.storage.recovery import recover
from pidkeeper.controller.storage.segment import HEADER_BYTES, SegmentHeader, decode_segment_header
from pidkeeper.controller.storage.wal import WriteAheadLog
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.support.log_builder import META, SMALL, WAL, entries, hard_state, new_disk, open_log, segments
from tests.support.memory_files import MemoryFiles


def small_log() -> tuple[MemoryFiles, str, list[int]]:
    """One segment with a head and three batches (entry 1; entries 2-3; entry 4), and the offsets where they start."""
    files = new_disk()
    log, _ = open_log(files)
    starts = [HEADER_BYTES]
    for batch in (entries(1, 1), entries(2, 3), entries(4, 4)):
        starts.append(log._position)
        log.append(batch, hard_state() if batch[0].index == 1 else None)
    starts.append(log._position)
    (name,) = segments(files)
    return files.cut_power(), name, starts


def rolled_log(count: int = 40) -> MemoryFiles:
    """Several segments of one entry a batch."""
    files = new_disk()
    log, _ = open_log(files)
    log.append([], hard_state())
    for entry in entries(1, count):
        log.append([entry], None)
    return files.cut_power()


def test_every_cut_of_the_last_batch_opens_with_all_before_it() -> None:
    files, name, starts = small_log()
    content = files.read_bytes(WAL / name)
    for cut in range(starts[3], starts[4]):
        for damaged in (content[:cut], content[:cut].ljust(len(content), b"\0")):
            disk = files.copy()
            disk.replace_content(WAL / name, damaged)
            _, recovered = open_log(disk)
            lost = len(damaged) < len(content) or content[starts[3] : cut].strip(b"\0") != b""
            whole = damaged[starts[3] : starts[4]] == content[starts[3] : starts[4]] and len(damaged) == len(content)
            assert recovered.entries == entries(1, 4 if whole else 3), cut
            if whole:
                continue
            assert (recovered.truncated is not None) == lost, cut
            assert recovered.hard_state == hard_state(recovering=lost)
            if recovered.truncated is not None:
                copy = disk.read_bytes(WAL / recovered.truncated.copy)
                assert copy == damaged.rstrip(b"\0")
                assert recovered.truncated.size == len(damaged[starts[3] :].rstrip(b"\0"))
                assert (recovered.truncated.segment, recovered.truncated.offset) == (name, starts[3])
                _, again = open_log(disk.cut_power())
                assert again.truncated is None
                assert again.hard_state == hard_state(recovering=True)
                assert again.entries == entries(1, 3)


def test_every_flipped_bit_before_the_last_batch_is_refused_with_its_place() -> None:
    files, name, starts = small_log()
    content = files.read_bytes(WAL / name)
    first_in_doubt = {starts[0]: 1, starts[1]: 1, starts[2]: 2}
    for position in range(starts[3]):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[position] ^= 1 << bit
            disk = files.copy()
            disk.replace_content(WAL / name, bytes(damaged))
            with pytest.raises(LogCorruption) as raised:
                open_log(disk)
            error = raised.value
            batch = max([start for start in starts if start <= position], default=0)
            # Padding is checked too, so no byte before the last batch is dead.
            assert error.segment == name
            assert batch <= error.offset <= max(position, batch), (position, error)
            assert error.index == first_in_doubt.get(batch, 1)
            assert disk.calls == []


def test_every_flipped_bit_of_the_last_batch_counts_as_torn() -> None:
    files, name, starts = small_log()
    content = files.read_bytes(WAL / name)
    for position in range(starts[3], starts[4]):
        damaged = bytearray(content)
        damaged[position] ^= 0x10
        disk = files.copy()
        disk.replace_content(WAL / name, bytes(damaged))
        _, recovered = open_log(disk)
        assert recovered.truncated is not None
        assert recovered.entries == entries(1, 3)
        assert recovered.hard_state.recovering


def test_every_flipped_bit_of_an_older_segment_is_refused_or_in_dead_space() -> None:
    files = rolled_log(15)
    names = segments(files)
    assert len(names) == 3
    older = names[1]
    content = files.read_bytes(WAL / older)
    used = recover(files, WAL, META).reader.segments[1].end
    assert used < len(content)
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1 << (position % 8)
        disk = files.copy()
        disk.replace_content(WAL / older, bytes(damaged))
        if position >= used:
            assert open_log(disk)[1].entries == entries(1, 15)
            continue
        with pytest.raises(LogCorruption) as raised:
            open_log(disk)
        assert raised.value.segment == older
        assert raised.value.index > 1
        assert raised.value.offset <= position
        assert position < HEADER_BYTES or "was written later" in raised.value.reason


@pytest.mark.parametrize("keep", list(itertools.product([False, True], repeat=4)))
def test_any_lost_sectors_of_the_last_batch_are_a_torn_write(keep: tuple[bool, ...]) -> None:
    files = new_disk()
    log, _ = open_log(files, 4096)
    log.append(entries(1, 1), hard_state())
    start = log._position
    log.append(entries(2, 40, size=12), None)
    end = log._position
    (name,) = segments(files)
    content = bytearray(files.read_bytes(WAL / name))
    sectors = [max(start, at) for at in range(start - start % 512, end, 512)][:4]
    for kept, sector in zip(keep, sectors, strict=True):
        if not kept:
            stop = min(sector - sector % 512 + 512, end)
            content[sector:stop] = bytes(stop - sector)
    disk = files.copy()
    disk.replace_content(WAL / name, bytes(content))
    _, recovered = open_log(disk, 4096)
    assert recovered.entries == entries(1, 1) + (entries(2, 40, size=12) if all(keep) else [])
    assert recovered.hard_state.recovering == (recovered.truncated is not None) == (any(keep) and not all(keep))


def test_lost_earlier_batch_is_refused_though_only_zeroes_are_left_of_it() -> None:
    files, name, starts = small_log()
    content = bytearray(files.read_bytes(WAL / name))
    content[starts[2] : starts[3]] = bytes(starts[3] - starts[2])
    files.replace_content(WAL / name, bytes(content))
    with pytest.raises(LogCorruption, match="no batch head") as raised:
        open_log(files)
    assert (raised.value.offset, raised.value.index) == (starts[2], 2)


def test_misdirected_batch_is_refused() -> None:
    files, name, starts = small_log()
    content = bytearray(files.read_bytes(WAL / name))
    batch = content[starts[2] : starts[3]]
    content[starts[1] : starts[1] + len(batch)] = batch
    files.replace_content(WAL / name, bytes(content))
    with pytest.raises(LogCorruption):
        open_log(files)


def test_entry_that_looks_like_a_batch_head_is_no_proof_of_a_later_batch() -> None:
    files = new_disk()
    log, _ = open_log(files)
    log.append(entries(1, 1), hard_state())
    (name,) = segments(files)
    head = files.read_bytes(WAL / name)[HEADER_BYTES : HEADER_BYTES + 24]
    position = log._position
    data = (head + b".") * 8
    log.append([msgspec.structs.replace(entries(2, 2)[0], data=data)], None)
    content = bytearray(files.read_bytes(WAL / name))
    content[position + 3] ^= 1
    files.replace_content(WAL / name, bytes(content))
    _, recovered = open_log(files)
    assert recovered.truncated is not None
    assert recovered.entries == entries(1, 1)


def _remove(name: str) -> Callable[[MemoryFiles, list[str]], None]:
    def damage(files: MemoryFiles, names: list[str]) -> None:
        files.unlink(WAL / names[int(name)])

    return damage


def _lost_end_of_older(files: MemoryFiles, names: list[str]) -> None:
    """The last batch of the second segment never reached the disk."""
    content = files.read_bytes(WAL / names[1])
    head = content.rfind(b"PIDBATCH")
    files.replace_content(WAL / names[1], content[:head].ljust(len(content), b"\0"))


def _swap(files: MemoryFiles, names: list[str]) -> None:
    one, other = files.read_bytes(WAL / names[1]), files.read_bytes(WAL / names[2])
    files.replace_content(WAL / names[1], other)
    files.replace_content(WAL / names[2], one)


def _cut_older(files: MemoryFiles, names: list[str]) -> None:
    files.replace_content(WAL / names[1], files.read_bytes(WAL / names[1])[:600])


def _empty_older(files: MemoryFiles, names: list[str]) -> None:
    files.replace_content(WAL / names[1], b"")


def _blank_last(files: MemoryFiles, names: list[str]) -> None:
    files.replace_content(WAL / names[-1], bytes(SMALL))


def _headless_last(files: MemoryFiles, names: list[str]) -> None:
    content = files.read_bytes(WAL / names[-1])
    files.replace_content(WAL / names[-1], content[:HEADER_BYTES].ljust(len(content), b"\0"))


def _torn_head_of_last(files: MemoryFiles, names: list[str]) -> None:
    content = files.read_bytes(WAL / names[-1])
    files.replace_content(WAL / names[-1], content[: HEADER_BYTES + 30].ljust(len(content), b"\0"))


def _stray(files: MemoryFiles, names: list[str]) -> None:
    files.close(files.open(WAL / "notes.wal", create=True))


@pytest.mark.parametrize(
    ("damage", "victim", "reason"),
    [
        (_remove("1"), 0, "batches are missing"),
        (_lost_end_of_older, 1, "batches are missing"),
        (_swap, 1, "by its header this is"),
        (_cut_older, 1, "the file ends within batch"),
        (_empty_older, 1, "the file ends after 0 of"),
        (_blank_last, -1, "does not start with"),
        (_headless_last, -1, "made with is missing"),
        (_torn_head_of_last, -1, "in the batch that the segment was made with"),
        (_stray, None, "the file ends after 0 of"),
    ],
)
def test_anything_but_a_torn_last_batch_is_refused(
    damage: Callable[[MemoryFiles, list[str]], None], victim: int | None, reason: str
) -> None:
    files = rolled_log()
    names = segments(files)
    damage(files, names)
    before = len(files.calls)
    with pytest.raises(
        LogCorruption, match=r"segment .*, byte offset \d+, log index \d+: .*restore this one"
    ) as raised:
        open_log(files)
    assert reason in raised.value.reason
    assert raised.value.segment == ("notes.wal" if victim is None else names[victim])
    assert len(files.calls) == before


def test_log_of_another_cluster_or_directory_is_refused() -> None:
    files, _, _ = small_log()
    other_cluster = msgspec.structs.replace(META, cluster_id="cluster-b")
    other_disk = msgspec.structs.replace(META, directory_id=uuid.UUID(int=7))
    with pytest.raises(LogCorruption, match="cluster cluster-a, not for cluster-b"):
        WriteAheadLog.open(files, WAL, other_cluster)
    with pytest.raises(LogCorruption, match=f"{META.directory_id}, not for {other_disk.directory_id}"):
        WriteAheadLog.open(files, WAL, other_disk)
    assert recover(files, WAL, None).log.entries == entries(1, 4)


def test_unknown_versions_are_refused_by_name() -> None:
    files, name, starts = small_log()
    content = files.read_bytes(WAL / name)
    header = decode_segment_header(content)
    position, sequence = starts[4], 5
    chain = recover(files, WAL, META).reader.chain
    batch, _ = frames.encode_batch([Frame(77, 0, 0)], sequence, position, header.seed, chain)
    files.replace_content(WAL / name, content[:position] + batch + content[position + len(batch) :])
    with pytest.raises(LogCorruption, match="unknown frame type 77: upgrade"):
        open_log(files)


def _crafted(frames_of_batch: list[Frame], sequence: int = 2) -> MemoryFiles:
    """A log whose checksums are right and whose second batch holds these frames."""
    header = SegmentHeader(META.cluster_id, META.directory_id, 1, 1, 1, 0, SMALL)
    head = [frames.hard_state_frame(HardState()), Frame(frames.BASE, 0, 0)]
    one, chain = frames.encode_batch(head, 1, HEADER_BYTES, header.seed, 0)
    two, _ = frames.encode_batch(frames_of_batch, sequence, HEADER_BYTES + len(one), header.seed, chain)
    files = new_disk()
    files.close(files.open(WAL / header.name, create=True))
    files.replace_content(WAL / header.name, (header.encode() + one + two).ljust(SMALL, b"\0"))
    return files


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([Frame(frames.ENTRY, 1, 2)], "gap"),
        ([Frame(frames.ENTRY, 1, 1), Frame(frames.ENTRY, 1, 3)], "gap"),
        ([frames.hard_state_frame(HardState(commit=1))], "ends at 0, below the recorded commit index 1"),
        ([Frame(frames.BASE, 1, 3)], "ends at 0, below the recorded snapshot 3"),
        ([Frame(frames.RESTART, 1, 3), Frame(frames.ENTRY, 1, 3)], "below the snapshot"),
        ([Frame(frames.HARD_STATE, 1, 0, b"")], "hard state of 0 bytes"),
    ],
)
def test_contradictions_behind_good_checksums_are_refused(content: list[Frame], message: str) -> None:
    with pytest.raises(LogCorruption, match=message):
        open_log(_crafted(content))


def test_batch_out_of_turn_is_refused_even_at_the_end() -> None:
    with pytest.raises(LogCorruption, match="this is batch 4 where batch 2 was due"):
        open_log(_crafted([frames.hard_state_frame(HardState())], sequence=4))


def test_segment_that_starts_elsewhere_than_its_header_says_is_refused() -> None:
    header = SegmentHeader(META.cluster_id, META.directory_id, 1, 1, 1, 0, SMALL)
    head = [frames.hard_state_frame(HardState()), Frame(frames.RESTART, 1, 3)]
    batch, _ = frames.encode_batch(head, 1, HEADER_BYTES, header.seed, 0)
    files = new_disk()
    files.close(files.open(WAL / header.name, create=True))
    files.replace_content(WAL / header.name, (header.encode() + batch).ljust(SMALL, b"\0"))
    with pytest.raises(LogCorruption, match="its entries start at log index 1"):
        open_log(files)


def test_restart_after_crash_before_the_old_segments_went() -> None:
    files = rolled_log()
    log, _ = open_log(files)
    calls = len(files.calls)

    def refuse(kind: str, path: object) -> None:
        if kind == "unlink":
            raise OSError

    files.before = refuse
    with pytest.raises(Exception, match="has to exit"):
        log.restart_at(SnapshotId(90, 5), HardState(term=5, commit=90))
    assert len(files.calls) > calls
    _, recovered = open_log(files.cut_power())
    assert (recovered.snapshot, recovered.entries) == (SnapshotId(90, 5), [])
