from __future__ import annotations

import pytest

from pidkeeper.controller.raft.messages import Entry, HardState
from pidkeeper.controller.storage import frames
from pidkeeper.controller.storage.dump import DumpedDamage, DumpedFrame, dump_log
from pidkeeper.protocol.records import LeaderChangeRecord, encode_batch
from tests.support.log_builder import WAL, entries, hard_state, new_disk, open_log, segments
from tests.support.memory_files import MemoryFiles


def dumped(files: MemoryFiles) -> tuple[list[DumpedFrame], list[DumpedDamage]]:
    items = list(dump_log(files, WAL))
    found = [item for item in items if isinstance(item, DumpedFrame)]
    damage = [item for item in items if isinstance(item, DumpedDamage)]
    assert items == [*found, *damage]
    return found, damage


def test_frames_come_decoded_and_in_order() -> None:
    files = new_disk()
    log, _ = open_log(files)
    record = LeaderChangeRecord(2)
    log.append([Entry(3, 1, encode_batch([record])), Entry(3, 2, b"junk"), Entry(3, 3, b"")], HardState(3, 2))
    log.close()
    calls = len(files.calls)
    found, damage = dumped(files)
    assert [frame.type for frame in found] == [
        "hard state",
        "base",
        "hard state",
        "entry",
        "entry",
        "entry",
        "close",
    ]
    assert found[0].detail == "vote None, recovering"
    assert found[2].detail == "vote 2"
    assert found[3].records == [record]
    assert (found[4].records, found[5].records) == ([], [])
    assert "malformed record batch" in found[4].detail
    assert [frame.offset for frame in found] == sorted(frame.offset for frame in found)
    assert (found[3].term, found[3].index, found[3].segment) == (3, 1, segments(files)[0])
    assert damage == []
    assert len(files.calls) == calls


def test_a_hard_state_that_is_none_is_shown_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a damaged or newer build: its checksum is right, and reading goes on behind it."""
    files = new_disk()
    log, _ = open_log(files)
    monkeypatch.setattr(frames, "hard_state_frame", lambda state: frames.Frame(frames.HARD_STATE, state.term, 0, b"?"))
    log.append(entries(1, 1), hard_state(3))
    log.close()
    found, damage = dumped(files)
    odd = next(frame for frame in found if frame.term == 3)
    assert odd.detail == "a hard state of 1 bytes where 5 were due"
    assert ([frame.type for frame in found[-2:]], damage) == (["entry", "close"], [])


def test_torn_end_comes_last() -> None:
    files = new_disk()
    log, _ = open_log(files)
    log.append(entries(1, 2), hard_state())
    end = log._position
    log.append(entries(3, 3), None)
    (name,) = segments(files)
    content = files.read_bytes(WAL / name)
    files.replace_content(WAL / name, content[: end + 30].ljust(len(content), b"\0"))
    found, damage = dumped(files)
    assert found[-1].index == 2
    assert (damage[0].segment, damage[0].offset, damage[0].index, damage[0].torn) == (name, end, 3, True)


def test_corruption_comes_last_and_nothing_after_it() -> None:
    files = new_disk()
    log, _ = open_log(files)
    log.append(entries(1, 1), hard_state())
    end = log._position
    log.append(entries(2, 2), None)
    log.append(entries(3, 3), None)
    (name,) = segments(files)
    content = bytearray(files.read_bytes(WAL / name))
    content[end + 60] ^= 1
    files.replace_content(WAL / name, bytes(content))
    found, damage = dumped(files)
    assert found[-1].index == 1
    assert len(damage) == 1
    assert (damage[0].index, damage[0].torn) == (2, False)


def test_empty_directory_has_no_frames() -> None:
    assert dumped(new_disk()) == ([], [])
