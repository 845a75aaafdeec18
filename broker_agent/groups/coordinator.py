"""Consumer groups at the agent that coordinates them.

Which agent that is follows from the directory; the quorum keeps what must not be lost, and decides between two agents
that both believe to be the one: whoever is too late drops the group, and its members look for the coordinator anew.
So a group is loaded from the quorum when it is first asked for, and dropped when the directory names another agent,
when the quorum has heard of another one, and when this agent is registered anew.

A client is told COORDINATOR_LOAD_IN_PROGRESS while the quorum does not answer, NOT_COORDINATOR when it is to look for
the coordinator anew, and COORDINATOR_NOT_AVAILABLE at a bound: all clients come again after each of these. But the
first ends a consumer of aiokafka that sent a heartbeat, or asked for its assignment. So a heartbeat is told that all is
well, as by Kafka's `GroupCoordinatorService`, and who asks for an assignment is told to join again, as by the
coordinator that Kafka had before: no rebalance outlives the loss of what was held of it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import uuid
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, TypeVar

from pidkeeper.broker_agent.backoff import Random, backoff_seconds
from pidkeeper.broker_agent.coordinator.directory import Directory, Node
from pidkeeper.broker_agent.coordinator.transactions import SessionView
from pidkeeper.broker_agent.data.byte_budget import ByteBudget
from pidkeeper.broker_agent.groups.calls import GroupCalls
from pidkeeper.broker_agent.groups.checks import refused_group, refused_join
from pidkeeper.broker_agent.groups.classic_group import ClassicGroup, State
from pidkeeper.broker_agent.groups.members import Call, Client
from pidkeeper.broker_agent.groups.settings import GroupSettings
from pidkeeper.broker_agent.groups.turns import Answer, Commit
from pidkeeper.broker_agent.kafka.wire.groups.describe_groups import DescribedGroup
from pidkeeper.broker_agent.kafka.wire.groups.heartbeat import HeartbeatRequest
from pidkeeper.broker_agent.kafka.wire.groups.join_group import JoinGroupRequest, JoinGroupResponse
from pidkeeper.broker_agent.kafka.wire.groups.leave_group import LeaveGroupRequest, LeaveGroupResponse
from pidkeeper.broker_agent.kafka.wire.groups.sync_group import SyncGroupRequest, SyncGroupResponse
from pidkeeper.broker_agent.session.refusals import STALE
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.group_messages import CommitGroupRequest, DeleteGroupRequest, FindGroupRequest
from pidkeeper.protocol.metadata_version import GROUPS

MAX_GROUPS_HELD: Final = 10_000
"""As many as the quorum keeps. At the bound an idle one makes room."""

MAX_GROUPS_BYTES: Final = 64 * 1024 * 1024
"""Of the members of all groups, with their metadata and assignments: 64 groups of the largest kind."""

MAX_LOADS: Final = 16
"""Groups that are asked for at the quorum at a time, each by a call of its own."""

COMMIT_SECONDS: Final = 6.0
"""How long the quorum is asked to take a generation: Kafka's least session timeout, and two calls of the client."""

IDLE_SECONDS: Final = 60.0
"""How long a group without members is kept after it was last asked for."""

LOOK_SECONDS: Final = 1.0
"""Between two looks at who coordinates the groups that are held: so long may callers wait at the wrong agent."""

LOOKED_AT_ONCE: Final = 2000
"""Agents weighed between two turns of the event loop: two milliseconds."""

CALM_SECONDS: Final = 60.0
"""A group whose members came together so long ago, and whom nothing has driven apart since, has come to rest."""

STALL_SECONDS: Final = 1.0
"""A timer that rings so late tells that this agent stood still. Signs of life wait in its sockets: for as long again
nobody is given up on."""

RETRY_BASE_SECONDS: Final = 0.05
RETRY_MAX_SECONDS: Final = 1.0

_TOO_LARGE: Final = frozenset({ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.MESSAGE_TOO_LARGE})
"""Who comes again after these hears them again."""

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


def _new_id() -> str:
    return str(uuid.uuid4())


class _Held:
    """A group that is coordinated here. `known`: whether the quorum had heard of it. `nodes`: the agents that kept
    records when it was last seen to be this agent's; `used`: when it was last asked for. `came_together`: when its
    newest generation was taken; `restless`: since when it has not come to rest, None if it has."""

    __slots__ = ("came_together", "due", "group", "known", "nodes", "restless", "timer", "used")

    def __init__(self, group: ClassicGroup, nodes: tuple[Node, ...], now: float, *, known: bool) -> None:
        self.group = group
        self.known = known
        self.nodes = nodes
        self.used = now
        self.due = math.inf
        self.timer: asyncio.TimerHandle | None = None
        self.came_together = now
        self.restless: float | None = None

    def restless_seconds(self, now: float) -> float:
        """How long it has not come to rest, with all of its members or without any, as far as it was looked at."""
        together = self.group.state in {State.STABLE, State.EMPTY}
        if together and now - self.came_together >= CALM_SECONDS:
            self.restless = None
        elif self.restless is None:
            self.restless = now
        return 0.0 if self.restless is None else now - self.restless


