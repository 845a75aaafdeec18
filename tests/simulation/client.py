"""Those who ask: plain clients, and broker agents with the real reserve and prefetch policy.

An attempt whose answer does not come is an operation of unknown outcome; its retry is another operation. As in
`broker_agent.controller_client`, a call goes on to other members until its deadline, and a late answer is thrown away.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from pidkeeper.broker_agent.ids.candidates import Candidates
from pidkeeper.broker_agent.ids.prefetch import PrefetchPolicy, PrefetchSettings
from pidkeeper.broker_agent.ids.reserve import NO_ID, BlockReserve, RejectedBlockError
from pidkeeper.controller.state import requests
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.ids import ProducerIdBlock
from tests.simulation.history import NOBODY, AgentClaims, Operation
from tests.simulation.process import listen
from tests.simulation.world import MILLISECOND, SECOND, Violation

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

ATTEMPT: Final = 300 * MILLISECOND
CALL: Final = 3 * SECOND
_ELSEWHERE: Final = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.KAFKA_STORAGE_ERROR})
_NOT_CERTAIN: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.INVALID_REQUEST})
TransactionalRequest = requests.InitProducerId | requests.AddPartitionsToTxn | requests.EndTxn
_MAY_HAVE_DONE: Final = _ELSEWHERE | {ErrorCode.CONCURRENT_TRANSACTIONS}
"""That answer goes with the record that aborts a transaction."""

_REGISTER_ANEW: Final = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})
Done = Callable[[Any, RequestError | None], None]


class _Call:
    """One call: attempts until an answer, a refusal or the deadline."""

    __slots__ = ("attempt", "attempts", "deadline", "done", "producer", "request")

    def __init__(self, request: requests.Request, deadline: int, done: Done, producer: int) -> None:
        self.request = request
        self.producer = producer
        self.deadline = deadline
        self.done = done
        self.attempts = 0
        self.attempt: Operation | None = None


class Endpoint:
    """A client's connection to the quorum, with its guess at the leader."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.rng = rng
        self.alive = True
        self._leader = rng.choice(cluster.voters)

    def call(self, request: requests.Request, done: Done, limit: int = CALL, producer: int = NOBODY) -> None:
        """Ask; `done(answer, error)` is called once. A `limit` of 0 makes one attempt."""
        self._attempt(_Call(request, self.world.now + limit, done, producer))

    def _attempt(self, call: _Call) -> None:
        if not self.alive:
            return
        call.attempts += 1
        operation = call.attempt = self.cluster.history.invoke(call.request, call.producer)
        target = self._leader
        if not self._lost():
            self.world.at(self._delay(), self._arrive, call, operation, target)
        self.world.at(ATTEMPT, self._timed_out, call, operation, target)

    def _delay(self) -> int:
        return int(self.cluster.swarm.delay * (0.5 + self.rng.random()))

    def _lost(self) -> bool:
        drop = self.cluster.swarm.drop
        if drop and not self.cluster.healed and self.rng.random() < drop / 2:
            self.world.fault("request_or_answer_lost")
            return True
        return False

    def _arrive(self, call: _Call, operation: Operation, target: int) -> None:
        process = self.cluster.members[target].process
        if process is None:
            operation.refused = True
            self.world.at(self._delay(), self._answered, call, operation, target, None, None)
            return
        if not process.runs(self._arrive, call, operation, target):
            return
        try:
            answer = process.submit(call.request)
        except RequestError as refusal:
            operation.refused = True
            self._respond(call, operation, target, None, refusal)
            return
        listen(answer, lambda result, error: self._respond(call, operation, target, result, error))

    def _respond(self, call: _Call, operation: Operation, target: int, result: Any, error: RequestError | None) -> None:
        if error is not None and error.code not in _MAY_HAVE_DONE:
            operation.refused = True
        if not self._lost():
            self.world.at(self._delay(), self._answered, call, operation, target, result, error)

    def _timed_out(self, call: _Call, operation: Operation, target: int) -> None:
        if call.attempt is operation:
            self._next(call, target)

    def _answered(
        self, call: _Call, operation: Operation, target: int, result: Any, error: RequestError | None
    ) -> None:
        if call.attempt is not operation or not self.alive:
            return
        if result is not None:
            call.attempt = None
            self.cluster.history.acknowledge(operation, result)
            call.done(result, None)
        elif error is None or error.code in _ELSEWHERE:
            self._next(call, target)
        else:
            call.attempt = None
            self.cluster.history.refuse(operation, error)
            call.done(None, error)

    def _next(self, call: _Call, failed: int) -> None:
        """Choose another member and try again, unless it is too late."""
        call.attempt = None
        process = self.cluster.members[failed].process
        named = None if process is None else process.core.leader_id
        hopeful = self._leader != failed or named not in {None, failed}
        if self._leader == failed:
            following = min((voter for voter in self.cluster.voters if voter > failed), default=self.cluster.voters[0])
            self._leader = following if named is None or named == failed else named
        pause = 0 if hopeful and call.attempts == 1 else self.rng.randrange(20 * MILLISECOND, 150 * MILLISECOND)
        if self.world.now + pause < call.deadline:
            self.world.at(pause, self._attempt, call)
        elif self.alive:
            call.done(None, RequestError(ErrorCode.REQUEST_TIMED_OUT))


