"""How long a peer's allocation is away when the leader dies, hangs or is told to stop: the rules of bench/failover.py.

One client allocates without pause, at the leader first. The time runs from the signal to the first allocation that was
asked for after it and given by another node. Then the node is brought back and all are waited for.
"""

from __future__ import annotations

import random
import signal
import statistics
import threading
import time
from collections.abc import Sequence
from itertools import cycle
from typing import Final

from bench.failover import JITTER_SECONDS, WARM_SECONDS, FailoverResult
from bench.peers.interface import Peer, Session
from bench.peers.nodes import Node

ROUND_SECONDS: Final = 30.0
"""ZooKeeper takes 10 s to miss a leader that hangs, and raftos up to 20 s to elect another one."""


class Client:
    """Allocates from whichever node can; keeps every number that it got."""

    def __init__(self, peer: Peer, nodes: Sequence[Node], rng: random.Random) -> None:
        self._peer = peer
        self._rng = rng
        self._others = cycle(nodes)
        self._node = next(self._others)
        self._silent: Node | None = None
        self._session: Session | None = None
        self.numbers: list[int] = []
        self.last_failure = "none"

    def go_to(self, node: Node) -> None:
        """Ask this node next."""
        if node is not self._node:
            self.close()
            self._node = node

    def attempt(self) -> tuple[Node, float] | None:
        """One attempt: the node that gave a number, and when it was asked. The next one is asked after a failure."""
        node, sent = self._node, time.perf_counter()
        try:
            if self._session is None:
                self._session = self._peer.connect(node, self._peer.attempt_seconds)
            number = self._session.allocate()
        except OSError as error:
            self.last_failure = f"{node.name}: {type(error).__name__}: {error}"
            # A paused node's kernel still takes connections: each attempt there would cost the whole deadline.
            self._silent = node if isinstance(error, TimeoutError) else self._silent
        else:
            self._silent = None if self._silent is node else self._silent
            if number is not None:
                self.numbers.append(number)
                return node, sent
            self.last_failure = f"{node.name}: refused"
        self.close()
        while (following := next(self._others)) in {node, self._silent}:
            continue
        self._node = following
        time.sleep(self._rng.uniform(*JITTER_SECONDS))
        return None

    def close(self) -> None:
        """Hang up."""
        if self._session is not None:
            self._session.close()
            self._session = None


class PeerFailover:
    """Rounds on a running peer; `numbers` are all that the client was given."""

    def __init__(self, peer: Peer, rng: random.Random) -> None:
        self._peer = peer
        self._rng = rng
        self.numbers: list[int] = []

    def measure(self, number: signal.Signals, rounds: int) -> FailoverResult:
        """`rounds` rounds with one signal. Raises TimeoutError when no other node allocates within ROUND_SECONDS."""
        times = [self._round(number) for _ in range(rounds)]
        return FailoverResult(rounds, statistics.median(times), max(times), times)

    def _round(self, number: signal.Signals) -> float:
        leader = self._peer.leader()
        client = Client(self._peer, [leader, *(one for one in self._peer.nodes if one is not leader)], self._rng)
        signalled: list[float] = []

        def strike() -> None:
            signalled.append(time.perf_counter())
            leader.signal(number)

        timer = threading.Timer(self._rng.uniform(*WARM_SECONDS), strike)
        timer.start()
        try:
            seconds = self._time_to_success(client, leader, signalled)
        finally:
            timer.cancel()
            timer.join()
            client.close()
            self.numbers += client.numbers
        self._bring_back(leader, number)
        return seconds * 1000.0

    def _time_to_success(self, client: Client, leader: Node, signalled: list[float]) -> float:
        deadline = time.monotonic() + ROUND_SECONDS
        while time.monotonic() < deadline:
            if not signalled:
                client.go_to(leader)
            given = client.attempt()
            if given is not None and signalled and given[1] >= signalled[0] and given[0] is not leader:
                return time.perf_counter() - signalled[0]
        raise TimeoutError(f"no other node allocated within {ROUND_SECONDS:g} s; {client.last_failure}")

    def _bring_back(self, node: Node, number: signal.Signals) -> None:
        if number is signal.SIGSTOP:
            node.signal(signal.SIGCONT)
        else:
            node.wait_ended()
            node.start()
        self._peer.leader()
