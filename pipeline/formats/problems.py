"""What is wrong with a file, as a value: a finding, not an exception."""

from __future__ import annotations

from typing import Final

import msgspec

BAD_CRC: Final = "bad_crc"
"""A checksum does not match the content, or bytes that it does not cover are not what is always written there."""
TORN: Final = "torn"
"""The end is missing: a write that a crash cut short, or a copy that ended early."""
CORRUPT: Final = "corrupt"
"""The log: something that was durable once is not there any more, or contradicts what stands before it."""
EMPTY: Final = "empty"
FOREIGN: Final = "foreign"
"""Not a file of this format, or of another cluster or data directory than the files beside it."""
MISNAMED: Final = "misnamed"
"""Whole, but by its header another file than its name says."""
MALFORMED: Final = "malformed"
"""Every checksum is right and the content breaks the format."""
NEWER: Final = "newer"
"""Whole, but of a format or record version that this build does not know."""
NOT_READ: Final = "not_read"
"""A segment behind a corrupt one: nothing in it was looked at."""
OFFSET_MISMATCH: Final = "offset_mismatch"
"""The records up to a snapshot's index are not as many as the snapshot says."""
OVERLAP: Final = "overlap"
"""Two archive files cover the same log offsets and neither holds all of the other's."""
UNREADABLE: Final = "unreadable"
"""The file system refused, or the file went away."""


class Problem(msgspec.Struct, frozen=True):
    """`file`: its name, or its whole path where the caller knows one. `position`: a byte. `index`: a log index."""

    file: str
    kind: str
    position: int
    detail: str
    index: int | None = None


class BadFile(Exception):  # noqa: N818 - a finding, judged by the caller
    """A problem that ends the reading of a file."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.file}, byte {problem.position}: {problem.kind}: {problem.detail}")
        self.problem = problem
