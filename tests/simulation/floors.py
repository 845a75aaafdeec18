"""Callers who would burn the ID space with one call, and the operator who comes near its end by force (decision 0020).

All of them use the HTTP interface, with the operators' token or without. What is judged is the log:

- no floor leaves less than a block, whoever asked for it;
- a jump beyond the bound was asked for by force, with the operators' token, and with just that number;
- a lawful floor is refused to nobody who may ask for it;
- whoever finds no ID at an agent is told that there will be none only when that is so.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from multidict import CIMultiDict
from yarl import URL

from pidkeeper.controller.state import requests
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.ids import MAX_FLOOR_JUMP, MAX_PRODUCER_ID
from pidkeeper.protocol.messages import RaiseFloorRequest, RaiseFloorResponse
from pidkeeper.protocol.migration import ZooKeeperBlockRecord
from pidkeeper.protocol.records import AllocateProducerIdsRecord, ProducerIdFloorRecord, Record
from pidkeeper.protocol.transactions import TransactionalBlockRecord
from pidkeeper.service.exchange import HttpRequest, HttpResponse
from tests.simulation.client_link import ELSEWHERE, ClientLink, refusal_in
from tests.simulation.history import Operation
from tests.simulation.world import MILLISECOND, SECOND, Violation

if TYPE_CHECKING:
    from tests.simulation.agent import Agent
    from tests.simulation.cluster import Cluster
    from tests.simulation.process import Process

SHARE: Final = 0.4
"""Of the seeds."""

SECURED: Final = 0.75
"""Of these: operators have a token of their own. Where they have none nobody may use force."""

ENDS: Final = 0.4
"""Of those: an operator goes near the end of the IDs, late, for hardly anything can be allocated behind that."""

OPERATOR_TOKEN: Final = "the operators' token"
TENTH: Final = MAX_PRODUCER_ID // 10
PATH: Final = "/v1/producer-ids/floor"
RETRY: Final = 300 * MILLISECOND
FAR: Final = (10**9, 10**15, 2**62)
PLENTY: Final = 10_000
"""Blocks."""

FORBIDDEN: Final = "forbidden"
LAWFUL: Final = "lawful"
_UNKNOWN: Final = ELSEWHERE | {ErrorCode.REQUEST_TIMED_OUT}
_NOT_ALLOWED: Final = frozenset({ErrorCode.INVALID_REQUEST, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})


class Floors:
    """`operator_token`: that of the seed, None where operators have none.

    `forced`: the floors that operators asked for by force, as they may.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._rng: random.Random = cluster.world.stream("floors")
        self._acts = self._rng.random() < SHARE
        secured = self._acts and self._rng.random() < SECURED
        self._ends = secured and self._rng.random() < ENDS
        self.operator_token = OPERATOR_TOKEN if secured else None
        self._link = ClientLink(cluster, self._rng)
        self._size = cluster.swarm.block_size
        self._next = 0
        self._told = False
        self.forced: set[int] = set()

    def start(self) -> None:
        """Begin to call, in some of the seeds."""
        if self._acts:
            self._world.at(self._rng.randrange(SECOND, 8 * SECOND), self._act)
        if self._ends:
            room = self._rng.choice((3, 30, 300)) * self._size + self._rng.randrange(self._size)
            last = MAX_PRODUCER_ID - self._rng.choice((room, room, room, TENTH // 2))
            late = self._cluster.swarm.safety_time * self._rng.uniform(0.4, 0.9)
            self._world.at(int(late), self._go_near_the_end, last)

    # Who calls.

    def _act(self) -> None:
        if self._cluster.healed:
            return
        self._world.at(self._rng.randrange(SECOND, 8 * SECOND), self._act)
        calls = (self._far, self._far, self._without_token, self._leaves_nothing, self._within, self._beyond)
        self._rng.choice(calls)()

    def _far(self) -> None:
        """A slip of a digit."""
        at_least = min(self._cluster.next_id_seen() + MAX_FLOOR_JUMP + self._rng.choice(FAR), self._highest)
        self._call("floor_far", at_least)

    def _without_token(self) -> None:
        """Force by who may not use it; with the operators' token forgotten, or where there is none."""
        at_least = min(self._cluster.next_id_seen() + MAX_FLOOR_JUMP + self._rng.choice(FAR), self._highest)
        self._call("floor_forced_without_token", at_least, force=True, operator=False)

    def _leaves_nothing(self) -> None:
        at_least = MAX_PRODUCER_ID - self._rng.choice((0, 7, self._rng.randrange(self._size)))
        force = self.operator_token is not None and self._rng.random() < 0.7
        self._call("floor_leaves_nothing", min(at_least, MAX_PRODUCER_ID), force=force)

    def _within(self) -> None:
        """As far as anybody may go who may raise it at all."""
        at_least = self._cluster.next_id_seen() + MAX_FLOOR_JUMP - self._rng.choice((0, 0, 10**6))
        if at_least <= self._highest:
            self._call("floor_within_the_bound", at_least)

    def _beyond(self) -> None:
        jump = MAX_FLOOR_JUMP * self._rng.choice((2, 1_000)) + self._rng.randrange(99)
        at_least = self._cluster.next_id_seen() + jump
        if self.operator_token is not None and at_least <= self._highest:
            self._call("floor_forced", at_least, force=True)

    def _go_near_the_end(self, at_least: int) -> None:
        """An operator who insists until it is so."""
        if self._cluster.healed or self._cluster.next_id_seen() >= at_least:
            return
        self._world.at(RETRY, self._go_near_the_end, at_least)
        self._call("floor_near_the_end", at_least, force=True)

    @property
    def _highest(self) -> int:
        """The highest floor that is lawful by force."""
        return MAX_PRODUCER_ID - self._size

    # The call.

    def _call(self, kind: str, at_least: int, *, force: bool = False, operator: bool = True) -> None:
        """Ask one member, once. `operator`: with the operators' token, where there is one."""
        process = self._target()
        if process is None:
            return
        self._world.fault(kind, f"{at_least}")
        near = force or at_least - process.machine.producer_ids.next_producer_id <= MAX_FLOOR_JUMP
        verdict = FORBIDDEN if force and not operator else LAWFUL if near and at_least <= self._highest else ""
        operation = self._cluster.history.invoke(requests.RaiseFloor(at_least, forced=force))
        if force and operator and at_least <= self._highest:
            self.forced.add(at_least)
            self._cluster.migration.forced = max(self._cluster.migration.forced, at_least)
        headers = CIMultiDict({"Content-Type": "application/json"})
        if operator and self.operator_token is not None:
            headers["Authorization"] = f"Bearer {self.operator_token}"
        body = msgspec.json.encode(RaiseFloorRequest(at_least, force))
        request = HttpRequest("POST", URL(PATH), headers, body)
        self._link.exchange(process.node_id, request, (operation,), partial(self._answered, operation, verdict))

    def _target(self) -> Process | None:
        leader = self._cluster.leader()
        if leader is not None and self._rng.random() < 0.9:
            return leader
        running = self._cluster.processes()
        return self._rng.choice(running) if running else None

    def _answered(self, operation: Operation, verdict: str, response: HttpResponse | None) -> None:
        if response is None:
            return
        wanted = operation.request
        assert isinstance(wanted, requests.RaiseFloor), f"{wanted} raises no floor"
        if response.status == ErrorCode.NONE.http_status:
            answer = msgspec.json.decode(response.body, type=RaiseFloorResponse)
            self._cluster.history.acknowledge(operation, answer)
            if verdict == FORBIDDEN or (answer.raised and wanted.at_least > self._highest):
                raise Violation("floor-accepted", f"{wanted}, {verdict}: {answer}")
            return
        error = refusal_in(response)
        if error.code not in _UNKNOWN:
            self._cluster.history.refuse(operation, error)
        if verdict == LAWFUL and error.code in _NOT_ALLOWED:
            raise Violation("lawful-floor-refused", f"{wanted}, the next ID is {self._next}: {error}")

    # The judgement.

    def committed(self, records: list[Record]) -> None:
        """The next entry was applied for the first time."""
        for record in records:
            if isinstance(record, ProducerIdFloorRecord):
                self._check(record)
            if isinstance(record, ProducerIdFloorRecord | ZooKeeperBlockRecord):
                self._next = record.next_producer_id
            elif isinstance(record, AllocateProducerIdsRecord | TransactionalBlockRecord):
                self._next = record.producer_id_end + 1
        if self.exhausted() and not self._told:
            self._told = True
            self._world.fault("ids_exhausted")

    def _check(self, record: ProducerIdFloorRecord) -> None:
        floor = record.next_producer_id
        if floor > self._highest:
            raise Violation("ids-burnt", f"{record} leaves less than a block of {self._size}")
        if floor - self._next > MAX_FLOOR_JUMP and floor not in self.forced:
            raise Violation("ids-burnt", f"{record} skips {floor - self._next} IDs, and nobody forced that")

    def exhausted(self) -> bool:
        """Whether no block is left to anybody."""
        used = max(self._cluster.next_id_seen(), self._cluster.migration.brokers_next)
        return used > self._highest

    def plenty_left(self) -> bool:
        """Whether so many blocks are left that nobody uses them up within seconds.

        A floor that was asked for may be raised at any time: who waits for ZooKeeper is in no log yet.
        """
        used = max(self._cluster.next_id_seen(), self._cluster.migration.brokers_next, *self.forced)
        return MAX_PRODUCER_ID - used > PLENTY * self._size

    def found_none(self, agent: Agent, told: ErrorCode) -> None:
        """Somebody claimed an ID at `agent`, which has none, and is told so."""
        if told.retriable or self.exhausted():
            return
        raise Violation("exhausted-too-soon", f"{agent.claims.name} says {told.name} at {self._next}")

    def agents_know(self) -> bool:
        """Whether no agent without an ID lets its callers come again for one, once there will be none."""
        return not self.exhausted() or not any(agent.lets_come_again() for agent in self._cluster.agents)

    def check_health(self, process: Process) -> None:
        """Health tells of the last tenth of the IDs, and not before. Raises Violation."""
        told = any("producer IDs are used" in reason for reason in process.interface.describe().reasons)
        left = MAX_PRODUCER_ID - self._cluster.next_id_seen()
        if told != (left <= TENTH):
            raise Violation("health-of-the-ids", f"member {process.node_id} tells: {told}, of the last {left} IDs")