class Client:
    """Registers a broker id and allocates blocks, some at once; sometimes raises the floor or leaves."""

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.broker_id = broker_id
        self.rng = cluster.world.stream(f"client-{broker_id}")
        self.endpoint = Endpoint(cluster, self.rng)
        self.epoch: int | None = None
        self.incarnation = 0
        self._outstanding = 0

    def start(self) -> None:
        """Begin to ask."""
        self.world.at(self.rng.randrange(self.cluster.swarm.think_time), self._act)

    def _act(self) -> None:
        if not self.cluster.loaded:
            return
        request = self._request()
        count = 1
        if isinstance(request, requests.AllocateProducerIds):
            count = self.rng.randint(1, self.cluster.swarm.burst)
        self._outstanding = count
        for _ in range(count):
            self.endpoint.call(request, self._done, limit=0)

    def _request(self) -> requests.Request:
        if self.epoch is None:
            return requests.RegisterBroker(self.broker_id, f"client-{self.broker_id}-{self.incarnation}")
        chance = self.rng.random()
        if chance < self.cluster.swarm.floor_rate:
            committed = self.cluster.next_id_seen()
            return requests.RaiseFloor(max(0, committed + self.rng.randrange(-100, 1_000)))
        if chance > 0.96:
            self.incarnation += 1
            return requests.UnregisterBroker(self.broker_id, self.epoch)
        if chance > 0.92 or not self.cluster.may_allocate():
            return requests.BrokerHeartbeat(self.broker_id, self.epoch)
        return requests.AllocateProducerIds(self.broker_id, self.epoch)

    def _done(self, answer: Any, error: RequestError | None) -> None:
        if error is None:
            epoch = getattr(answer, "broker_epoch", None)
            self.epoch = epoch if epoch is not None else self.epoch
        elif error.code in _REGISTER_ANEW:
            self.epoch = None
        elif error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            self.incarnation += 1
        self._outstanding -= 1
        if not self._outstanding:
            self.world.at(int(self.cluster.swarm.think_time * (0.5 + self.rng.random())), self._act)


