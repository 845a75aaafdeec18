"""Which transactional id was given which producer ID: found on disk, whole after every crash, damage told."""

from __future__ import annotations

import random
import struct
from pathlib import Path, PurePath

import google_crc32c
import pytest
from msgspec.structs import replace

from pidkeeper.controller.storage import owner_archive as module
from pidkeeper.controller.storage.owner_archive import MAX_SMALL_FILES, OwnerArchive
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.snapshots import owner_format
from pidkeeper.snapshots.owner_format import (
    OWNER_HEADER_BYTES,
    Owner,
    OwnerError,
    decode_owners,
    encode_owners,
    moved,
    split_owners,
)
from tests.support.memory_files import Keep, MemoryFiles, PowerCut, fail_at

PATH = PurePath("/data/archive")
GOLDEN = Path(__file__).parents[3] / "golden"


def given(first: int, count: int) -> list[Owner]:
    """At every second offset an ID, with a gap of two behind each; names of one to four bytes a character."""
    return [
        Owner(3 * number, 2 * number, 1000 + number, f"tx-{number}-" + "aé\N{GRINNING FACE}"[number % 3])
        for number in range(first, first + count)
    ]


def new_disk() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(PATH)
    return files


def opened(files: MemoryFiles) -> OwnerArchive:
    return OwnerArchive(files, PATH, "c")


def filled(archive: OwnerArchive, count: int, step: int = 1) -> None:
    for start in range(0, count, step):
        archive.append(given(start, step), 2 * start, 2 * (start + step))


def names(files: MemoryFiles) -> list[str]:
    return files.listdir(PATH)


def found(archive: OwnerArchive, count: int) -> list[Owner]:
    owners = [archive.find(producer_id) for producer_id in range(3 * count + 3)]
    assert all(owner is None for number, owner in enumerate(owners) if number % 3)
    return [owner for owner in owners if owner is not None]


def test_the_format_is_pinned() -> None:
    golden = (GOLDEN / "owners.bin").read_bytes()
    assert encode_owners("cluster-a", 5, 200, given(3, 4)) == golden
    assert decode_owners(golden) == given(3, 4)


def test_nothing_is_written_before_the_first_id() -> None:
    """A quorum that nobody uses for transactions stays as small as before."""
    files = new_disk()
    archive = opened(files)
    archive.append([], 0, 10)
    assert (names(files), archive.covered_to, archive.complete_from, archive.find(0)) == ([], 0, None, None)
    archive.append(given(6, 1), 10, 20)
    archive.append([], 20, 30)
    assert (archive.covered_to, archive.complete_from) == (30, 18)


@pytest.mark.parametrize("step", [1, 7, 50])
def test_every_id_is_found_and_nothing_between_them(step: int) -> None:
    files = new_disk()
    archive = opened(files)
    filled(archive, 350, step)
    assert len(names(files)) <= MAX_SMALL_FILES + 1
    for one in (archive, opened(files.cut_power())):
        assert found(one, 350) == given(0, 350)
        assert one.complete_from == 0


def test_what_is_covered_is_left_out() -> None:
    files = new_disk()
    archive = opened(files)
    archive.append(given(0, 4), 0, 8)
    archive.append(given(0, 6), 0, 12)
    archive.append(given(0, 6), 0, 12)
    assert found(archive, 6) == given(0, 6)
    assert len(names(files)) == 2


def test_a_hole_is_told_and_no_file_is_merged_over_it() -> None:
    files = new_disk()
    archive = opened(files)
    for start in range(0, 100, 2):
        archive.append(given(start + (start == 40), 2 - (start == 40)), 2 * start + (start == 40), 2 * start + 4)
    reopened = opened(files.cut_power())
    assert reopened.complete_from == 3 * 41
    assert found(reopened, 100) == [*given(0, 40), *given(41, 59)]


def test_files_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = OWNER_HEADER_BYTES + sum(owner.encoded_bytes for owner in given(0, 10))
    for target in (module, owner_format):
        monkeypatch.setattr(target, "MAX_OWNER_FILE_BYTES", limit)
    files = new_disk()
    archive = opened(files)
    archive.append(given(0, 95), 0, 190)
    filled(archive, 300)
    assert max(files.size(PATH / name) for name in names(files)) <= limit
    assert found(opened(files.cut_power()), 300) == given(0, 300)
    huge = [Owner(0, 0, 0, "x" * 249), *given(1, 9)]
    with pytest.raises(OwnerError, match="do not fit into one file"):
        encode_owners("c", 0, 100, huge * 1 + given(10, 9))


def _keep_some(seed: int) -> Keep:
    chance = random.Random(seed)
    return lambda kind, path: chance.random() < 0.5


