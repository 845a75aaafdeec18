"""Whose fault it is when figures beside a peer fail to come: a peer's is noted, our own ends the run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bench import peers_section
from bench.closed_loop import LoadResult
from bench.loads import Loads
from bench.peers.interface import Peer, PeerGaveOutError, Scheme, Session, blamed
from bench.peers.nodes import Node
from bench.peers_section import PeersSection
from bench.plan import QUICK

PLAN = msgspec.structs.replace(QUICK, peer_callers=(1, 2), peer_seconds=0.2, warmup=0.0)


class Short(Peer):
    """Answers once, and never again."""

    name = "short"

    def __init__(self, directory: Path) -> None:
        self.nodes: list[Node] = []
        self._answered = False

    @staticmethod
    def why_unavailable() -> str | None:
        return None

    @property
    def schemes(self) -> tuple[Scheme, ...]:
        return (Scheme("short, at all", self._load),)

    def _load(self, callers: int, seconds: float, warmup: float) -> LoadResult:
        if self._answered:
            raise RuntimeError("no more\nof it")
        self._answered = True
        return LoadResult(1.0, 2.0, 3.0, [2.0, 3.0], {"200": 2}, [0, 0], [], 0.5)

    def find_leader(self) -> Node | None:
        return Node("short", [], Path(), 0)

    def connect(self, node: Node, seconds: float) -> Session:
        raise AssertionError("nobody asks")


class Absent(Short):
    """Does not start."""

    def find_leader(self) -> Node | None:
        raise OSError("not today")

    def leader(self) -> Node:
        raise TimeoutError("no leader")


def measured(directory: Path, kind: type[Peer], monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """Names of the rows, and the notes."""
    monkeypatch.setattr(peers_section, "PEERS", {"it": kind})
    loads = Loads(directory)
    rows = PeersSection(loads, PLAN, ["it"]).measure(lambda _: None)
    assert loads.violations == []
    return [row.name for row in rows], loads.notes


def test_what_was_measured_before_a_peer_gave_out_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, notes = measured(tmp_path, Short, monkeypatch)
    assert rows == ["HTTP, 1 caller; beside short, at all"]
    assert notes == [
        "short, at all, 1 callers: 1 numbers of 2 twice",
        "short, at all gave out: RuntimeError: no more",
    ]


def test_a_peer_that_does_not_start_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured(tmp_path, Absent, monkeypatch) == ([], ["it gave out: TimeoutError: no leader"])


def test_our_own_failure_is_no_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> LoadResult:
        raise RuntimeError("ours")

    monkeypatch.setattr(Loads, "our_http", broken)
    with pytest.raises(RuntimeError, match="ours"):
        measured(tmp_path, Short, monkeypatch)


def test_a_bug_of_the_benchmark_is_nobodys_excuse() -> None:
    with pytest.raises(KeyError), blamed("it"):
        raise KeyError("a bug")
    with pytest.raises(PeerGaveOutError, match="it gave out: OSError: away"), blamed("it"):
        raise OSError("away")
