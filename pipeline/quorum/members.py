"""Whose files there are: members' data directories, by the files in them, and what each task is to read of them."""

from __future__ import annotations

import uuid
from typing import Final, NamedTuple

import msgspec

from pidkeeper.pipeline.files.finding import Found
from pidkeeper.pipeline.files.folders import by_folder
from pidkeeper.pipeline.files.location import Location
from pidkeeper.pipeline.formats.problems import MALFORMED, UNREADABLE, Problem
from pidkeeper.pipeline.ledger import Registry
from pidkeeper.pipeline.paths import ARCHIVE_SUFFIX, LOG_SUFFIX, SNAPSHOT_SUFFIX, SUFFIXES, AuditPaths
from pidkeeper.protocol.records import QuorumMember

META_NAME: Final = "meta.json"
FOUNDING_NAME: Final = "founding.json"
SOURCES: Final = {ARCHIVE_SUFFIX: "archive", SNAPSHOT_SUFFIX: "snapshot", LOG_SUFFIX: "log"}
MAX_MEMBERS: Final = 63
"""Members are counted by the bits of a long. A quorum has nine voters at most; the others are copies of copies."""
_MAX_META_BYTES: Final = 64 * 1024


class Owner(msgspec.Struct, frozen=True):
    """Whose data a folder holds, by `meta.json` of the data directory around it."""

    cluster_id: str
    node_id: int
    directory_id: uuid.UUID


class _FoundingVoter(msgspec.Struct, frozen=True):
    id: int
    peer: str
    http: str


class _Founding(msgspec.Struct, frozen=True):
    voters: list[_FoundingVoter]


class Files(msgspec.Struct, frozen=True):
    """The files of one kind in a folder, by name, and the number of each."""

    folder: Location
    names: dict[str, int]


class Member(msgspec.Struct, frozen=True):
    """One whose files were found, and the folders that hold them.

    `name`: the node id where a meta.json tells it, else the path of the folder. Members of two clusters may have one.
    """

    member_id: int
    name: str
    owner: Owner | None
    archives: list[Files] = []
    snapshots: list[Files] = []
    logs: list[Files] = []

    @property
    def cluster_id(self) -> str | None:
        """The cluster whose files these have to be, if it is known."""
        return None if self.owner is None else self.owner.cluster_id


class MemberFile(NamedTuple):
    """A row of the table `files` before anything was read."""

    file_id: int
    source: str
    member_id: int
    found: Found


class Members(NamedTuple):
    """All of them, with their files."""

    members: list[Member]
    files: list[MemberFile]


class TooManyMembersError(OSError):
    """More than MAX_MEMBERS."""


def list_members(paths: AuditPaths, registry: Registry) -> Members:
    """The members whose files are at `paths.data`, with the numbers of the registry.

    Raises FileNotFoundError if nothing is at a path, OSError if one cannot be reached, TooManyMembersError.
    """
    folders = [(suffix, *one) for suffix in SUFFIXES for one in by_folder(paths.having(suffix), suffix).items()]
    owners = {folder: _known(read_owner(folder)) for _, folder, _ in folders}
    kinds: dict[int, dict[str, list[Files]]] = {}
    owner_of: dict[int, Owner | None] = {}
    names: dict[int, str] = {}
    files: list[MemberFile] = []
    for suffix, folder, found in folders:
        owner = owners[folder]
        name = str(folder) if owner is None else str(owner.node_id)
        member = registry.member(name, "" if owner is None else owner.cluster_id)
        names[member], owner_of[member] = name, owner
        listed = Files(folder, {})
        for one in found:
            number = registry.file(SOURCES[suffix], member, str(one.location))
            listed.names[one.location.name] = number
            files.append(MemberFile(number, SOURCES[suffix], member, one))
        kinds.setdefault(member, {each: [] for each in SUFFIXES})[suffix].append(listed)
    if max(names, default=0) >= MAX_MEMBERS:
        raise TooManyMembersError(f"there are files of more than {MAX_MEMBERS} members: audit them in parts")
    members = [
        Member(number, names[number], owner_of[number], *[kinds[number][suffix] for suffix in SUFFIXES])
        for number in sorted(names)
    ]
    return Members(members, files)


def read_owner(folder: Location) -> Owner | Problem | None:
    """The identity in `meta.json` beside or in `folder`; None without one, a Problem if it cannot be read."""
    for directory in (folder.parent, folder):
        meta = directory / META_NAME
        try:
            return msgspec.json.decode(meta.read(_MAX_META_BYTES), type=Owner)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            return Problem(str(meta), UNREADABLE, 0, str(error))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return Problem(str(meta), MALFORMED, 0, str(error))
    return None


def read_founding(folder: Location) -> list[QuorumMember] | None:
    """The voters that the quorum was founded with, by `founding.json` of the data directory around a folder; None
    without one that can be read."""
    try:
        found = msgspec.json.decode((folder.parent / FOUNDING_NAME).read(_MAX_META_BYTES), type=_Founding)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return [QuorumMember(one.id, None, one.peer, one.http, True) for one in found.voters]


def _known(owner: Owner | Problem | None) -> Owner | None:
    return owner if isinstance(owner, Owner) else None