def test_a_power_cut_during_append_and_merge_loses_nothing() -> None:
    whole = new_disk()
    archive = opened(whole)
    filled(archive, MAX_SMALL_FILES)
    before = len(whole.calls)
    archive.append(given(MAX_SMALL_FILES, 1), 2 * MAX_SMALL_FILES, 2 * MAX_SMALL_FILES + 2)
    assert len(names(whole)) == 1
    for call in range(before, len(whole.calls)):
        for keep in range(8):
            files = new_disk()
            files.before = fail_at(call, PowerCut())
            crashing = opened(files)
            with pytest.raises(PowerCut):
                filled(crashing, MAX_SMALL_FILES + 1)
            after = files.cut_power(_keep_some(keep))
            reopened = opened(after)
            count = reopened.covered_to // 2
            assert count in (MAX_SMALL_FILES, MAX_SMALL_FILES + 1)
            reopened.append(given(0, 40), 0, 80)
            assert found(opened(after.cut_power()), 40) == given(0, 40)


def test_every_flipped_bit_is_refused_at_open_and_when_it_is_read() -> None:
    data = encode_owners("c", 0, 20, given(0, 3))
    name = f"{0:020d}-{20:020d}.own"
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(OwnerError):
            decode_owners(bytes(damaged))
        files = new_disk()
        archive = opened(files)
        archive.append(given(0, 3), 0, 20)
        handle = files.open(PATH / name)
        files.pwrite(handle, bytes(damaged), 0)
        files.close(handle)
        with pytest.raises(OwnerError, match=r"file of owners .*Restore it from another member"):
            opened(files)
        for producer_id, owner in zip((0, 1, 3, 6), (given(0, 1)[0], None, *given(1, 2)), strict=True):
            try:
                answer = archive.find(producer_id)
            except OwnerError:
                continue
            assert answer == owner, "right, or an error"


def test_a_merge_names_the_file_that_decayed_since_it_was_opened() -> None:
    files = new_disk()
    archive = opened(files)
    filled(archive, MAX_SMALL_FILES)
    third = PATH / names(files)[2]
    files.replace_content(third, files.read_bytes(third)[:-1] + b"?")
    with pytest.raises(OwnerError, match=rf"file of owners {third} changed since it was opened .*the disk is failing"):
        archive.append(given(MAX_SMALL_FILES, 1), 2 * MAX_SMALL_FILES, 2 * MAX_SMALL_FILES + 2)
    assert len(names(files)) == MAX_SMALL_FILES + 1, "nothing is removed"


def sealed(header: bytes, body: bytes) -> bytes:
    """A file with good checksums."""
    header = header[:108] + struct.pack(">I", google_crc32c.value(body)) + header[112:116]
    return header + struct.pack(">I", google_crc32c.value(header)) + body


def test_a_file_that_no_member_lays_out_like_that_is_not_whole() -> None:
    data = encode_owners("c", 0, 20, given(0, 2))
    header, first, rest = data[:116], data[120:160], data[160:]
    assert decode_owners(sealed(header, first + rest)) == given(0, 2)
    places = len(given(0, 1)[0].transactional_id.encode())
    more = header[:100] + struct.pack(">q", len(rest) - 40 + places) + header[108:]
    behind = first[:24] + struct.pack(">I", len(rest) - 40) + first[28:]
    odd = [
        sealed(header[:10] + b"\1" + header[11:], first + rest),
        sealed(header[:115] + b"\1", first + rest),
        sealed(header, first[:30] + b"\1" + first[31:] + rest),
        sealed(header, first[:39] + b"\1" + rest),
        sealed(more, behind + rest + rest[40 : 40 + places]),
    ]
    for one in odd:
        with pytest.raises(OwnerError, match="not laid out"):
            decode_owners(one)


def test_a_name_beyond_every_file_is_not_merged() -> None:
    _, rows, _ = split_owners(encode_owners("c", 0, 20, given(0, 2)))
    far = rows[:24] + struct.pack(">I", 2**32 - 1) + rows[28:]
    with pytest.raises(OwnerError, match="is in no file"):
        moved(far, 1)
    with pytest.raises(OwnerError, match="is in no file"):
        moved(rows, owner_format.MAX_OWNER_FILE_BYTES)
    assert moved(moved(rows, 1000), -1000) == rows


WRONG = [
    (0, 10, [given(1, 1)[0], given(0, 1)[0]]),
    (0, 10, [given(1, 1)[0]] * 2),
    (0, 2, given(1, 1)),
    (3, 10, given(1, 1)),
    (0, 10, [replace(given(0, 1)[0], producer_id=MAX_PRODUCER_ID)]),
    (0, 10, [replace(given(0, 1)[0], transactional_id="")]),
    (0, 10, [replace(given(0, 1)[0], transactional_id="x" * 997)]),
    (5, 5, []),
]


@pytest.mark.parametrize(("start", "end", "owners"), WRONG)
def test_what_no_member_writes_is_refused(start: int, end: int, owners: list[Owner]) -> None:
    with pytest.raises(OwnerError):
        encode_owners("c", start, end, owners)


def test_a_history_that_contradicts_itself_is_refused() -> None:
    files = new_disk()
    archive = opened(files)
    archive.append(given(5, 2), 0, 20)
    with pytest.raises(OwnerError, match="the history contradicts itself"):
        archive.append([Owner(18, 25, 0, "again")], 20, 30)
    with pytest.raises(OwnerError, match="it is of cluster c, not of other"):
        OwnerArchive(files, PATH, "other")
