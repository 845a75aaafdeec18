"""Copies of members' archives and snapshots at a place where an audit finds them when the members' disks are gone.

The layout is that of data directories, so that an audit reads it as it is:

    TARGET/<cluster id>/<node id>-<directory id>/meta.json
                                                 archive/<from>-<to>.arc
                                                 snapshots/snapshot-<index>-<term>.snap

It only goes forward: nothing at the target is ever overwritten or deleted, whatever becomes of the member. Where
members merge their files, the wider one is shipped beside those that it replaces, and an audit takes the widest. A file
that is at the target with other bytes is a failure for somebody to look at, never for this to mend.

Every file is verified before it is shipped and compared with its copy behind that. Members may be running: these files
get their names when they are whole, and do not change. Their logs do, and go away segment by segment: copies of them
would lack segments from their middle and look like damage. So logs are not shipped.
"""

from __future__ import annotations

import contextlib
import struct
import time
import urllib.parse
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from pidkeeper.pipeline.files.location import Location, locate
from pidkeeper.pipeline.files.system import Entry
from pidkeeper.pipeline.formats.archive import MAX_FILE_BYTES, file_name, read_whole
from pidkeeper.pipeline.formats.problems import BadFile
from pidkeeper.pipeline.paths import ARCHIVE_SUFFIX, SNAPSHOT_SUFFIX
from pidkeeper.snapshots.snapshot_format import MAX_SNAPSHOT_BYTES, SnapshotError, check_snapshot
from pidkeeper.snapshots.snapshot_id import SnapshotId

META_NAME: Final = "meta.json"
_FORMAT_VERSION: Final = 1
_MAX_META_BYTES: Final = 64 * 1024
_ARCHIVE: Final = "archive"
_SNAPSHOTS: Final = "snapshots"
_SNAPSHOT_ID: Final = struct.Struct(">QQ")
_SNAPSHOT_ID_AT: Final = 76
_END_BYTES: Final = 128
"""A checksum of all the rest is in the first of an archive file, and in the last of a snapshot."""
_PIECE_BYTES: Final = 8 << 20
_PASSES: Final = 3
"""Listings of a directory in which files may be merged away while they are shipped."""


class Identity(msgspec.Struct, frozen=True):
    """Whose data a directory holds, by its `meta.json`."""

    format_version: int
    cluster_id: str
    node_id: int
    directory_id: uuid.UUID

    @property
    def folder(self) -> str:
        """Where its files are below the target."""
        return f"{_as_name(self.cluster_id)}/{self.node_id}-{self.directory_id}"


class Shipped(msgspec.Struct, frozen=True):
    """A file that was copied, and compared with its copy."""

    source: str
    target: str
    bytes: int


class Failed(msgspec.Struct, frozen=True):
    """A file that was not, or whose copy is not like it; `target` is empty where there was none to name."""

    source: str
    target: str
    reason: str


class Member(msgspec.Struct):
    """What became of one data directory. `present`: files whose copies were there; `gone`: merged away or pruned
    meanwhile; `interrupted`: it was not gone through to its end.
    """

    directory: str
    target: str = ""
    cluster_id: str = ""
    node_id: int | None = None
    directory_id: uuid.UUID | None = None
    shipped: list[Shipped] = []
    failed: list[Failed] = []
    present: int = 0
    gone: int = 0
    interrupted: bool = False

    @property
    def bytes(self) -> int:
        """What was copied."""
        return sum(file.bytes for file in self.shipped)


class Round(msgspec.Struct):
    """All directories, once. Totals are of all `members`."""

    target: str
    members: list[Member]
    shipped: int
    present: int
    failed: int
    bytes: int
    seconds: float
    interrupted: bool


class Options(msgspec.Struct, frozen=True):
    """`snapshots`: ship them too. `quick`: a copy that is there is compared by its size and its two ends alone."""

    snapshots: bool = True
    quick: bool = False


class _Refused(Exception):  # noqa: N818 - a finding about one file
    """Why a file is not shipped, or its copy not taken for one."""


class _File(NamedTuple):
    """A file of a member and where its copy belongs. `copy`: what stands there, as the target was listed."""

    source: Location
    target: Location
    entry: Entry
    copy: Entry | None


