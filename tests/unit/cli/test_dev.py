"""What `pidkeeper dev` does about members that die; the processes themselves are in tests/integration."""

from __future__ import annotations

from pathlib import Path

import pytest

from pidkeeper.cli.dev import RESTART_SECONDS, STEADY_SECONDS, Supervisor
from pidkeeper.cli.local_cluster import LocalCluster, Member


class Fragile(LocalCluster):
    """A cluster of no processes: a member runs once it is started, until the test lets it die."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, controllers=1, agents=1)
        self.gone: list[Member] = []
        self.now = 0.0
        self.starts: list[float] = []

    def dead(self) -> list[Member]:
        return list(self.gone)

    def start(self, *members: Member) -> None:
        self.gone = [one for one in self.gone if one not in members]
        self.starts.append(self.now)


class Watched:
    """The supervisor of a Fragile cluster, looking every tenth of a second of the test's own clock."""

    def __init__(self, directory: Path, *, restart: bool = True) -> None:
        self.cluster = Fragile(directory)
        self.supervisor = Supervisor(self.cluster, restart=restart, clock=lambda: self.cluster.now)

    def live(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(round(seconds * 10)):
            self.cluster.now += 0.1
            for member in self.cluster.dead():
                self.supervisor.attend(member)

    def pause_after_death(self) -> float:
        """Let the agent die now; the seconds until it is started again."""
        died, before = self.cluster.now, len(self.cluster.starts)
        self.cluster.gone = [self.cluster.layout.agents[0]]
        self.live(20 * RESTART_SECONDS)
        (started,) = self.cluster.starts[before:]
        return round(started - died)


def test_the_pause_doubles_while_a_member_keeps_dying(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    assert [watched.pause_after_death() for _ in range(6)] == [1, 2, 4, 8, 16, 16]


def test_a_member_that_lived_for_long_begins_with_the_first_pause_again(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    assert [watched.pause_after_death() for _ in range(3)] == [1, 2, 4]
    watched.live(STEADY_SECONDS)
    assert [watched.pause_after_death() for _ in range(2)] == [1, 2]


def test_a_member_that_died_is_told_of_once_and_left_alone_if_so_wished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watched = Watched(tmp_path, restart=False)
    watched.cluster.gone = [watched.cluster.layout.agents[0]]
    watched.live(10)
    assert watched.cluster.starts == []
    assert capsys.readouterr().err == "agent-1 died\n"
