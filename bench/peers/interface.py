"""What the benchmark asks of a peer: another system that hands out blocks or counts durably on three nodes."""

from __future__ import annotations

import contextlib
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol, Self

from bench.closed_loop import LoadResult
from bench.failover import ATTEMPT_SECONDS
from bench.peers.nodes import Node, wait_for

START_SECONDS: Final = 90.0
"""When to give up on a peer that starts or comes back; never how fast it must be."""


class PeerGaveOutError(Exception):
    """A peer did not start, or did not do what was asked of it."""


@contextlib.contextmanager
def blamed(name: str) -> Iterator[None]:
    """What goes wrong meanwhile is the peer's doing. Raises PeerGaveOutError."""
    try:
        yield
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        reason = str(error).partition("\n")[0]
        raise PeerGaveOutError(f"{name} gave out: {type(error).__name__}: {reason}") from error


class Scheme(NamedTuple):
    """One way to allocate. `load(callers, seconds, warmup)` measures it in a process of its own.

    It promises that no number of `LoadResult.starts` comes twice.
    """

    name: str
    load: Callable[[int, float, float], LoadResult]


class Session(Protocol):
    """A client's connection to one node."""

    def allocate(self) -> int | None:
        """One allocation; None if the node refuses. Raises OSError, of which TimeoutError if it keeps silent."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...


class Peer(ABC):
    """Use as a context manager: it starts all nodes and waits until they allocate; the exit kills them.

    `nodes` are those that elect a leader among themselves; `others` are not.
    """

    name: str
    nodes: list[Node]
    others: Sequence[Node] = ()
    attempt_seconds: float = ATTEMPT_SECONDS
    """Deadline of one attempt of the client that lives through failovers."""

    settle_seconds: float = 0.0
    """For how long a load makes the peer faster from one second to the next: compiled while it runs."""

    @abstractmethod
    def __init__(self, directory: Path) -> None:
        """With everything under `directory`, which should be on a disk."""

    @staticmethod
    @abstractmethod
    def why_unavailable() -> str | None:
        """None if it can start on this machine, else what is missing. To be asked before it is made."""

    @property
    @abstractmethod
    def schemes(self) -> tuple[Scheme, ...]:
        """How it allocates."""

    @abstractmethod
    def find_leader(self) -> Node | None:
        """The node that leads, if every running node of `nodes` serves. Raises OSError while one does not."""

    @abstractmethod
    def connect(self, node: Node, seconds: float) -> Session:
        """A session that waits at most `seconds` for each answer. Raises OSError."""

    def leader(self) -> Node:
        """The same, waited for. Raises TimeoutError."""
        return wait_for(self.find_leader, f"a leader of {self.name}, and all nodes", self.nodes, START_SECONDS)

    def prepare(self) -> None:
        """Called once, when the nodes have a leader: make what the schemes write to."""
        return

    def __enter__(self) -> Self:
        try:
            for node in (*self.nodes, *self.others):
                node.start()
            self.leader()
            self.prepare()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in (*self.others, *self.nodes):
            node.close()
