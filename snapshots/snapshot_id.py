"""What names a snapshot: in the core, in the messages between members, and on disk."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from pidkeeper.protocol.log_position import Index, Term

_NAME: Final = re.compile(r"snapshot-(\d{20})-(\d{10,19})\.snap", re.ASCII)


class SnapshotId(msgspec.Struct, frozen=True, order=True, array_like=True):
    """Names a snapshot: the index and term of the last entry that it covers. Peers send it as [index, term]."""

    index: Index
    term: Term

    @property
    def name(self) -> str:
        """The file's name: `snapshot-<index>-<term>.snap`, 20 digits and 10 or as many more as the term takes."""
        return f"snapshot-{self.index:020d}-{self.term:010d}.snap"

    @classmethod
    def from_name(cls, name: str) -> SnapshotId | None:
        """What a file of this name is a snapshot of; None if it is none."""
        match = _NAME.fullmatch(name)
        snapshot = None if match is None else cls(int(match[1]), int(match[2]))
        return snapshot if snapshot is not None and snapshot.name == name else None
