"""What a proxy of links can do, whichever program it is."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Protocol

import msgspec


class PortKind(enum.StrEnum):
    """Which port of the target a link leads to."""

    PEER = "peer"
    HTTP = "http"
    KAFKA = "kafka"


class Stream(enum.StrEnum):
    """Which way of a link. UPSTREAM: what its source, which connected, sends to its target."""

    UPSTREAM = "upstream"
    DOWNSTREAM = "downstream"


class ToxicKind(enum.StrEnum):
    """What can be done to the bytes of one way, with the attributes of each. Those of Toxiproxy, by its names."""

    LATENCY = "latency"
    """`latency`, `jitter`: milliseconds. Each piece comes later by the one, more or less by up to the other."""

    BANDWIDTH = "bandwidth"
    """`rate`: kilobytes a second."""

    SLOW_CLOSE = "slow_close"
    """`delay`: milliseconds after which an end of the stream is passed on."""

    TIMEOUT = "timeout"
    """`timeout`: milliseconds after which the connection is closed; 0: never. Meanwhile all is thrown away. With the
    toxic the connections go as well, for there is a hole in what they passed."""

    RESET_PEER = "reset_peer"
    """`timeout`: milliseconds after which a connection on which something was sent is reset. Toxiproxy ends one in good
    order that was there before the toxic."""

    SLICER = "slicer"
    """`average_size`, `size_variation`: bytes of the slices; `delay`: microseconds after each."""

    LIMIT_DATA = "limit_data"
    """`bytes`: how many pass on each connection before it is closed."""


class Toxic(msgspec.Struct, frozen=True):
    """One toxic. `toxicity`: the share of connections that suffer it, 0 to 1."""

    kind: ToxicKind
    stream: Stream
    attributes: dict[str, int]
    toxicity: float = 1.0

    @property
    def name(self) -> str:
        """What it is called on its link, where one of its kind and stream has a place."""
        return f"{self.kind}_{self.stream}"


class Link(msgspec.Struct, frozen=True):
    """The way of one process to one port of another. `upstream`: that port. `listen`: where its proxy listens."""

    source: str
    target: str
    port: PortKind
    upstream: str
    listen: str

    @property
    def name(self) -> str:
        """Like `controller-1_controller-2_peer`."""
        return f"{self.source}_{self.target}_{self.port}"


class Passed(msgspec.Struct, frozen=True):
    """Bytes of one way of a link: that came into the proxy, and that it passed on."""

    received: int = 0
    sent: int = 0


Traffic = dict[str, dict[Stream, Passed]]
"""By name of the link and stream."""


class ProxyError(Exception):
    """The proxy did not do what it was asked for; says what and why."""


class Proxies(Protocol):
    """A program that is a proxy for many links. All raise ProxyError."""

    program: str
    """What it is, for the summary of a run."""

    async def start(self) -> None:
        """Start the program."""

    async def close(self) -> None:
        """End it, and with it all connections."""

    async def open(self, links: Iterable[Link]) -> None:
        """Listen for these links, which have names of their own."""

    async def add(self, link: Link, toxic: Toxic) -> None:
        """From now on, on new connections and on those that are there. A link has one of a kind and stream."""

    async def remove(self, link: Link, toxic: Toxic) -> None:
        """No longer."""

    async def clear(self, link: Link) -> None:
        """Remove all toxics of the link."""

    async def disable(self, link: Link) -> None:
        """Close its connections, and refuse new ones."""

    async def enable(self, link: Link) -> None:
        """Listen again."""

    async def traffic(self) -> Traffic:
        """What passed on each link since it was opened. Toxiproxy adds up what a connection passed when it ends, and
        what it passed on only if it ended in good order."""
