"""The calls to one group take turns, and wait while the quorum is asked what becomes of it. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from pidkeeper.broker_agent.groups.members import Call
from pidkeeper.broker_agent.kafka.wire.groups.join_group import JoinGroupResponse
from pidkeeper.broker_agent.kafka.wire.groups.leave_group import LeaveGroupResponse
from pidkeeper.broker_agent.kafka.wire.groups.sync_group import SyncGroupResponse
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.groups import GroupMember

MAX_QUEUED: Final = 2000
"""Calls that wait for the quorum: each of `MAX_GROUP_SIZE` members has one, and may have left one behind when it lost
its connection."""

Answer = JoinGroupResponse | SyncGroupResponse | LeaveGroupResponse | ErrorCode
"""What a call is answered with; a code alone where nothing else is to be told."""


class Commit(NamedTuple):
    """What the quorum is to know of the group. Fields as of CommitGroupRequest."""

    after: int
    generation: int
    protocol_type: str
    members: tuple[GroupMember, ...]


class Turns:
    """`waiting`: whether the quorum is asked, so that nothing may change."""

    def __init__(self) -> None:
        self._answers: list[tuple[Call, Answer]] = []
        self._held_back: list[tuple[Call, Answer]] = []
        self._queue: deque[tuple[Call, Callable[[int], None]]] = deque()
        self._commit: Commit | None = None
        self._follow: Callable[[int], None] | None = None

    @property
    def waiting(self) -> bool:
        return self._follow is not None

    def take(self, now: int, call: Call, run: Callable[[int], None]) -> None:
        """Run a call, now or when its turn comes; `run` is told when that is."""
        if not self.waiting:
            run(now)
        elif len(self._queue) < MAX_QUEUED:
            self._queue.append((call, run))
        else:
            self.answer(call, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def answer(self, call: Call, answer: Answer) -> None:
        """`call` is answered."""
        self._answers.append((call, answer))

    def answer_behind(self, call: Call, answer: Answer) -> None:
        """Likewise, once the quorum has agreed to what it is asked, if it is."""
        (self._held_back if self.waiting else self._answers).append((call, answer))

    def ask(self, commit: Commit, follow: Callable[[int], None]) -> None:
        """Ask the quorum. When it agrees, `follow` is told when that is."""
        assert not self.waiting, "one commit at a time"
        self._commit, self._follow = commit, follow

    def agreed(self, now: int) -> None:
        """The quorum has agreed: calls have their turns, up to the next commit."""
        follow, self._follow = self._follow, None
        assert follow is not None, "no commit is under way"
        follow(now)
        self._answers += self._held_back
        self._held_back.clear()
        while self._queue and not self.waiting:
            self._queue.popleft()[1](now)

    def close(self, code: ErrorCode) -> None:
        """Whoever waits is answered with `code`; what the quorum is asked is nothing to this group any more."""
        self._answers += [(call, code) for call, _ in (*self._held_back, *self._queue)]
        self._held_back.clear()
        self._queue.clear()
        self._commit = self._follow = None

    def take_answers(self) -> list[tuple[Call, Answer]]:
        """What is to be told, once."""
        answers, self._answers = self._answers, []
        return answers

    def take_commit(self) -> Commit | None:
        """What the quorum is to be asked, once."""
        commit, self._commit = self._commit, None
        return commit
