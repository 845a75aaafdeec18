"""Which founding of a quorum a data directory belongs to, and the voters of it.

founding.json is written before the member's first vote, and never again. Whoever the log or a snapshot does not say
otherwise of is a voter by this file, whatever `controller.toml` names at a later start (docs/decisions/0021). It is
JSON: `format_version`; `voters`, by rising id, each with the addresses that were configured then; `founding_id`, the
uuid that the quorum was founded with (docs/decisions/0026), missing where it began under a build without foundings;
`succession`, where it takes the place of another quorum (docs/decisions/0027); `crc32c`, of these as compact JSON,
because a digit that rots would make another quorum.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable
from pathlib import PurePath
from typing import Annotated, Final, Self

import google_crc32c
import msgspec

from pidkeeper.controller.raft.messages import NodeId
from pidkeeper.controller.storage.errors import DirectoryError
from pidkeeper.disk.files import Files, write_durably
from pidkeeper.protocol.founding import Succession
from pidkeeper.protocol.records import MAX_MEMBERS, BaseUrl, PeerAddress

FOUNDING_NAME: Final = "founding.json"
FORMAT_VERSION: Final = 1
_REMEDY: Final = "restore it from a copy, or move the directory away and format it anew"


class FoundingVoter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One voter: host:port of its peer links, and the base URL of its HTTP interface."""

    id: NodeId
    peer: PeerAddress
    http: BaseUrl


Voters = Annotated[tuple[FoundingVoter, ...], msgspec.Meta(min_length=1, max_length=MAX_MEMBERS)]


class Founding(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What founding.json holds.

    Raises ValueError if the voters do not ascend by id, the checksum is another one, or it succeeds itself or without
    an id.
    """

    format_version: int
    voters: Voters
    crc32c: int
    founding_id: uuid.UUID | None = None
    succession: Succession | None = None

    def __post_init__(self) -> None:
        ids = [voter.id for voter in self.voters]
        if any(one >= other for one, other in itertools.pairwise(ids)):
            raise ValueError(f"voters {ids} do not ascend by id")
        if self.succession is not None and self.founding_id in {None, self.succession.predecessor}:
            raise ValueError(f"founding {self.founding_id} cannot take the place of {self.succession.predecessor}")
        if self.crc32c != _checksum(self.voters, self.founding_id, self.succession):
            raise ValueError(f"the checksum is not that of founding {self.founding_id} by the voters {ids}")

    @classmethod
    def of(
        cls,
        voters: Iterable[FoundingVoter],
        founding_id: uuid.UUID | None = None,
        succession: Succession | None = None,
    ) -> Self:
        """Founded with `voters`. Raises ValueError if they could not be read back."""
        checked = msgspec.convert([msgspec.to_builtins(one) for one in sorted(voters, key=_by_id)], Voters)
        return cls(FORMAT_VERSION, checked, _checksum(checked, founding_id, succession), founding_id, succession)


def read_founding(files: Files, directory: PurePath) -> Founding | None:
    """The founding of `directory`; None if it has none yet, or if an early build began it.

    Raises DirectoryError, OSError.
    """
    path = directory / FOUNDING_NAME
    if not files.exists(path):
        return None
    try:
        founding = msgspec.json.decode(files.read_bytes(path), type=Founding)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DirectoryError(f"{path} is malformed: {error}; {_REMEDY}") from error
    if founding.format_version != FORMAT_VERSION:
        raise DirectoryError(
            f"{path} has format version {founding.format_version}, this build reads {FORMAT_VERSION}: "
            "run the build that wrote it"
        )
    return founding


def write_founding(files: Files, directory: PurePath, founding: Founding) -> None:
    """Make `founding` durable. Raises OSError."""
    write_durably(files, directory / FOUNDING_NAME, msgspec.json.format(msgspec.json.encode(founding)) + b"\n")


def _by_id(voter: FoundingVoter) -> int:
    return voter.id


def _checksum(voters: tuple[FoundingVoter, ...], founding_id: uuid.UUID | None, succession: Succession | None) -> int:
    """Of what is there, so that files of before have the checksum that they always had."""
    checked = voters if founding_id is None else tuple(one for one in (voters, founding_id, succession) if one)
    return int(google_crc32c.value(msgspec.json.encode(checked)))
