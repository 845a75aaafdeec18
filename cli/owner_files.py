"""Who has or had a producer ID, from the files of one member that need not run. Changes nothing.

What is told is as of its newest whole snapshot: the log behind that is not looked at.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import asdict

from pidkeeper.cli.offline import found_snapshots
from pidkeeper.controller.node.ownerless import Gaps, why_ownerless
from pidkeeper.controller.storage.owner_archive import SUFFIX
from pidkeeper.disk.files import OsFiles
from pidkeeper.protocol.messages import AllocatedBlock, ProducerIdOwner, TransactionalOwner
from pidkeeper.snapshots.archive_format import ROW_BYTES, ArchiveError, ArchiveHeader, decode_row, split_archive
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.owner_format import OWNER_ROW_BYTES, Owner, decode_place, split_owners
from pidkeeper.snapshots.snapshot_format import SnapshotError, decode_snapshot


def owner_in_files(directory: Path, producer_id: int) -> ProducerIdOwner | None:
    """The block with the ID in a member's data directory, and the transactional id that has or had the ID.

    One file is in memory at a time. Raises ArchiveError and SnapshotError naming a damaged file, OSError.
    """
    archive = directory / "archive"
    block = next((one for data in _files(archive, ".arc") if (one := _block_in(data, producer_id))), None)
    if block is None:
        return None
    image = _newest(directory)
    known, free = None, False
    if image is not None:
        free = any(own.first <= producer_id <= own.last for own in image.own_ids)
        for record in image.transactions:
            if producer_id in {record.producer_id, record.last_producer_id}:
                known = TransactionalOwner(record.transactional_id)
    owner = next((row for data in _files(archive, SUFFIX) if (row := _owner_in(data, producer_id))), None)
    if owner is not None:
        known = TransactionalOwner(owner.transactional_id, owner.offset, owner.timestamp_ms)
    return ProducerIdOwner(**asdict(block), transactional=known, free=free)


def why_ownerless_in_files(directory: Path, producer_id: int) -> str:
    """Why no block in a member's archive holds the ID. Raises as `owner_in_files`."""
    image = _newest(directory)
    if image is None:
        return f"producer ID {producer_id} is in no archive of {directory}, which has no whole snapshot: ask the quorum"
    headers, following = [], None
    for file in _files(directory / "archive", ".arc"):
        header, rows, position = _placed(file, producer_id)
        headers.append(header)
        if position < header.rows:
            first = _row(rows, position).first
            following = first if following is None else min(first, following)
    known = Gaps(
        image.next_producer_id,
        image.succession,
        image.migration,
        jumps_from=image.next_producer_id,
        complete_from=0 if _covers(headers, image.next_offset) else image.next_producer_id,
    )
    return f"as of snapshot {image.index}: {why_ownerless(producer_id, known, following)}"


def _covers(headers: list[ArchiveHeader], next_offset: int) -> bool:
    """Whether archives leave out no record of the log below `next_offset`."""
    covered = 0
    for header in sorted(headers, key=lambda header: header.from_offset):
        if header.from_offset <= covered:
            covered = max(covered, header.to_offset)
    return covered >= next_offset


def _files(archive: Path, suffix: str) -> Iterator[tuple[str, bytes]]:
    files = OsFiles()
    for name in files.listdir(archive):
        if name.endswith(suffix):
            yield name, files.read_bytes(archive / name)


def _block_in(file: tuple[str, bytes], producer_id: int) -> AllocatedBlock | None:
    _, rows, position = _placed(file, producer_id)
    block = _row(rows, position - 1) if position > 0 else None
    return block if block is not None and block.last >= producer_id else None


def _placed(file: tuple[str, bytes], producer_id: int) -> tuple[ArchiveHeader, bytes, int]:
    """Header and rows of an archive, and how many rows begin at or below the ID. Raises ArchiveError."""
    name, data = file
    try:
        header, rows = split_archive(data)
        numbers = range(len(rows) // ROW_BYTES)
        return header, rows, bisect.bisect_right(numbers, producer_id, key=lambda number: _row(rows, number).first)
    except ArchiveError as error:
        raise ArchiveError(f"{name}: {error}") from error


def _owner_in(file: tuple[str, bytes], producer_id: int) -> Owner | None:
    name, data = file
    try:
        _, rows, names = split_owners(data)
        places = range(len(rows) // OWNER_ROW_BYTES)
        number = bisect.bisect_left(
            places, producer_id, key=lambda at: decode_place(_cut(rows, at, OWNER_ROW_BYTES)).producer_id
        )
        if number == len(places):
            return None
        place = decode_place(_cut(rows, number, OWNER_ROW_BYTES))
        owner = place.owner(names[place.name_at : place.name_at + place.name_bytes])
    except ArchiveError as error:
        raise ArchiveError(f"{name}: {error}") from error
    return owner if owner.producer_id == producer_id else None


def _row(rows: bytes, number: int) -> AllocatedBlock:
    return decode_row(_cut(rows, number, ROW_BYTES))


def _cut(rows: bytes, number: int, size: int) -> bytes:
    return rows[number * size : (number + 1) * size]


def _newest(directory: Path) -> StateImage | None:
    """The state of the newest snapshot that is whole."""
    for found in reversed(found_snapshots(directory / "snapshots")):
        try:
            return decode_snapshot(OsFiles().read_bytes(directory / "snapshots" / found.name), found.name, None)
        except SnapshotError:
            continue
    return None