class Coordinator:
    """Answers the members of groups. Time is that of the running event loop.

    `new_id()`: names that nobody else gives. `run` has to run beside it. `rebalances`, `lost`: generations that the
    quorum took, and those that it did not take because another agent had gone on. `restless_seconds`: how long a group
    has not come to rest, at the last look at all of them; of all the longest.
    """

    def __init__(
        self,
        session: SessionView,
        directory: Directory,
        calls: GroupCalls,
        rng: Random,
        settings: GroupSettings,
        new_id: Callable[[], str] = _new_id,
    ) -> None:
        self._session = session
        self._directory = directory
        self._calls = calls
        self._rng = rng
        self._settings = settings
        self._new_id = new_id
        self._epoch: int | None = None
        self._nodes: tuple[Node, ...] = ()
        # In the order of their last use.
        self._held: dict[str, _Held] = {}
        self._loads: dict[str, asyncio.Task[_Held | ErrorCode]] = {}
        self._commits: set[asyncio.Task[None]] = set()
        self._stopped = False
        self.room = ByteBudget(MAX_GROUPS_BYTES)
        self.rebalances = 0
        self.lost = 0
        self.restless_seconds = 0.0

    @property
    def groups(self) -> int:
        """Groups that are held."""
        return len(self._held)

    @property
    def held(self) -> Iterator[ClassicGroup]:
        """Those."""
        return (held.group for held in self._held.values())

    # What members ask for.

    async def join_group(self, request: JoinGroupRequest, client: Client) -> JoinGroupResponse:
        answer = refused_join(request, self._settings) or await self._ask(
            request.group_id, lambda group, now, call: group.join(now, call, request, client, self._new_id())
        )
        return _as(JoinGroupResponse, answer, lambda code: JoinGroupResponse(request.member_id, code))

    async def sync_group(self, request: SyncGroupRequest) -> SyncGroupResponse:
        answer = await self._ask(request.group_id, lambda group, now, call: group.sync(now, call, request))
        if answer is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            answer = ErrorCode.REBALANCE_IN_PROGRESS
        return _as(SyncGroupResponse, answer, SyncGroupResponse)

    async def leave_group(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        answer = await self._ask(request.group_id, lambda group, now, call: group.leave(now, call, request))
        return _as(LeaveGroupResponse, answer, LeaveGroupResponse)

    async def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        held = await self._find(request.group_id)
        if held is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE
        return held if isinstance(held, ErrorCode) else held.group.heartbeat(self._now(), request)

    def before_commit(self, group_id: str, member_id: str, generation: int, instance_id: str | None) -> ErrorCode:
        """Whether the quorum may be asked to commit offsets of a member, which is a sign of its life.

        Those of nobody (-1, "" and None) concern no member.
        """
        if generation < 0 and not member_id and instance_id is None:
            return ErrorCode.NONE
        held = self._current(group_id)
        if isinstance(held, ErrorCode):
            return held
        return held.group.before_commit(self._now(), member_id, generation, instance_id) if held else ErrorCode.NONE

    # What others ask for.

    async def describe_group(self, group_id: str) -> DescribedGroup:
        """An unknown group is a dead one, with GROUP_ID_NOT_FOUND beside (KIP-1043): older versions tell none."""
        held = self._current(group_id)
        if isinstance(held, _Held) and held.group.idle:
            # The quorum may have forgotten it meanwhile, or may have heard of offsets.
            self._drop(held, ErrorCode.NOT_COORDINATOR)
        held = await self._find(group_id)
        if isinstance(held, ErrorCode):
            return DescribedGroup(group_id, held.kafka_code)
        if not held.known and held.group.idle:
            detail = f"group {group_id} is not known"
            return DescribedGroup(group_id, ErrorCode.GROUP_ID_NOT_FOUND.kafka_code, "Dead", error_message=detail)
        return held.group.describe()

    def state(self, group_id: str) -> State | None:
        """Of a group that is held."""
        held = self._held.get(group_id)
        return None if held is None else held.group.state

    async def delete_group(self, group_id: str) -> ErrorCode:
        """Forget a group without members (KIP-229)."""
        held = self._current(group_id)
        if isinstance(held, ErrorCode):
            return held
        if held is not None and not held.group.idle:
            return ErrorCode.NON_EMPTY_GROUP
        if held is not None:
            self._drop(held, ErrorCode.NOT_COORDINATOR)
        try:
            await self._calls.delete_group(DeleteGroupRequest(group_id, self._session.broker_id, self._epoch))
        except RequestError as error:
            if error.code in {ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND}:
                return error.code
            self._doubt(error)
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE

    # What happens besides.

    async def run(self) -> None:
        """Drop what this agent does not coordinate any more, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = asyncio.get_running_loop().time()
            before = now - IDLE_SECONDS
            self._refused()
            self.restless_seconds = max((one.restless_seconds(now) for one in self._held.values()), default=0.0)
            weighed = 0
            for held in [*self._held.values()]:
                if held.group.idle and held.used < before:
                    self._drop(held, ErrorCode.NOT_COORDINATOR)
                elif held.nodes is not self._nodes and self._held.get(held.group.group_id) is held:
                    self._current(held.group.group_id)
                    weighed += len(self._nodes)
                if weighed >= LOOKED_AT_ONCE:
                    weighed = 0
                    await asyncio.sleep(0)

    async def adopt(self, group_id: str) -> None:
        """Go on with a group whose members may be gone, if it is this agent's: nobody else would find that out."""
        if self._current(group_id) is None:
            await self._find(group_id)

    async def stop(self) -> None:
        """Coordinate nothing any more. Whoever waits is answered."""
        self._stopped = True
        for held in [*self._held.values()]:
            self._drop(held, ErrorCode.NOT_COORDINATOR)
        tasks: list[asyncio.Task[Any]] = [*self._loads.values(), *self._commits]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Groups come and go.

    async def _ask(self, group_id: str, act: Callable[[ClassicGroup, int, Call], None]) -> Answer:
        held = await self._find(group_id)
        if isinstance(held, ErrorCode):
            return held
        call: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        act(held.group, self._now(), call)
        self._settle(held)
        return await call

    async def _find(self, group_id: str) -> _Held | ErrorCode:
        """The group, or why it is not coordinated here."""
        held = self._current(group_id)
        if held is not None:
            return held
        load = self._loads.get(group_id)
        if load is None:
            if len(self._loads) >= MAX_LOADS:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            load = self._loads[group_id] = _begin(self._load(group_id))
            load.add_done_callback(lambda _: self._loads.pop(group_id))
        # Whoever goes away does not take it along, and `stop` ends it.
        await asyncio.wait([load])
        return ErrorCode.NOT_COORDINATOR if load.cancelled() else load.result()

    def _current(self, group_id: str) -> _Held | ErrorCode | None:
        """The group, why it is not coordinated here, or None if it has to be loaded."""
        refused = refused_group(group_id) or self._refused()
        if refused is not None:
            return refused
        held = self._held.get(group_id)
        looked = held is not None and held.nodes is self._nodes
        if not looked and self._directory.group_coordinator(group_id).id != self._session.broker_id:
            if held is not None:
                self._drop(held, ErrorCode.NOT_COORDINATOR)
            return ErrorCode.NOT_COORDINATOR
        if held is not None:
            held.nodes = self._nodes
            held.used = asyncio.get_running_loop().time()
            self._held[group_id] = self._held.pop(group_id)
        return held

    def _refused(self) -> ErrorCode | None:
        """Why no group is coordinated here. Under another registration than before all are loaded anew: the quorum may
        have called this agent dead meanwhile."""
        if self._epoch != self._session.broker_epoch:
            for held in [*self._held.values()]:
                self._drop(held, ErrorCode.NOT_COORDINATOR)
            self._epoch = self._session.broker_epoch
        if self._nodes != self._directory.keepers:
            self._nodes = self._directory.keepers
        if self._stopped:
            return ErrorCode.NOT_COORDINATOR
        if self._epoch is None or not self._nodes:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return None if self._session.metadata_version >= GROUPS else ErrorCode.COORDINATOR_NOT_AVAILABLE

    async def _load(self, group_id: str) -> _Held | ErrorCode:
        epoch = self._epoch
        try:
            known = (await self._calls.find_group(FindGroupRequest(group_id))).group
        except RequestError as error:
            _log.debug("group %r is not loaded: %s", group_id, error)
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        refused = self._current(group_id)
        if isinstance(refused, ErrorCode) or self._epoch != epoch:
            return refused or ErrorCode.NOT_COORDINATOR
        group = ClassicGroup(group_id, self.room, self._settings)
        if not self._make_place() or (known is not None and not group.load(self._now(), known)):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        now = asyncio.get_running_loop().time()
        held = self._held[group_id] = _Held(group, self._nodes, now, known=known is not None)
        self._settle(held)
        return held

    def _make_place(self) -> bool:
        """Whether one more group may be held."""
        if len(self._held) >= MAX_GROUPS_HELD:
            idle = next((one for one in self._held.values() if one.group.idle), None)
            if idle is not None:
                self._drop(idle, ErrorCode.NOT_COORDINATOR)
        return len(self._held) < MAX_GROUPS_HELD

    def _drop(self, held: _Held, code: ErrorCode) -> None:
        """Whoever waits is answered with `code`."""
        if self._held.get(held.group.group_id) is held:
            del self._held[held.group.group_id]
        held.group.close(code)
        self._settle(held)

    # What groups have to say.

    def _settle(self, held: _Held) -> None:
        """Pass on what a group has to say. Called whenever something happened to it."""
        group = held.group
        for call, answer in group.take_answers():
            assert isinstance(call, asyncio.Future), f"a call of {group.group_id!r}"
            if not call.done():
                call.set_result(answer)
        commit = group.take_commit()
        if commit is not None:
            task = _begin(self._commit(held, commit))
            self._commits.add(task)
            task.add_done_callback(self._commits.discard)
        self._wake_in_time(held)

    def _wake_in_time(self, held: _Held) -> None:
        """One timer for each group: signs of life put deadlines off, and it finds that out when it rings."""
        deadline = held.group.deadline
        due = math.inf if deadline is None else deadline / 1000
        if held.timer is not None and (deadline is None or due < held.due):
            held.timer.cancel()
            held.timer = None
        if held.timer is None and deadline is not None:
            self._set_timer(held, due)

    def _set_timer(self, held: _Held, due: float) -> None:
        held.due = due
        held.timer = asyncio.get_running_loop().call_at(due, self._ring, held)

    def _ring(self, held: _Held) -> None:
        held.timer = None
        now = asyncio.get_running_loop().time()
        if now - held.due >= STALL_SECONDS:
            self._set_timer(held, now + STALL_SECONDS)
            return
        held.group.tick(self._now())
        self._settle(held)

    async def _commit(self, held: _Held, commit: Commit) -> None:
        """Ask the quorum to take a generation until it answers, but not for ever."""
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        version = None
        try:
            async with asyncio.timeout(COMMIT_SECONDS):
                version = await self._taken(held.group.group_id, commit)
            code = ErrorCode.NOT_COORDINATOR
        except TimeoutError:
            _log.warning("the quorum does not answer for group %r: its members come again", held.group.group_id)
        except RequestError as error:
            _log.warning("the quorum does not take group %r: %s", held.group.group_id, error)
            if error.code in _TOO_LARGE:
                code = ErrorCode.GROUP_MAX_SIZE_REACHED
        if held.group.state is State.DEAD:
            return
        if version is None:
            # Whatever the quorum has of it is loaded when it is asked for again.
            self._drop(held, code)
            return
        self.rebalances += 1
        held.came_together = asyncio.get_running_loop().time()
        held.group.committed(self._now(), version)
        self._settle(held)

    async def _taken(self, group_id: str, commit: Commit) -> int | None:
        """The group's new version; None if somebody else went on with it. Raises RequestError."""
        epoch = self._epoch
        assert epoch is not None, "groups are held under a registration"
        after, generation, protocol_type, members = commit
        broker_id = self._session.broker_id
        request = CommitGroupRequest(broker_id, epoch, group_id, after, generation, protocol_type, [*members])
        for attempt in itertools.count(1):
            try:
                answer = await self._calls.commit_group(request)
            except RequestError as error:
                self._doubt(error)
                if error.code in STALE or not error.code.retriable:
                    raise
                pause = backoff_seconds(attempt, self._rng, base=RETRY_BASE_SECONDS, maximum=RETRY_MAX_SECONDS)
                await asyncio.sleep(max(pause, error.throttle_time_ms / 1000))
                continue
            if answer.taken and answer.group is not None:
                return answer.group.version
            self.lost += 1
            _log.info("group %r goes on at another agent: %s", group_id, answer.group)
            return None
        raise AssertionError

    def _doubt(self, error: RequestError) -> None:
        if error.code in STALE and self._epoch is not None:
            self._session.doubt_epoch(self._epoch)

    def _now(self) -> int:
        # In whole microseconds first: a timer may ring a trifle before its time, and is not to ring again at once.
        return round(asyncio.get_running_loop().time() * 1_000_000) // 1000


def _begin(work: Coroutine[Any, Any, _Answer]) -> asyncio.Task[_Answer]:
    return asyncio.get_running_loop().create_task(work)


def _as(kind: type[_Answer], answer: Answer, refused: Callable[[int], _Answer]) -> _Answer:
    """The answer to a call of one kind, which `refused` makes of a code."""
    if isinstance(answer, ErrorCode):
        return refused(answer.kafka_code)
    assert isinstance(answer, kind), f"{answer} where a {kind.__name__} was asked for"
    return answer
