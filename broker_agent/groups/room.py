"""The parts that serve consumer groups, put together around the calls to the controllers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pidkeeper.broker_agent.backoff import Random
from pidkeeper.broker_agent.coordinator.directory import Directory
from pidkeeper.broker_agent.coordinator.late_requests import LateRequests
from pidkeeper.broker_agent.groups.adopting import Adopter
from pidkeeper.broker_agent.groups.answering import GroupAnswers
from pidkeeper.broker_agent.groups.calls import GroupCalls
from pidkeeper.broker_agent.groups.coordinator import Coordinator
from pidkeeper.broker_agent.groups.settings import GroupSettings
from pidkeeper.broker_agent.session.session import Session


class GroupRoom:
    """What serves groups. It belongs to one agent: `session`, `directory` and `late_requests` are its own."""

    def __init__(
        self,
        settings: GroupSettings,
        calls: GroupCalls,
        session: Session,
        directory: Directory,
        late_requests: LateRequests,
        rng: Random,
    ) -> None:
        self.coordinator = Coordinator(session, directory, calls, rng, settings)
        self.answers = GroupAnswers(calls, session, directory, self.coordinator, late_requests)
        self._adopter = Adopter(self.coordinator, calls)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, on_failure: Callable[[BaseException], None]) -> None:
        """Begin with what nobody asks for. `on_failure` is told of what nobody foresaw."""

        def on_done(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                on_failure(error)

        for work in (self.coordinator.run(), self._adopter.run()):
            task = asyncio.create_task(work)
            task.add_done_callback(on_done)
            self._tasks.append(task)

    async def stop(self) -> None:
        """Coordinate nothing any more. Whoever waits is answered."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.coordinator.stop()
