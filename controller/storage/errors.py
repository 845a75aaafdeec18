"""What can go wrong with a member's disk. Each error says what was found and what to do about it."""

from __future__ import annotations

from typing import Final

_REMEDY: Final = (
    "Nothing was changed. If the other members are up, restore this one from them: stop it, move its data directory "
    "away, format a new one with the same cluster id and node id, and start it; it catches up before it votes."
)


class DirectoryError(Exception):
    """The data directory is not formatted, belongs to someone else, or is in use."""


class LogCorruption(Exception):  # noqa: N818 - the state of the log, which is what the operator reads
    """The log holds bytes that were durable once and are not what was written.

    Fields: `segment`, the file's name; `offset` in bytes within it; `index`, the first log index in doubt; `reason`.
    """

    def __init__(self, segment: str, offset: int, index: int, reason: str) -> None:
        super().__init__(
            f"the log is corrupt: segment {segment}, byte offset {offset}, log index {index}: {reason}. {_REMEDY}"
        )
        self.segment = segment
        self.offset = offset
        self.index = index
        self.reason = reason


class LogFull(Exception):  # noqa: N818 - as above
    """There is no room for the next segment. Nothing of the batch was written and the log stays usable."""


class LogFailed(Exception):  # noqa: N818 - as above
    """A write or a sync failed, so what is on disk is unknown: the process has to exit and read its log anew."""
