"""The roller: tails of logs become segments, by the agents that lead them, one log at a time on each agent.

Any agent may roll any log: what counts is decided by the quorum, which takes a segment only where the log is still as
its maker knew it. So two that roll the same one waste a little work, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Final

from pidkeeper.broker_agent.backoff import Random, backoff_seconds
from pidkeeper.broker_agent.data.calls import LogCalls, Registration
from pidkeeper.broker_agent.data.counters import Counters
from pidkeeper.broker_agent.data.leading import Leaders
from pidkeeper.broker_agent.data.roll_gathering import DamagedLogError, NothingToRollError, UnreadError
from pidkeeper.broker_agent.data.roll_making import SegmentMaker
from pidkeeper.broker_agent.data.segment_writing import NotRolledError, RollRefusedError, SegmentWriter
from pidkeeper.broker_agent.data.topics import Topics
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.segment_messages import DueLog, FindRollsRequest

MAX_ASKED: Final = 100
"""Logs in one answer: with the names of eight segments each, of 400 bytes at most, they make less than the 512 KiB that
an answer may have."""

ROLL_SECONDS: Final = 1.0
IDLE_SECONDS: Final = 2.0
"""Between two looks for logs that are due, where there were some, and where there were none; half as much more at
most."""

PATIENCE_SECONDS: Final = 60.0
"""How long a log of another agent stays due before it is rolled here: that one may not roll, or be about to die."""

REST_SECONDS: Final = 600.0
"""For a log that has damage: an operator has to look at it, and each look of ours reads its tail."""

REFUSED_SECONDS: Final = 60.0
"""For a log whose segment store or quorum refuse: others have their turn."""

OVERTAKEN_SECONDS: Final = 5.0
"""For a log that was not as its roller knew it: somebody else rolls it, or what is asked of it is wrong."""

MAX_RESTING: Final = 10_000
"""Logs at rest; forgotten together, above that. No more logs exist."""

BUSY_SECONDS: Final = 0.05
"""Before the next look where a log had more than one segment takes."""

RESTS: Final = 2
"""Times as long as a roll took the next one waits: event loop, disk and leader belong to those who produce."""

MAX_REST_SECONDS: Final = 1.0
"""A roll may have taken long because nobody answered it."""

HURRIED_ROWS: Final = 50_000
"""Of the logs that are due, from which on no roll waits: a quarter of what the quorum holds. Nor does one where more
logs are due than one answer has."""

AWAY_SECONDS: Final = 30.0
"""Between two looks at most, while store or quorum do not answer."""

_log = logging.getLogger(__name__)


class Roller:
    """Rolls logs from `start` to `stop`."""

    def __init__(
        self,
        calls: LogCalls,
        session: Registration,
        topics: Topics,
        leaders: Leaders,
        maker: SegmentMaker,
        writer: SegmentWriter,
        counters: Counters,
        rng: Random,
    ) -> None:
        self._calls = calls
        self._session = session
        self._topics = topics
        self._leaders = leaders
        self._maker = maker
        self._writer = writer
        self._counters = counters
        self._rng = rng
        self._task: asyncio.Task[None] | None = None
        self._due_since: dict[int, tuple[int, float]] = {}
        self._resting: dict[int, float] = {}
        self._failures = 0
        self._refused = ""

    def start(self) -> None:
        """Roll from now on."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._roll_forever())

    async def stop(self) -> None:
        """Roll no more. What is under way is left: no log reads from it, or it is whole."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def roll_due(self) -> float:
        """Roll the logs that are due here, each once; for how long to rest then, in seconds."""
        if not self._writer.may_write:
            return ROLL_SECONDS
        try:
            answer = await self._calls.find_rolls(FindRollsRequest(MAX_ASKED))
            due = await self._own(answer.logs)
        except RequestError as error:
            _log.debug("which logs are to be rolled is not known: %s", error)
            return self._away()
        pause = ROLL_SECONDS if answer.logs else IDLE_SECONDS
        hurried = len(answer.logs) == MAX_ASKED or sum(one.rows for one in answer.logs) >= HURRIED_ROWS
        async for one in _in_turn(due, RESTS * (not hurried)):
            try:
                if await self._roll(one, answer.objects, answer.segment_bytes):
                    pause = BUSY_SECONDS
            except RollRefusedError as error:
                self._refuse(one.log, error)
                return self._away()
            except (UnreadError, NotRolledError, RequestError) as error:
                _log.debug("a log is not rolled yet: %s", error)
                return self._away()
            except NothingToRollError as error:
                _log.debug("%s", error)
            except DamagedLogError as error:
                self._counters.rolls_damaged += 1
                self._rest(one.log, REST_SECONDS)
                _log.error("a log is not rolled, and nothing of it is lost by that: %s", error)
            except Exception:  # noqa: BLE001 - the edge of a task
                # Whatever is wrong with one log, or with us: the others have their turn.
                self._counters.duties_failed += 1
                self._rest(one.log, REST_SECONDS)
                _log.exception("log %d is not rolled: this is a bug", one.log)
        self._failures = 0
        return pause

    async def _roll_forever(self) -> None:
        while True:
            try:
                pause = await self.roll_due()
            except Exception:  # noqa: BLE001 - the edge of a task
                self._counters.duties_failed += 1
                _log.exception("no logs are rolled now: this is a bug")
                pause = self._away()
            await asyncio.sleep(self._rng.uniform(pause, 1.5 * pause))

    async def _roll(self, due: DueLog, objects: Sequence[str], segment_bytes: int) -> bool:
        """Whether the log has more to be rolled."""
        roll = await self._maker.make(due, objects, segment_bytes)
        if not await self._writer.write(due, roll.segment, roll.replaces):
            self._counters.rolls_refused += 1
            self._rest(due.log, OVERTAKEN_SECONDS)
            _log.debug("log %d is not as it was: nothing is rolled", due.log)
            return False
        self._counters.rolls += 1
        self._counters.rolled_bytes += roll.segment.size
        self._refused = ""
        return roll.full

    async def _own(self, logs: Sequence[DueLog]) -> list[DueLog]:
        """Those that this agent is to roll. Raises RequestError."""
        now = _now()
        self._resting = {log: until for log, until in self._resting.items() if until > now}
        since = self._due_since
        # Whoever rolls a log moves where its tail starts.
        self._due_since = {
            one.log: since[one.log] if since.get(one.log, (-1, 0.0))[0] == one.tail_start else (one.tail_start, now)
            for one in logs
        }
        topics = await self._topics.find({one.topic for one in logs})
        own = []
        for one in logs:
            topic = topics.get(one.topic)
            if one.log in self._resting or topic is None or topic.first_log + one.partition != one.log:
                continue
            waited = now - self._due_since[one.log][1]
            leaders = await self._leaders.leaders(topic)
            if leaders[one.partition] == self._session.broker_id or waited > PATIENCE_SECONDS:
                own.append(one)
        return own

    def _rest(self, log: int, seconds: float) -> None:
        if len(self._resting) >= MAX_RESTING:
            self._resting.clear()
        self._resting[log] = _now() + seconds

    def _refuse(self, log: int, error: RollRefusedError) -> None:
        self._counters.rolls_refused += 1
        self._rest(log, REFUSED_SECONDS)
        if str(error) != self._refused:
            # Each roll would say it again.
            self._refused = str(error)
            _log.error("a log is not rolled: %s", error)

    def _away(self) -> float:
        self._failures += 1
        return backoff_seconds(self._failures, self._rng, base=ROLL_SECONDS, maximum=AWAY_SECONDS)


async def _in_turn(due: Sequence[DueLog], rests: int) -> AsyncIterator[DueLog]:
    """One after another, each with a rest behind it that is `rests` times as long as it took."""
    for one in due:
        began = _now()
        yield one
        await asyncio.sleep(min(rests * (_now() - began), MAX_REST_SECONDS))


def _now() -> float:
    return asyncio.get_running_loop().time()
