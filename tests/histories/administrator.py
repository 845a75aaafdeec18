"""Who creates topics, deletes them amid traffic and creates others of the same names, and has records deleted."""

from __future__ import annotations

import random
import uuid
from typing import TYPE_CHECKING, Final

from pidkeeper.protocol.segment_messages import HIGH_WATERMARK
from tests.simulation.data_agent import AgentData
from tests.simulation.log_model import ModelLog
from tests.simulation.world import MILLISECOND, SECOND, Violation

if TYPE_CHECKING:
    from tests.histories.history import LogHistory

LOOK: Final = (50, 300)
"""Milliseconds between two looks whether a topic is there."""

FIRST: Final = 2 * SECOND
"""Nothing is deleted before."""

BEYOND: Final = 5
"""Offsets behind the end, below which nothing can be deleted."""


class Administrator:
    """`created`: topics, each time that one was."""

    def __init__(self, history: LogHistory) -> None:
        self._history = history
        self._world = history.world
        self._rng: random.Random = history.world.stream("administrator")
        self._ids: dict[int, uuid.UUID] = {}
        self.created = 0

    def start(self) -> None:
        """Begin."""
        history, plan = self._history, self._history.plan
        for number in range(history.plane.load.topics):
            self._world.at(self._rng.randrange(200) * MILLISECOND, self._look, number)
        if plan.topics:
            self._world.at(FIRST + self._pause(plan.topics), self._delete_topic)
        if plan.records:
            self._world.at(FIRST + self._pause(plan.records), self._delete_records)

    def _pause(self, average: int) -> int:
        return int(average * (0.3 + 1.4 * self._rng.random()))

    def _agent(self) -> AgentData | None:
        agent = self._history.plane.any_agent()
        return None if agent is None else agent.data

    def _look(self, number: int) -> None:
        """Have a topic created that is not there; by the same id until it is."""
        plane = self._history.plane
        if plane.draining:
            return
        self._world.at(self._rng.randrange(*LOOK) * MILLISECOND, self._look, number)
        place = number * plane.load.partitions
        if plane.log(place) is not None:
            if self._ids.pop(number, None) is not None:
                self.created += 1
            return
        topic_id = self._ids.setdefault(number, uuid.UUID(int=self._rng.getrandbits(128)))
        plan = self._history.plan
        retention = self._rng.choice(plan.retention_ms), self._rng.choice(plan.retention_bytes)
        if (agent := self._agent()) is not None:
            agent.create_topic(topic_id, plane.place(place)[0], plane.load.partitions, *retention)

    def _delete_topic(self) -> None:
        history, rng = self._history, self._rng
        if history.healed:
            return
        self._world.at(self._pause(history.plan.topics), self._delete_topic)
        place = rng.randrange(history.plane.load.topics) * history.plane.load.partitions
        log, agent = history.plane.log(place), self._agent()
        if log is not None and agent is not None:
            self._world.fault("topic_deleted_amid_traffic")
            agent.delete_topic(log.topic, rng.choice((None, log.record.topic_id)))

    def _delete_records(self) -> None:
        history = self._history
        if history.healed:
            return
        self._world.at(self._pause(history.plan.records), self._delete_records)
        log, agent = history.plane.log(self._rng.randrange(history.plane.places)), self._agent()
        if log is None or agent is None:
            return
        offset = self._offset(log)
        history.plane.monitor.starts.ask(log.topic, log.partition, offset)
        asked = self._world.now

        def done(code: int, low_watermark: int) -> None:
            if code == 0:
                self._check(log, asked, offset, low_watermark)

        self._world.fault("records_deleted_on_demand")
        agent.delete_records(log.topic, log.partition, offset, done)

    def _offset(self, log: ModelLog) -> int:
        ends, rng = log.ends, self._rng
        within = rng.randint(ends.start, ends.end)
        return rng.choice((HIGH_WATERMARK, within, within, ends.last_stable, ends.end + BEYOND))

    def _check(self, log: ModelLog, asked: int, offset: int, told: int) -> None:
        """Whoever is told that records are deleted finds them gone, and no more than asked for by that."""
        logs = self._history.plane.monitor.model.logs_since(log.topic, log.partition, asked)
        if not any(max(offset, 0) <= told <= one.ends.start for one in logs):
            ends = [one.ends for one in logs]
            raise Violation("records-deleted", f"below {offset} of {log.topic}: told {told}, the logs are {ends}")
