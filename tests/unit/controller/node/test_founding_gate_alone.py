"""What the gate hands on, and what it has made durable before: with stand-ins, one call at a time."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any

import pytest

from pidkeeper.controller.answers import Callback
from pidkeeper.controller.node.founding_gate import FoundingGate, founding_terms
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.storage.founding import Founding
from pidkeeper.protocol.messages import FoundQuorumRequest
from tests.crash.facts import settings

FOUNDING_ID = uuid.UUID(int=5)
TOLD = ["received", "link_up", "link_lost", "tick"]


class World:
    """Everything beside the gate; `calls` in their order. Jobs of the storage thread wait in `jobs`."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.jobs: list[Callable[[], None]] = []
        self.peers: dict[int, Any] = {}
        self.identity = SimpleNamespace(founding_id=None)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self.calls.append(name)

    def run(self, job: Callable[[], None]) -> None:
        self.jobs.append(job)

    def report(self, callback: Callable[[], None]) -> None:
        callback()

    def found(self, founding: Founding) -> None:
        self.calls.append(f"durable {founding.founding_id}")


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def gate(world: World) -> FoundingGate:
    storage: Any = SimpleNamespace(directory=world, machine=StateMachine("c"), founding=None)
    stand_in: Any = world
    return FoundingGate(settings(PurePath("/data")), storage, stand_in, stand_in, stand_in)


def say_everything(gate: FoundingGate) -> None:
    gate.received([])
    gate.link_up(2)
    gate.link_lost(2)
    gate.tick()


def test_everything_is_handed_on_once_the_founding_is_durable_and_nothing_before(
    gate: FoundingGate, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[Any] = []
    say_everything(gate)
    gate.found(FoundQuorumRequest(FOUNDING_ID, [1]), Callback(lambda answer, refusal: answers.append(answer)))
    assert f"founding a new quorum, {FOUNDING_ID}, of the voters [1]" in caplog.text
    say_everything(gate)
    assert (world.calls, answers) == ([], [])
    (job,) = world.jobs
    job()
    assert world.calls == [f"durable {FOUNDING_ID}", "introduce_as", "redial"]
    assert [answer.founding_id for answer in answers] == [FOUNDING_ID]
    say_everything(gate)
    assert world.calls[3:] == TOLD


def test_who_joins_says_whom(gate: FoundingGate, world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world.peers[1] = SimpleNamespace(blank=founding_terms(settings(PurePath("/data"))), founding_id=None)
    gate.introduced(1)
    assert not world.jobs, "that one is blank itself"
    world.peers[1] = SimpleNamespace(blank=None, founding_id=FOUNDING_ID)
    gate.introduced(1)
    assert f"joining founding {FOUNDING_ID}, of which member 1 is" in caplog.text
    assert len(world.jobs) == 1
