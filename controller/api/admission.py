"""What every call goes through before the member: the caller's view of the cluster, leadership, room and tokens."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.controller.api.member_port import Member
from pidkeeper.controller.api.metrics import AllocationMetrics
from pidkeeper.controller.state.requests import ConfirmState, Request
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.service.access import Principal
from pidkeeper.service.authentication import check_broker
from pidkeeper.service.call import Call
from pidkeeper.service.pending import PendingRequests
from pidkeeper.service.throttle import Throttle

MAX_OFFSET: Final = 2**63 - 1
"""Offsets are Kafka's int64; a broker epoch is an offset."""

ELECTION_SECONDS: Final = 0.15
"""How long a broker's call waits for a leader that is missed. Half of an agent's first attempt, which must not run out:
it would pass this member over, and it may be the next leader."""

_NOBODY: Final = -1
"""Whose tokens a reader takes: a read says nothing of its broker, so all readers of a member share theirs."""

_QUOTAS: Final = {
    "broker": "this broker asks more often than its quota allows",
    "cluster": "all brokers together ask more often than the quota of the cluster allows",
    "buckets": "more brokers ask at once than quotas are kept for",
}


class Admission:
    """Checks calls in this order, and a refused one changes nothing: cluster id, epoch range, leadership, room among
    the pending requests, token buckets. Every method raises RequestError only.
    """

    def __init__(
        self,
        member: Member,
        limits: ApiLimits,
        metrics: AllocationMetrics,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.member: Final = member
        self.pending: Final = PendingRequests(limits.max_pending, limits.request_timeout_ms)
        self.metrics: Final = metrics
        self.clock_ns: Final = clock_ns
        self.allocations: Final = Throttle(limits.broker_allocations, limits.cluster_allocations)
        self.sessions: Final = Throttle(limits.broker_sessions, limits.cluster_sessions)
        self.inits: Final = Throttle(limits.broker_transactional_inits, limits.cluster_transactional_inits)
        self.transactions: Final = Throttle(limits.broker_transactions, limits.cluster_transactions)
        self.commits: Final = Throttle(limits.broker_commits, limits.cluster_commits)
        self.reads: Final = Throttle(limits.broker_reads, limits.cluster_reads)

    async def submit_for(self, broker_id: int, call: Call[Any, Any, Any], throttle: Throttle, request: Request) -> Any:
        """Submit what a broker asks, in the name of this caller."""
        check_broker(call.principal, broker_id)
        await self.await_leader()
        check_waits(call)
        return await self.submit(request, self.admit(throttle, broker_id))

    async def submit(self, request: Request, now_ns: int) -> Any:
        """Have the member decide, and wait."""
        return await self.pending.wait(self.member.submit(request), now_ns)

    async def submit_order(self, request: Request) -> Any:
        """Submit what takes no token: an operator's, or a change that clients of brokers seldom ask for."""
        await self.await_leader()
        return await self.submit(request, self.admit(None, 0))

    async def confirm(self) -> None:
        """A read may begin, and no other leader has committed more than is applied here."""
        await self.submit(ConfirmState(), await self.admit_reader())

    async def admit_reader(self) -> int:
        """A read may begin; the time at which it could."""
        await self.await_leader()
        return self.admit(self.reads, _NOBODY)

    async def await_leader(self) -> None:
        """Wait for a leader that is missed, not for long."""
        if self.member.misses_leader():
            await self.member.leader_known(ELECTION_SECONDS)

    def admit(self, throttle: Throttle | None, broker_id: int) -> int:
        """Leader, room and tokens; the time at which they were there."""
        self.check_leader()
        try:
            self.pending.check_room()
        except RequestError:
            self.metrics.throttled["pending"] += 1
            raise
        now = self.clock_ns()
        if throttle is not None:
            self._take_token(throttle, broker_id, now)
        return now

    def _take_token(self, throttle: Throttle, broker_id: int, now_ns: int) -> None:
        refusal = throttle.admit(broker_id, now_ns)
        if refusal is None:
            return
        self.metrics.throttled[refusal.quota] += 1
        if throttle is self.allocations:
            self.metrics.throttled_allocations.count(broker_id)
        wait_ms = -(-refusal.wait_ns // 1_000_000)
        detail = f"{_QUOTAS[refusal.quota]}; wait {wait_ms} ms"
        raise RequestError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, detail, throttle_time_ms=wait_ms)

    def check_cluster(self, cluster_id: str | None) -> None:
        """The caller means this cluster, if it says which."""
        if cluster_id is not None and cluster_id != self.member.cluster_id:
            detail = f"the request is for cluster {cluster_id!r}, this is cluster {self.member.cluster_id!r}"
            raise RequestError(ErrorCode.INCONSISTENT_CLUSTER_ID, detail)

    def check_leader(self) -> None:
        """This member leads, or says who does."""
        leader = self.member.leader()
        if leader is None:
            detail = f"node {self.member.node_id} is not the leader and knows none; ask again shortly"
            raise RequestError(ErrorCode.NOT_CONTROLLER, detail)
        if leader[0] != self.member.node_id:
            detail = f"node {self.member.node_id} is not the leader; ask node {leader[0]} at {leader[1]}"
            raise RequestError(ErrorCode.NOT_CONTROLLER, detail)


class OfBroker(Protocol):
    """A request that an agent makes for a client, or an operator, who is no broker."""

    @property
    def broker_id(self) -> int | None: ...

    @property
    def broker_epoch(self) -> int | None: ...


def broker_of(principal: Principal, request: OfBroker) -> tuple[int, int]:
    """The broker for which `principal` asks, by id and epoch. Raises RequestError if there is none."""
    broker_id, broker_epoch = request.broker_id, request.broker_epoch
    if broker_id is None or broker_epoch is None:
        raise RequestError(ErrorCode.INVALID_REQUEST, "broker_id and broker_epoch: say which broker asks")
    check_epoch(broker_epoch)
    check_broker(principal, broker_id)
    return broker_id, broker_epoch


def check_epoch(broker_epoch: int) -> None:
    """A broker epoch can be one."""
    if broker_epoch > MAX_OFFSET:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"broker_epoch must be <= {MAX_OFFSET}; nothing was changed")


def check_waits(call: Call[Any, Any, Any]) -> None:
    """Refuse the attempt of a caller that has gone: it may have made another one since, and worked on with its answer.

    A member that stood still finds such attempts in its sockets. Submitted behind the later one, an InitProducerId
    would fence the producer that sent both.
    """
    if call.has_hung_up():
        raise RequestError(ErrorCode.REQUEST_TIMED_OUT, "the caller has closed its connection: nothing was done")
