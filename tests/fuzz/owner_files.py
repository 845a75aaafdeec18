"""Damaged files of transactional owners: opened, searched and merged as a member does, and read as the commands do."""

from __future__ import annotations

import struct
from pathlib import PurePath
from typing import Final

import google_crc32c

from pidkeeper.cli import owner_files
from pidkeeper.controller.storage.owner_archive import SUFFIX, OwnerArchive
from pidkeeper.snapshots.archive_format import ArchiveError
from pidkeeper.snapshots.owner_format import (
    OWNER_ROW_BYTES,
    Owner,
    OwnerError,
    OwnerHeader,
    assembled,
    decode_owners,
    encode_owners,
    moved,
    split_owners,
)
from tests.fuzz.mutator import Parts
from tests.fuzz.storage_files import ReadOnlyFiles
from tests.fuzz.target import Target, Violation

ARCHIVE: Final = PurePath("/data/archive")
CLUSTER: Final = "cluster-a"
MAX_SEARCHES: Final = 8
"""Rows whose producer IDs are looked up in one input, with the IDs behind them."""

_BEFORE: Final = Owner(0, 0, 1_600_000_000_000, "before")

_U32: Final = struct.Struct(">I")
_ID: Final = struct.Struct(">q")
_COUNTS: Final = struct.Struct(">qq")
_PLACE: Final = struct.Struct(">IHxxI4x")
_KEY_BYTES: Final = 24
_COUNTS_AT: Final = 92
_CHECKSUM_AT: Final = 108


class OwnersTarget(Target):
    """The archive of owners opened over one file, its search, a merge, and the readers of `ids owner` and `verify`."""

    name = "owners"
    refusals = (OwnerError,)
    steps = 6000
    steps_per_byte = 60

    def __init__(self) -> None:
        files = [encode_owners(CLUSTER, 5, 200, _owners(count)) for count in (0, 1, 2, 7)]
        self.corpus: list[Parts] = [_split(data) for data in files]

    def assemble(self, parts: Parts) -> bytes:
        """The header up to its checksums, and each row with its name behind it.

        Most rows get the place of their name, its length and their checksum, and most headers the true counts; in the
        others these are left as they are, so that they lie under good checksums of the file.
        """
        rows, names = b"", b""
        for part in parts[1:]:
            row, name = part[:OWNER_ROW_BYTES].ljust(OWNER_ROW_BYTES, b"\0"), part[OWNER_ROW_BYTES:]
            if google_crc32c.value(part) % 4:
                row = row[:_KEY_BYTES] + _place(row, len(names), name)
            rows, names = rows + row, names + name
        header = parts[0][:_CHECKSUM_AT].ljust(_CHECKSUM_AT, b"\0")
        if google_crc32c.value(header) % 4:
            header = header[:_COUNTS_AT] + _COUNTS.pack(len(rows) // OWNER_ROW_BYTES, len(names))
        header += _U32.pack(google_crc32c.value(rows + names)) + bytes(4)
        return header + _U32.pack(google_crc32c.value(header)) + rows + names

    def feed(self, data: bytes) -> None:
        name = _name(data)
        whole = _whole(data)
        archive = OwnerArchive(ReadOnlyFiles({name: data}), ARCHIVE, CLUSTER)  # type: ignore[arg-type]
        header, rows, names = split_owners(data)
        _check_searches(archive, (name, data), _searched(rows), whole)
        if whole is not None:
            _check_whole(data, header, whole)
        _check_merge(header, rows, names, whole)
        if whole is None:
            decode_owners(data)


def _owners(count: int) -> list[Owner]:
    letters = "aé\N{GRINNING FACE}"
    return [
        Owner(3 + 3 * at, 10 + 2 * at, 1_700_000_000_000 + at, f"tx-{at}-" + letters[at % 3] * (1 + at))
        for at in range(count)
    ]


def _split(data: bytes) -> Parts:
    _, rows, names = split_owners(data)
    parts = [data[:_CHECKSUM_AT]]
    for start in range(0, len(rows), OWNER_ROW_BYTES):
        row = rows[start : start + OWNER_ROW_BYTES]
        at, size, _ = _PLACE.unpack_from(row, _KEY_BYTES)
        parts.append(row + names[at : at + size])
    return tuple(parts)


def _place(row: bytes, at: int, name: bytes) -> bytes:
    return _PLACE.pack(at, len(name) % 2**16, google_crc32c.value(row[:_KEY_BYTES] + name))


def _name(data: bytes) -> str:
    """The name that the header asks for."""
    from_offset, to_offset = _COUNTS.unpack(data[76:92].rjust(16, b"\0"))
    return f"{from_offset:020d}-{to_offset:020d}{SUFFIX}"


def _whole(data: bytes) -> list[Owner] | None:
    try:
        return decode_owners(data)
    except OwnerError:
        return None


def _searched(rows: bytes) -> list[int]:
    starts = range(0, len(rows), OWNER_ROW_BYTES)
    ids = {_ID.unpack_from(rows, start)[0] for start in starts[:MAX_SEARCHES]}
    return sorted(ids | {one + 1 for one in ids})


def _check_searches(
    archive: OwnerArchive, file: tuple[str, bytes], searched: list[int], whole: list[Owner] | None
) -> None:
    """A member that runs and the command that reads its files give the same answers, and whole files the right ones."""
    known = None if whole is None else {owner.producer_id: owner for owner in whole}
    for producer_id in searched:
        found = _answer(archive, producer_id)
        told = _told(file, producer_id)
        if known is not None and found != known.get(producer_id):
            raise Violation(f"{found} was found for ID {producer_id}, the file has {known.get(producer_id)}")
        if known is not None and told != found:
            raise Violation(f"the command tells of {told} for ID {producer_id}, the archive of {found}")
        if any(isinstance(one, Owner) and one.producer_id != producer_id for one in (found, told)):
            raise Violation(f"{found} and {told} were found for ID {producer_id}")


def _answer(archive: OwnerArchive, producer_id: int) -> Owner | str | None:
    try:
        return archive.find(producer_id)
    except OwnerError:
        return "refused"


def _told(file: tuple[str, bytes], producer_id: int) -> Owner | str | None:
    try:
        return owner_files._owner_in(file, producer_id)
    except ArchiveError as error:
        if file[0] not in str(error):
            raise Violation(f"the refusal does not name the file: {error}") from error
        return "refused"


def _check_whole(data: bytes, header: OwnerHeader, owners: list[Owner]) -> None:
    if encode_owners(header.cluster_id, header.from_offset, header.to_offset, owners) != data:
        raise Violation(f"a file that is accepted is not how its {len(owners)} owners are written")


def _check_merge(header: OwnerHeader, rows: bytes, names: bytes, whole: list[Owner] | None) -> None:
    """Behind a file with one ID. What is merged from whole files is whole; what only opens is merged or refused."""
    _, own_rows, own_names = split_owners(encode_owners(CLUSTER, 0, 1, [_BEFORE]))
    rows, names = own_rows + moved(rows, len(own_names)), own_names + names
    if whole is None or not whole or whole[0].producer_id == _BEFORE.producer_id or header.from_offset == 0:
        return
    found = _whole(assembled(CLUSTER, 0, header.to_offset, rows, names))
    if found != [_BEFORE, *whole]:
        raise Violation(f"{[_BEFORE, *whole]} were merged, {found} came of it")
