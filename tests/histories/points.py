"""Agents that die in the midst of what they do: of each passage of a point a share is the last thing that one does.

An agent that dies at a point does so before it goes on, or some milliseconds later, with its call on the way.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.agent import Agent
from tests.simulation.world import MILLISECOND

if TYPE_CHECKING:
    from tests.histories.history import LogHistory

LATER: Final = (1, 30)
"""Milliseconds, in half of the cases: the quorum may have answered by then."""

BACK: Final = (100, 1_500)
"""Milliseconds until another process has the place of one that died."""

_CALLS: Final = {"commit_object": "commit", "commit_segment": "roll_commit", "objects_deleted": "collected"}


class Points:
    """Watches all agents."""

    def __init__(self, history: LogHistory) -> None:
        self._history = history
        self._rng: random.Random = history.world.stream("points")

    def watch(self, agent: Agent) -> None:
        """See that `agent` passes the points of what it does."""
        data = agent.data
        assert data is not None, "every agent of a history has data"
        store, client = data.port, agent._agent.client
        self._watch(agent, store, "put", _of_put)
        self._watch(agent, store, "delete", self._of_delete)
        for name, point in _CALLS.items():
            self._watch(agent, client, name, partial(_always, point))

    def _watch(self, agent: Agent, part: object, name: str, point_of: Callable[[Any], str]) -> None:
        """See that the agent passes a point with each such call of a part of it."""
        call: Callable[..., Awaitable[Any]] = getattr(part, name)

        async def passing(*args: Any) -> Any:
            if self._dies(agent, point_of(args[0])):
                await asyncio.get_running_loop().create_future()
            return await call(*args)

        setattr(part, name, passing)

    def _of_delete(self, names: Sequence[str]) -> str:
        """Of what logs needed once, or of orphans, among them what an agent takes back itself."""
        return "collect" if names[0] in self._history.plane.monitor.references.garbage else "sweep"

    def _dies(self, agent: Agent, point: str) -> bool:
        """Whether it goes no further."""
        history, rng = self._history, self._rng
        share = history.plan.kills.get(point, 0.0)
        if not share or history.healed or rng.random() >= share:
            return False
        now = rng.random() < 0.5
        delay = 0 if now else rng.randrange(*LATER) * MILLISECOND
        history.world.at(delay, history.kill_agent, agent, f"agent_died_at_{point}")
        return now


def _always(point: str, _: object) -> str:
    return point


def _of_put(name: str) -> str:
    return "roll_put" if name.startswith("segments/") else "put"