class Shipper:
    """Ships into one target; what was compared once is compared again when either file was written."""

    def __init__(self, target: Location, options: Options, told: Callable[[Shipped | Failed], None]) -> None:
        self._target = target
        self._options = options
        self._told = told
        self._compared: dict[Location, tuple[str, str]] = {}

    def ship(self, directories: list[Path], stop: Callable[[], bool]) -> Round:
        """One round. `stop` is asked between files."""
        start = time.monotonic()
        members = [self._ship_member(directory, stop) for directory in directories if not stop()]
        return Round(
            target=str(self._target),
            members=members,
            shipped=sum(len(member.shipped) for member in members),
            present=sum(member.present for member in members),
            failed=sum(len(member.failed) for member in members),
            bytes=sum(member.bytes for member in members),
            seconds=round(time.monotonic() - start, 3),
            interrupted=len(members) < len(directories) or any(member.interrupted for member in members),
        )

    def _ship_member(self, directory: Path, stop: Callable[[], bool]) -> Member:
        place = locate(directory)
        member = Member(str(directory))
        try:
            identity, meta = _identity(place)
        except (_Refused, OSError) as error:
            self._fail(member, place / META_NAME, None, error)
            return member
        target = self._target / identity.folder
        member.target, member.cluster_id = str(target), identity.cluster_id
        member.node_id, member.directory_id = identity.node_id, identity.directory_id
        try:
            self._claim(place / META_NAME, target / META_NAME, meta, identity, member)
            self._ship_files(place, target, identity, member, stop)
        except (_Refused, OSError) as error:
            self._fail(member, place / META_NAME, target / META_NAME, error)
        return member

    def _claim(self, source: Location, target: Location, meta: bytes, identity: Identity, member: Member) -> None:
        """Say whose files these are before there are any."""
        there = target.exists()
        if not there:
            with contextlib.suppress(FileExistsError):  # somebody else ships the same
                target.create(meta)
        try:
            found = _decoded(target.read(_MAX_META_BYTES))
        except msgspec.MsgspecError as error:
            raise _Refused(f"{target} is malformed: {error}") from error
        if found != identity:
            raise _Refused(f"{target} names another member: {_named(found)} instead of {_named(identity)}")
        if there:
            member.present += 1
        else:
            self._ship(member, source, target, len(meta))

    def _ship_files(
        self, place: Location, target: Location, identity: Identity, member: Member, stop: Callable[[], bool]
    ) -> None:
        settled: set[str] = set()
        for _ in range(_PASSES):
            gone = 0
            for file in self._files(place, target):
                if stop():
                    member.interrupted = True
                    return
                if file.source.path in settled:
                    continue
                try:
                    self._ship_file(file, identity, member)
                except FileNotFoundError:
                    gone += 1
                    continue
                settled.add(file.source.path)
            member.gone += gone
            if not gone:
                return

    def _files(self, place: Location, target: Location) -> list[_File]:
        """Archives first, and snapshots that were there before these were listed: all that a snapshot tells of is in an
        archive by then, so that no copy of a member knows less than its snapshot.
        """
        snapshots = _listed(place, _SNAPSHOTS, SNAPSHOT_SUFFIX) if self._options.snapshots else []
        found = [(_ARCHIVE, entry) for entry in _listed(place, _ARCHIVE, ARCHIVE_SUFFIX)]
        found += [(_SNAPSHOTS, entry) for entry in snapshots]
        copies = {folder: _by_name(target / folder) for folder in (_ARCHIVE, _SNAPSHOTS)}
        return [
            _File(place / folder / entry.name, target / folder / entry.name, entry, copies[folder].get(entry.name))
            for folder, entry in found
        ]

    def _ship_file(self, file: _File, identity: Identity, member: Member) -> None:
        """Raises FileNotFoundError if the source went away."""
        try:
            if file.copy is not None and self._is_known(file, file.copy):
                member.present += 1
                return
            data = file.source.read(min(_limit(file.source.name), file.entry.size) + 1)
        except FileNotFoundError:
            raise
        except OSError as error:
            self._fail(member, file.source, file.target, error)
            return
        try:
            _verify(file.source.name, data, identity.cluster_id)
            self._copy(file, data, member)
        except (_Refused, OSError) as error:
            self._fail(member, file.source, file.target, error)

    def _is_known(self, file: _File, copy: Entry) -> bool:
        """Whether a copy needs no look, or none but at its ends. Raises FileNotFoundError if the source went away."""
        if self._compared.get(file.target) == (file.entry.stamp, copy.stamp):
            return True
        if not self._options.quick or copy.size != file.entry.size:
            return False
        here = _ends(file.source, copy.size)
        try:
            return here == _ends(file.target, copy.size)
        except FileNotFoundError:
            return False

    def _copy(self, file: _File, data: bytes, member: Member) -> None:
        there = file.copy is not None
        if not there:
            try:
                file.target.create(data)
            except FileExistsError:
                there = True
        try:
            differs = _first_difference(file.target, data)
        except FileNotFoundError as error:
            raise _Refused(f"its copy {file.target} went away: somebody else deletes there") from error
        if differs is not None and there:
            raise _Refused(
                f"{file.target} is there already with other bytes, from byte {differs} on: one of both is bad"
            )
        if differs is not None:
            raise _Refused(
                f"{file.target} has other bytes than were written, from byte {differs} on: look at its disks"
            )
        self._compared[file.target] = (file.entry.stamp, file.target.stamp())
        if there:
            member.present += 1
        else:
            self._ship(member, file.source, file.target, len(data))

    def _ship(self, member: Member, source: Location, target: Location, size: int) -> None:
        shipped = Shipped(str(source), str(target), size)
        member.shipped.append(shipped)
        self._told(shipped)

    def _fail(self, member: Member, source: Location, target: Location | None, error: Exception) -> None:
        failed = Failed(str(source), "" if target is None else str(target), str(error))
        member.failed.append(failed)
        self._told(failed)


