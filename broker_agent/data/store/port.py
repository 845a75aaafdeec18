"""The port to the object store: immutable objects by name.

An object is stored whole or not at all, and never changes; what is under a name stays until it is deleted. A call that
was cancelled, or raised StoreUnavailableError, may have been carried out or not: to put the same bytes again is safe.

    StoreError                  whatever a store raises but for ValueError, which is the caller's mistake
      ObjectMissingError        there is no object of that name
      StoreUnavailableError     no answer, or no room; what became of the call is unknown; try again
      StoreRefusedError         trying again is of no use: an operator has to do what the message says
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

MAX_NAME_BYTES: Final = 512
"""S3 and GCS take 1,024 and Azure 1,024 characters: half of that leaves room for the prefix of a shared bucket."""
MAX_SEGMENT_BYTES: Final = 255
"""Of one part of a name: as many as Linux takes in a file's name. "<topic>-<partition>" has 254 at most."""
MAX_OBJECT_BYTES: Final = 16 << 20
"""An agent gathers up to 4 MiB, to which one Produce request of up to 8 MiB may come; the next power of two."""
MAX_CREATED_BYTES: Final = 4096
"""What `create` stores are identities of some hundred bytes, and it gives back what is there in memory."""
MAX_LISTED: Final = 1000
"""As many names does one page of S3's ListObjectsV2 have."""
MAX_DELETED: Final = 1000
"""As many names does one of S3's DeleteObjects take."""

_SEGMENT: Final = rf"(?!\.\.?(?:/|$))[A-Za-z0-9._-]{{1,{MAX_SEGMENT_BYTES}}}"
_NAME: Final = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*", re.ASCII)


class StoreError(Exception):
    """A call of an object store failed."""


class ObjectMissingError(StoreError):
    """There is no object of that name."""


class StoreUnavailableError(StoreError):
    """The store did not answer, or has no room: what became of the call is unknown, and it may be tried again."""


class StoreRefusedError(StoreError):
    """The store refuses, and will again until an operator has done what the message says."""


class StoredObject(NamedTuple):
    """One row of a listing. `size`: in bytes."""

    name: str
    size: int


class ObjectStore(Protocol):
    """Objects by name, see `check_name`. Every call raises StoreError, and ValueError for what is out of bounds.

    No name may be another one with a slash behind it: a directory cannot hold both. Nothing is called after `close`.
    """

    async def put(self, name: str, pieces: Sequence[bytes]) -> None:
        """Store the pieces, in their order, as one object: durable and visible once this returns.

        The same bytes may be put again. Raises StoreRefusedError if the name has other ones, which stay.
        """
        ...

    async def create(self, name: str, data: bytes) -> bytes:
        """Store `data` unless the name is there; what is stored under it then, durably. At most MAX_CREATED_BYTES."""
        ...

    async def read(self, name: str, start: int, length: int) -> bytes:
        """The `length` bytes from `start` on. Raises ObjectMissingError, and StoreError if the object ends before."""
        ...

    async def list(self, prefix: str, after: str, limit: int) -> list[StoredObject]:
        """The first objects whose names are above `after`, in the order of their bytes; at most `limit`.

        `prefix`: all, if empty, or whole segments and a slash: only names that begin so. `after`: a name or nothing.
        Fewer than `limit` mean that there are no more.
        """
        ...

    async def delete(self, names: Sequence[str]) -> None:
        """Delete up to MAX_DELETED objects, durably once this returns; a missing one is no error."""
        ...

    async def close(self) -> None:
        """Give back threads, connections and locks. A second call does nothing."""
        ...


def is_name(name: str) -> bool:
    """Whether `check_name` lets it pass."""
    return len(name) <= MAX_NAME_BYTES and _NAME.fullmatch(name) is not None


def check_name(name: str) -> None:
    """Raise ValueError unless `name` is segments of letters, digits, dots, underlines and hyphens, joined by slashes.

    No segment is "." or ".."; MAX_SEGMENT_BYTES and MAX_NAME_BYTES hold.
    """
    if len(name) > MAX_NAME_BYTES:
        raise ValueError(f"a name has {MAX_NAME_BYTES} bytes at most, not {len(name)}")
    if not is_name(name):
        raise ValueError(
            f"{name!r} is no name of an object: segments of 1 to {MAX_SEGMENT_BYTES} of A-Z a-z 0-9 . _ - other than "
            '"." and "..", joined by slashes'
        )


def check_pieces(pieces: Sequence[bytes], max_bytes: int = MAX_OBJECT_BYTES) -> int:
    """The size of an object of these pieces. Raises ValueError if it is empty or too large."""
    size = sum(map(len, pieces))
    if not 1 <= size <= max_bytes:
        raise ValueError(f"an object has 1 to {max_bytes} bytes here, not {size}")
    return size


def check_range(start: int, length: int) -> None:
    """Raise ValueError unless an object may have such a range."""
    if start < 0 or length < 1 or start + length > MAX_OBJECT_BYTES:
        raise ValueError(f"{length} bytes from {start} on are no range of an object of up to {MAX_OBJECT_BYTES} bytes")


def check_listing(prefix: str, after: str, limit: int) -> None:
    """Raise ValueError for what `list` does not take."""
    if prefix:
        if not prefix.endswith("/"):
            raise ValueError(f"a prefix ends with a slash, unlike {prefix[:MAX_NAME_BYTES]!r}")
        check_name(prefix[:-1])
    if after:
        check_name(after)
    if not 1 <= limit <= MAX_LISTED:
        raise ValueError(f"a listing has 1 to {MAX_LISTED} objects, not {limit}")


def check_names(names: Sequence[str]) -> None:
    """Raise ValueError for what `delete` does not take."""
    if len(names) > MAX_DELETED:
        raise ValueError(f"{MAX_DELETED} objects at most are deleted at once, not {len(names)}")
    for name in names:
        check_name(name)
