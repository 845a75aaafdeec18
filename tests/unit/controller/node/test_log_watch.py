"""Calls that wait until a log goes on: who is told, of what, and once."""

from __future__ import annotations

from typing import Any

import pytest

from pidkeeper.controller.node import log_watch
from pidkeeper.controller.node.log_watch import LogWatch
from pidkeeper.controller.state import requests
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.log_messages import WatchedLog
from tests.support.log_state import FIRST_OWN, batch, commit, data, drop, end, init, join, make, topic

TX = (FIRST_OWN, 0)


class Waiting:
    """A caller. `told`: the logs, or the refusal; given once at most. `gone`: it hung up."""

    def __init__(self) -> None:
        self.told: Any = None
        self.gone = False

    def done(self) -> bool:
        return self.gone or self.told is not None

    def set_result(self, result: Any, /) -> None:
        assert not self.done()
        self.told = sorted(result.logs)

    def set_exception(self, exception: RequestError, /) -> None:
        assert not self.done()
        self.told = exception.code


class World:
    """Topic `t` has the logs 0 to 2."""

    def __init__(self) -> None:
        self.machine, self.watch = make(), LogWatch()
        self.ask(topic("t", 3), init("tx"), join("tx", TX, "t", 0, 1))

    def ask(self, *asked: requests.Request) -> None:
        batch(self.machine, *asked)
        self.watch.applied(self.machine.logs)

    def wait(self, *logs: tuple[int, int, int]) -> Waiting:
        """A call that watches logs, each with its end and last stable offset."""
        caller = Waiting()
        self.watch.add(self.machine.logs, [WatchedLog(*one) for one in logs], caller)
        return caller


@pytest.fixture
def world() -> World:
    return World()


def test_whoever_watches_the_log_is_told_once(world: World) -> None:
    one, both, other = world.wait((0, 0, 0)), world.wait((0, 0, 0), (1, 0, 0)), world.wait((1, 0, 0))
    world.ask(commit(1, data(0)))
    assert (one.told, both.told, other.told) == ([0], [0], None)
    world.ask(commit(2, data(0), data(1)))
    assert (one.told, both.told, other.told) == ([0], [0], [1])


def test_all_logs_that_went_on_by_one_batch(world: World) -> None:
    caller = world.wait((0, 0, 0), (1, 0, 0), (2, 0, 0))
    world.ask(commit(1, data(2), data(0)))
    assert caller.told == [0, 2]


def test_what_has_gone_on_already_is_told_at_once(world: World) -> None:
    world.ask(commit(1, data(0)))
    assert world.wait((0, 0, 0), (1, 0, 0)).told == [0]
    assert world.wait((9, 0, 0)).told == [9], "a log that there is not is gone"
    assert world.wait((0, 1, 1)).told is None
    assert world.wait((0, 1, 0)).told == [0], "its end is known, and not that it is stable"


def test_the_end_of_a_transaction_moves_what_is_stable(world: World) -> None:
    first = world.wait((0, 0, 0))
    world.ask(commit(1, data(0, TX, 0, transactional=True)))
    assert first.told == [0]
    caller = world.wait((0, 1, 0), (1, 0, 0))
    world.ask(end("tx", TX))
    assert caller.told == [0]


def test_a_topic_that_is_deleted_is_told(world: World) -> None:
    caller = world.wait((0, 0, 0), (1, 0, 0))
    world.ask(drop("t"))
    assert caller.told == [0, 1]


def test_who_knows_more_waits_until_there_is_more(world: World) -> None:
    """It has read at another member, which was ahead."""
    caller = world.wait((0, 2, 2))
    world.ask(commit(1, data(0, records=2)))
    assert caller.told is None
    world.ask(commit(2, data(0)))
    assert caller.told == [0]


def test_whoever_hung_up_is_left_alone(world: World) -> None:
    caller, other = world.wait((0, 0, 0), (1, 0, 0)), world.wait((0, 0, 0))
    world.watch.remove(caller)
    world.watch.remove(caller)
    gone = world.wait((0, 0, 0))
    gone.gone = True
    world.ask(commit(1, data(0)))
    assert (caller.told, other.told, gone.told) == (None, [0], None)


def test_a_member_that_leads_no_more_says_so(world: World) -> None:
    caller = world.wait((0, 0, 0))
    world.watch.deposed()
    assert caller.told is ErrorCode.NOT_CONTROLLER
    world.ask(commit(1, data(0)))


def test_no_more_calls_and_logs_than_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_watch, "MAX_WATCHES", 2)
    monkeypatch.setattr(log_watch, "MAX_WATCHED", 3)
    first = world.wait((0, 0, 0))
    with pytest.raises(RequestError) as refused:
        world.wait((0, 0, 0), (1, 0, 0), (2, 0, 0))
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    second = world.wait((1, 0, 0), (2, 0, 0))
    with pytest.raises(RequestError):
        world.wait((0, 0, 0))
    world.watch.remove(second)
    world.wait((0, 0, 0))
    world.ask(commit(1, data(0)))
    assert first.told == [0]
    world.wait((0, 1, 1), (1, 0, 0))
    world.wait((2, 0, 0))
    with pytest.raises(RequestError):
        world.wait((2, 0, 0))
