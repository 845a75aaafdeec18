"""What operators are told of a disk that does not keep pace: once when it begins, once when it ends."""

from __future__ import annotations

import logging

import pytest

from pidkeeper.controller.node.disk_watch import DiskWatch
from pidkeeper.controller.raft.core import RaftCore
from pidkeeper.controller.raft.disk_pace import CALM_TIMEOUTS
from pidkeeper.controller.raft.messages import HeartbeatReply
from tests.support.raft_network import accepted, replicating_leader

TICK_MS = 10
TIMEOUT = 30


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


class Watched:
    """Leader 1 of three, whose watch looks after each tick."""

    def __init__(self) -> None:
        self.core: RaftCore = replicating_leader(election_ticks=TIMEOUT)
        self.watch = DiskWatch(self.core, TICK_MS)

    def begin_write(self, *faster: int) -> None:
        """An entry that `faster` hold at once."""
        _, index = self.core.propose(b"x")
        self.core.ready()
        for peer in faster:
            self.core.step(accepted(self.core, peer, index))

    def end_write(self) -> None:
        self.core.written(self.core._outbox.oldest_write)

    def tick(self, count: int) -> None:
        for _ in range(count):
            self.core.tick()
            self.watch.tick()
            for peer in (2, 3):
                self.core.step(HeartbeatReply(self.core.term, peer, 1, self.core.last_index))


def test_a_disk_that_keeps_pace_is_told_nothing_of(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    for _ in range(5):
        watched.begin_write(2, 3)
        watched.tick(TIMEOUT)
        watched.end_write()
        watched.tick(1)
    assert (watched.watch.stalls, watched.watch.handovers, watched.watch.trouble()) == (0, 0, None)
    assert caplog.text == ""


def test_a_stall_is_logged_at_its_begin_and_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    for _ in range(3):
        watched.begin_write()
        watched.tick(201)
        watched.end_write()
        watched.tick(10)
    assert watched.watch.stalls == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "a write of the log takes longer than 310 ms" in caplog.text
    watched.tick(CALM_TIMEOUTS * TIMEOUT)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "the disk keeps pace again; the longest write of the log took 2000 ms" in caplog.text
    assert watched.watch.trouble() is None
    watched.begin_write()
    watched.tick(2 * TIMEOUT)
    assert watched.watch.stalls == 2


def test_a_short_stall_is_no_matter_of_health() -> None:
    watched = Watched()
    watched.begin_write()
    watched.tick(100)
    assert (watched.watch.stalls, watched.watch.write_seconds, watched.watch.trouble()) == (1, 0.99, None)
    watched.tick(1)
    told = watched.watch.trouble()
    assert told == (
        "the disk is slow: a write of the log took 1000 ms; it leads on until a majority of the other voters is faster"
    )


def test_whoever_does_not_lead_is_told_so_much() -> None:
    watched = Watched()
    watched.begin_write()
    watched.tick(101)
    watched.core._become_follower(watched.core.term)
    assert watched.watch.trouble() == "the disk is slow: a write of the log took 1000 ms"


def test_each_voter_that_is_asked_to_lead_is_counted() -> None:
    watched = Watched()
    watched.begin_write(2, 3)
    watched.tick(TIMEOUT + 1)
    assert watched.watch.handovers == 0
    watched.tick(1)
    assert watched.watch.handovers == 1
    watched.tick(TIMEOUT - 1)
    assert watched.watch.handovers == 1
    watched.tick(2)
    assert watched.watch.handovers == 2


def test_a_handover_for_another_reason_is_not_counted() -> None:
    watched = Watched()
    watched.core.transfer_leadership(2)
    watched.tick(1)
    assert watched.watch.handovers == 0