def _identity(place: Location) -> tuple[Identity, bytes]:
    """That of a data directory, and the bytes that say so. Raises _Refused, OSError."""
    try:
        meta = (place / META_NAME).read(_MAX_META_BYTES)
        identity = _decoded(meta)
    except (FileNotFoundError, NotADirectoryError):
        raise _Refused(f"{place} is no member's data directory: it has no {META_NAME}") from None
    except msgspec.MsgspecError as error:
        raise _Refused(f"it is malformed: {error}") from error
    if identity.format_version != _FORMAT_VERSION:
        raise _Refused(f"it has format version {identity.format_version}, this build knows {_FORMAT_VERSION}")
    return identity, meta


def _decoded(meta: bytes) -> Identity:
    return msgspec.json.decode(meta, type=Identity)


def _named(identity: Identity) -> str:
    return f"node {identity.node_id} of cluster {identity.cluster_id}, directory {identity.directory_id}"


def _as_name(cluster_id: str) -> str:
    """A cluster id as the name of a directory, on any file system and free of wildcards."""
    quoted = urllib.parse.quote(cluster_id, safe="")
    return quoted.replace(".", "%2E") if not quoted.strip(".") else quoted


def _listed(place: Location, folder: str, suffix: str) -> list[Entry]:
    """The files of a member's folder, oldest first; none if it has no such folder."""
    return [entry for name, entry in sorted(_by_name(place / folder).items()) if name.endswith(suffix)]


def _by_name(folder: Location) -> dict[str, Entry]:
    try:
        return {entry.name: entry for entry in folder.entries() if not entry.folder}
    except FileNotFoundError:
        return {}


def _limit(name: str) -> int:
    return MAX_FILE_BYTES if name.endswith(ARCHIVE_SUFFIX) else MAX_SNAPSHOT_BYTES


def _verify(name: str, data: bytes, cluster_id: str) -> None:
    """Raise _Refused unless this is a whole file of this name and cluster."""
    try:
        if name.endswith(ARCHIVE_SUFFIX):
            if file_name(name) is None:
                raise _Refused("no archive file is called so")
            read_whole(name, data, cluster_id)
            return
        if (named := SnapshotId.from_name(name)) is None:
            raise _Refused("no snapshot is called so")
        check_snapshot(data, name, cluster_id)
        held = SnapshotId(*_SNAPSHOT_ID.unpack_from(data, _SNAPSHOT_ID_AT))
        if held != named:
            raise _Refused(f"it holds the state at {held.index} of term {held.term}")
    except BadFile as error:
        problem = error.problem
        raise _Refused(f"{problem.kind} at byte {problem.position}: {problem.detail}") from error
    except SnapshotError as error:
        raise _Refused(str(error).removeprefix(f"snapshot {name}: ")) from error


def _ends(place: Location, size: int) -> bytes:
    """The first and the last bytes of a file, where its checksums are."""
    with place.open() as file:
        first = file.read(_END_BYTES)
        file.seek(max(size - _END_BYTES, 0))
        return first + file.read(_END_BYTES)


def _first_difference(copy: Location, data: bytes) -> int | None:
    """The first byte in which a copy is not like `data`; None if it is."""
    at = 0
    with copy.open() as file:
        while piece := file.read(_PIECE_BYTES):
            due = data[at : at + len(piece)]
            if piece != due:
                pairs = enumerate(zip(piece, due, strict=False))
                return at + next((place for place, (one, other) in pairs if one != other), len(due))
            at += len(piece)
    return None if at == len(data) else at
