"""The rules of a round, on a peer that is scripted."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from bench.peers import failover
from bench.peers.failover import PeerFailover
from bench.peers.interface import Peer, Scheme
from bench.peers.nodes import Node


class Scripted(Peer):
    """Its leader gives `parting` more numbers after its signal, and then nothing; then node 2 leads."""

    name = "scripted"

    def __init__(self, directory: Path) -> None:
        self.nodes = [Node(f"node-{number}", ["sleep", "600"], directory / str(number), 1) for number in (1, 2, 3)]
        self.parting = 3
        self.silent = False
        self.given: list[str] = []
        self.asked: list[str] = []
        self.numbers: Iterator[int] = count()

    @staticmethod
    def why_unavailable() -> str | None:
        return None

    @property
    def schemes(self) -> tuple[Scheme, ...]:
        return ()

    @property
    def struck(self) -> bool:
        return not self.nodes[0].running

    def find_leader(self) -> Node | None:
        return self.nodes[0]

    def connect(self, node: Node, seconds: float) -> ScriptedSession:
        return ScriptedSession(self, node)

    def leads(self, node: Node) -> bool:
        """Whether the node gives a number now."""
        if not self.struck:
            return node is self.nodes[0]
        self.parting -= node is self.nodes[0]
        return node is self.nodes[0 if self.parting >= 0 else 1]


class ScriptedSession:
    def __init__(self, peer: Scripted, node: Node) -> None:
        self._peer = peer
        self._node = node

    def allocate(self) -> int | None:
        self._peer.asked.append(self._node.name)
        if not self._peer.leads(self._node):
            if self._peer.silent:
                raise TimeoutError("nothing came")
            return None
        self._peer.given.append(self._node.name)
        return next(self._peer.numbers)

    def close(self) -> None:
        return


def test_only_what_another_node_gives_ends_the_round(tmp_path: Path) -> None:
    with Scripted(tmp_path) as peer:
        bench = PeerFailover(peer, random.Random(1))
        result = bench.measure(signal.SIGKILL, 1)
        assert peer.nodes[0].running, "it was brought back"
    assert peer.parting < 0, "what the leader still gave did not count"
    assert (peer.given[-1], peer.given.count("node-2")) == ("node-2", 1)
    assert bench.numbers == list(range(len(peer.given)))
    assert 0 < result.median_ms < 1000.0 * failover.ROUND_SECONDS


def test_a_silent_node_is_left_out(tmp_path: Path) -> None:
    with Scripted(tmp_path) as peer:
        peer.silent, peer.parting = True, 0
        PeerFailover(peer, random.Random(1)).measure(signal.SIGKILL, 1)
    after = peer.asked[peer.asked.index("node-2") - 1 :]
    assert after == ["node-1", "node-2"], "its silence sent the client on at once"


def test_a_round_without_a_successor_says_what_was_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failover, "ROUND_SECONDS", 1.0)
    monkeypatch.setattr(Scripted, "leads", lambda peer, node: not peer.struck and node is peer.nodes[0])
    with Scripted(tmp_path) as peer, pytest.raises(TimeoutError, match=r"within 1 s; node-\d: refused"):
        PeerFailover(peer, random.Random(1)).measure(signal.SIGKILL, 1)
