"""The port to ZooKeeper: one znode, read and conditionally written, and a look at who lives there.

`KazooZnode` is the real one.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, Protocol, runtime_checkable

import msgspec

BLOCK_PATH: Final = "/latest_producer_id_block"
"""Kafka's `ProducerIdBlockZNode.path`."""

BROKERS_PATH: Final = "/brokers/ids"
"""Kafka's `BrokerIdsZNode.path`. A broker has a child here that is named by its id, while its session lasts."""

MAX_BROKERS: Final = 10_000
"""Children of BROKERS_PATH that are looked at: ten times the brokers of the largest clusters that are told of."""


class Znode(msgspec.Struct, frozen=True):
    """What the znode held at one moment. `version`: ZooKeeper's dataVersion, which every write raises by one.

    `data`: None if nothing was ever stored in it, which is how a Kafka broker first creates it.
    """

    data: bytes | None
    version: int


class LiveBrokers(msgspec.Struct, frozen=True):
    """The brokers that had a session with ZooKeeper at one moment. `ids`: ascending.

    `foreign`: how many children of BROKERS_PATH have a name that is no broker's id. They count for nothing else.
    """

    ids: tuple[int, ...]
    foreign: int = 0


class Cause(enum.Enum):
    """Why a call has no result. After all but UNAVAILABLE it is certain that nothing was written."""

    CONFLICT = "conflict"
    ABSENT = "absent"
    DENIED = "denied"
    UNAVAILABLE = "unavailable"


class Failure(msgspec.Struct, frozen=True):
    """A call without a result.

    CONFLICT: the znode has another version by now. ABSENT: there is no such znode. DENIED: its ACL does not let us.
    UNAVAILABLE: no answer in time; a write may have happened, or may still happen. `detail` says what was met.
    """

    cause: Cause
    detail: str


@runtime_checkable
class Connected(Protocol):
    """Of a znode that needs a session: its beginning and its end."""

    async def start(self) -> None:
        """Begin to connect; returns at once."""

    async def stop(self) -> None:
        """End the session."""


class BlockZnode(Protocol):
    """The znode of the latest producer ID block, and the brokers beside it.

    Every method returns at once. `done` is called exactly once, on the event loop. Calls are carried out one after
    another, in the order in which they were made.
    """

    def read(self, done: Callable[[Znode | Failure], None]) -> None:
        """Read the znode as it is now: at least as new as every write that was acknowledged to anybody before."""

    def write(self, data: bytes | None, version: int, done: Callable[[Znode | Failure], None]) -> None:
        """Write `data` if the znode still has `version`; `done` gets what it holds then (`setData`, KIP-730)."""

    def brokers(self, done: Callable[[LiveBrokers | Failure], None]) -> None:
        """Who has a child of BROKERS_PATH now, as new as `read`. Where nobody ever had one, there is no broker.

        More than MAX_BROKERS children are a failure.
        """

    def disconnected(self) -> str | None:
        """None while there is a session with ZooKeeper, else what is wrong."""


NOT_CONFIGURED: Final = "this member has no [zookeeper] in its configuration: add it on all members, and restart them"


class NoZookeeper:
    """The znode of a member that is not configured for one: it is always away."""

    def read(self, done: Callable[[Znode | Failure], None]) -> None:
        """Say so."""
        done(Failure(Cause.UNAVAILABLE, NOT_CONFIGURED))

    def write(self, data: bytes | None, version: int, done: Callable[[Znode | Failure], None]) -> None:
        """Say so."""
        done(Failure(Cause.UNAVAILABLE, NOT_CONFIGURED))

    def brokers(self, done: Callable[[LiveBrokers | Failure], None]) -> None:
        """Say so."""
        done(Failure(Cause.UNAVAILABLE, NOT_CONFIGURED))

    def disconnected(self) -> str | None:
        """Say so."""
        return NOT_CONFIGURED