class Agent:
    """A broker agent: rounds, heartbeats and claims around the real reserve and policy."""

    STEP: Final = SECOND

    def __init__(self, cluster: Cluster, broker_id: int, incarnation: int) -> None:
        swarm = cluster.swarm
        self.cluster = cluster
        self.world = cluster.world
        self.broker_id = broker_id
        self.incarnation = incarnation
        self.rng = cluster.world.stream(f"agent-{broker_id}-{incarnation}")
        self.endpoint = Endpoint(cluster, self.rng)
        settings = PrefetchSettings(
            reserve_seconds=self.rng.choice((0.2, 1.0)), min_reserve_ids=swarm.block_size * swarm.reserve_blocks
        )
        self.reserve = BlockReserve()
        self.candidates = Candidates(self.reserve.claim)
        self.policy = PrefetchPolicy(settings, self.rng)
        self.claims = AgentClaims(f"agent {broker_id}.{incarnation}")
        self.epoch: int | None = None
        self.fatal = False
        self._round: list[ProducerIdBlock] = []
        self._errors: list[RequestError] = []
        self._outstanding = 0
        self._heartbeat_due = 0

    def start(self) -> None:
        """Register, then run."""
        self._register()
        self.world.at(self.rng.randrange(self.STEP), self._step)

    def stop(self) -> None:
        """The process is gone."""
        self.endpoint.alive = False

    def _now(self) -> float:
        return self.world.now / SECOND

    def _register(self) -> None:
        self.epoch = None
        request = requests.RegisterBroker(self.broker_id, f"agent-{self.broker_id}-{self.incarnation}")
        self.endpoint.call(request, self._registered)

    def _registered(self, answer: Any, error: RequestError | None) -> None:
        if error is None:
            self.epoch = answer.broker_epoch
        elif error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            self.fatal = True
            self.stop()
        else:
            self.world.at(500 * MILLISECOND, self._register)

    def _step(self) -> None:
        if not self.endpoint.alive or not self.cluster.loaded:
            return
        self.world.at(self.STEP, self._step)
        wanted = int(self.cluster.swarm.claims_per_second * self.STEP / SECOND * 2 * self.rng.random())
        claimed = self._claim(wanted)
        self.policy.observe(claimed, self.STEP / SECOND)
        if self.epoch is None or self._outstanding:
            return
        if self.world.now >= self._heartbeat_due:
            self._heartbeat_due = self.world.now + SECOND
            self.endpoint.call(requests.BrokerHeartbeat(self.broker_id, self.epoch), self._heard)
        if not self.cluster.may_allocate():
            return
        self._outstanding = self.policy.blocks_to_ask(self.reserve, self._now())
        request = requests.AllocateProducerIds(self.broker_id, self.epoch)
        for _ in range(self._outstanding):
            self.endpoint.call(request, self._answered)

    def _claim(self, wanted: int) -> int:
        for count in range(wanted):
            claimed = self.reserve.claim()
            if claimed == NO_ID:
                return count
            self.claims.claimed(claimed)
        return wanted

    def ask(self, wanted: TransactionalRequest, done: Done, limit: int, producer: int) -> None:
        """Ask for a transactional producer.

        An InitProducerId takes a candidate along, which no other attempt has: one that was given up on may still take
        effect. `done` is never called if the process ends before.
        """
        if not isinstance(wanted, requests.InitProducerId):
            self.endpoint.call(wanted, done, limit, producer)
            return
        candidate = self.candidates.take()
        if candidate != NO_ID:
            self.claims.candidates.add(candidate)

        def settle(answer: Any, error: RequestError | None) -> None:
            certain = error is None or error.code not in _NOT_CERTAIN
            given = None if answer is None else answer.producer_id
            self.candidates.settle(candidate, given=given, certain=certain)
            done(answer, error)

        self.endpoint.call(replace(wanted, candidate=candidate), settle, 0, producer)

    def _heard(self, answer: Any, error: RequestError | None) -> None:
        if error is not None and error.code in _REGISTER_ANEW and self.epoch is not None and not self._outstanding:
            self._register()

    def _answered(self, answer: Any, error: RequestError | None) -> None:
        if error is None:
            self._round.append(ProducerIdBlock(answer.producer_id_start, answer.producer_id_len))
        else:
            self._errors.append(error)
        self._outstanding -= 1
        if self._outstanding:
            return
        blocks, self._round = sorted(self._round), []
        errors, self._errors = self._errors, []
        for block in blocks:
            try:
                self.reserve.offer(block)
            except RejectedBlockError as rejected:
                raise Violation("block-rejected", f"{self.claims.name}: {rejected}") from rejected
            self.claims.blocks.append((block.first, block.last))
        if not errors:
            self.policy.round_succeeded()
            return
        self.policy.round_failed(self._now())
        if any(refusal.code in _REGISTER_ANEW for refusal in errors):
            self._register()
