"""The running agent: registration, heartbeats and prefetch rounds around the pure reserve and policy."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Final

from pidkeeper.broker_agent.candidates import Candidates
from pidkeeper.broker_agent.controller_client import ControllerClient
from pidkeeper.broker_agent.directory import Directory
from pidkeeper.broker_agent.prefetch import PrefetchPolicy, PrefetchSettings
from pidkeeper.broker_agent.reserve import BlockReserve
from pidkeeper.broker_agent.wire.metadata import Node
from pidkeeper.protocol.addresses import HostPort
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.ids import MAX_BLOCK_SIZE, ProducerIdBlock
from pidkeeper.protocol.messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerDescription,
    BrokerHeartbeatRequest,
    RegisterBrokerRequest,
    UnregisterBrokerRequest,
)

SAMPLE_SECONDS: Final = 0.1
"""How often the claim rate is measured while nothing else wakes the prefetcher."""

RETRY_SECONDS: Final = 0.5
"""Pause between calls that could not reach any leader for the whole deadline of the client."""

REFRESH_SECONDS: Final = 0.1
"""Least time between two looks at who lives, however often clients ask for coordinators."""

ADVERTISE_SECONDS: Final = 1.0
"""Least time between two attempts to leave the address with the controllers: one a second beside two heartbeats stays
below the five requests a second that they grant one broker."""

UNREGISTER_SECONDS: Final = 1.0
"""How long a graceful stop waits to unregister; past it the controller fences this broker on its own."""

_FATAL: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        ErrorCode.INCONSISTENT_CLUSTER_ID,
    }
)
"""An operator has to act, and asking again would only hide that (KIP-730, "Error Handling")."""

_REGISTER_ANEW: Final = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})

_log = logging.getLogger(__name__)


class FatalAgentError(Exception):
    """The controller refused this agent for good: the process must end with a non-zero exit code."""


class Agent:
    """One broker's share of the ID space. Public counters are plain ints that the metrics read.

    `kafka`: where Kafka clients reach it.
    """

    def __init__(
        self,
        broker_id: int,
        client: ControllerClient,
        settings: PrefetchSettings,
        *,
        kafka: HostPort,
        heartbeat_seconds: float,
    ) -> None:
        self.broker_id = broker_id
        self.client = client
        self.incarnation_id = str(uuid.uuid4())
        self.reserve = BlockReserve(self._on_low, ask_fraction=settings.ask_fraction)
        self.policy = PrefetchPolicy(settings, random.SystemRandom())
        self.candidates = Candidates(self.reserve.claim)
        self._brokers_wanted = asyncio.Event()
        self.directory = Directory(Node(broker_id, kafka.host, kafka.port), self._brokers_wanted.set)
        self.broker_epoch: int | None = None
        self.cluster_id: str | None = None
        self.fenced = False
        self.stopping = False
        self.registrations = 0
        self.blocks_received = 0
        self.blocks_rejected = 0
        self.rounds: Counter[str] = Counter({"ok": 0, "throttled": 0, "failed": 0})
        self.on_round: Callable[[float], None] = lambda _seconds: None
        self._kafka = str(kafka)
        self._heartbeat_seconds = heartbeat_seconds
        self._starved_seconds = 0.0
        self._starved_since: float | None = None
        self._wake = asyncio.Event()
        self._epoch_doubted = asyncio.Event()
        self._registering = asyncio.Lock()
        self._advertised_at = -math.inf
        self._last_sample = (0, time.monotonic())

    @property
    def ready(self) -> bool:
        """Registered, filled once, not out of IDs, not stopping."""
        return not self.why_not_ready()

    def why_not_ready(self) -> list[str]:
        """What keeps the agent from being ready, in words; empty when it is ready."""
        reasons = []
        if self.stopping:
            reasons.append("the agent is stopping")
        if self.broker_epoch is None:
            reasons.append("not registered with the controller yet")
        if not self.policy.is_filled(self.reserve):
            reasons.append("the first fill of the reserve is not done")
        elif self.reserve.remaining == 0:
            reasons.append("the reserve is empty")
        return reasons

    @property
    def starved_seconds(self) -> float:
        """Seconds in which claims failed for want of an ID, since the start."""
        running = 0.0 if self._starved_since is None else time.monotonic() - self._starved_since
        return self._starved_seconds + running

    async def run(self) -> None:
        """Serve until cancelled. Raises FatalAgentError."""
        try:
            async with asyncio.TaskGroup() as group:
                await self._register(None)
                group.create_task(self._heartbeat_forever())
                group.create_task(self._follow_brokers_forever())
                group.create_task(self._prefetch_forever())
        except BaseExceptionGroup as group_error:
            # The first cause is what the operator needs; a group of one would bury it.
            fatal = group_error.subgroup(FatalAgentError)
            raise (fatal or group_error).exceptions[0] from None

    async def unregister(self) -> None:
        """End the registration, so that the controller need not wait for heartbeats to stop. Never raises."""
        if self.broker_epoch is None:
            return
        try:
            async with asyncio.timeout(UNREGISTER_SECONDS):
                await self.client.unregister(self.broker_id, UnregisterBrokerRequest(self.broker_epoch))
        except (RequestError, TimeoutError) as error:
            _log.info("not unregistered, the controller will fence broker %d: %s", self.broker_id, error)
        else:
            _log.info("unregistered broker %d, epoch %d", self.broker_id, self.broker_epoch)

    def doubt_epoch(self, epoch: int) -> None:
        """Note that a controller refused `epoch`: the next heartbeat follows at once, and registers anew if need be."""
        if epoch == self.broker_epoch:
            self._epoch_doubted.set()

    async def _register(self, stale_epoch: int | None) -> None:
        """Register, unless another task has replaced `stale_epoch` already. Tries until it succeeds or is fatal."""
        async with self._registering:
            while self.broker_epoch == stale_epoch:
                request = RegisterBrokerRequest(self.incarnation_id, self.cluster_id, self._kafka)
                try:
                    answer = await self.client.register(self.broker_id, request)
                except RequestError as error:
                    _raise_if_fatal(error)
                    _log.warning("registration failed, trying again: %s", error)
                    await asyncio.sleep(max(RETRY_SECONDS, error.throttle_time_ms / 1000))
                    continue
                self._pin_cluster_id(answer.cluster_id)
                if answer.broker_epoch == stale_epoch:
                    _log.warning("the controller calls epoch %d stale and hands it out again", answer.broker_epoch)
                    await asyncio.sleep(RETRY_SECONDS)
                self.broker_epoch = answer.broker_epoch
                self.registrations += 1
                _log.info(
                    "registered broker %d of cluster %s, epoch %d", self.broker_id, self.cluster_id, answer.broker_epoch
                )
                return

    def _pin_cluster_id(self, cluster_id: str) -> None:
        if self.cluster_id is None:
            self.cluster_id = cluster_id
        elif self.cluster_id != cluster_id:
            raise FatalAgentError(f"the controllers belong to cluster {cluster_id}, this agent to {self.cluster_id}")

    async def _register_anew(self, error: RequestError, epoch: int) -> None:
        _log.warning("epoch %d of broker %d is refused, registering anew: %s", epoch, self.broker_id, error)
        await self._register(epoch)

    async def _heartbeat_forever(self) -> None:
        reachable = True
        while True:
            await _wait(self._epoch_doubted, self._heartbeat_seconds)
            self._epoch_doubted.clear()
            epoch = self.broker_epoch
            assert epoch is not None, "heartbeats begin after the registration"
            try:
                answer = await self.client.heartbeat(self.broker_id, BrokerHeartbeatRequest(epoch))
            except RequestError as error:
                _raise_if_fatal(error)
                if error.code in _REGISTER_ANEW:
                    await self._register_anew(error, epoch)
                elif reachable:
                    _log.warning("heartbeats fail, going on: %s", error)
                    reachable = False
                continue
            self.fenced = answer.fenced
            if not reachable:
                _log.info("heartbeats are answered again")
                reachable = True

    async def _follow_brokers_forever(self) -> None:
        """Learn who lives, as often as heartbeats are sent, and when a client asks for a coordinator."""
        known = True
        while True:
            self._brokers_wanted.clear()
            try:
                answer = await self.client.brokers()
            except RequestError as error:
                # Not even a refusal for good matters here: heartbeats find that out, and any agent can coordinate.
                if known:
                    _log.warning("the controllers do not say which agents live, going on: %s", error)
                known = False
            else:
                known = True
                self.directory.update(answer.brokers)
                await self._advertise(answer.brokers)
            await asyncio.sleep(REFRESH_SECONDS)
            await _wait(self._brokers_wanted, self._heartbeat_seconds)

    async def _advertise(self, brokers: list[BrokerDescription]) -> None:
        """Leave the address with the controllers if they lack it: they take none before metadata version 3 is in force.

        The same incarnation registers again, which keeps its epoch.
        """
        own = (self.broker_id, self.broker_epoch)
        lacking = any((one.broker_id, one.broker_epoch) == own and one.kafka != self._kafka for one in brokers)
        now = time.monotonic()
        if not lacking or now - self._advertised_at < ADVERTISE_SECONDS:
            return
        self._advertised_at = now
        request = RegisterBrokerRequest(self.incarnation_id, self.cluster_id, self._kafka)
        try:
            await self.client.register(self.broker_id, request)
        except RequestError as error:
            # Should it be for good, the next heartbeat is refused as well.
            _log.debug("the address is not left with the controllers, trying again: %s", error)

    def _on_low(self) -> None:
        self._wake.set()
        if self._starved_since is None and self.reserve.remaining == 0 and self.reserve.failed_claims:
            self._starved_since = time.monotonic()

    async def _prefetch_forever(self) -> None:
        while True:
            self._wake.clear()
            self._sample_rate()
            wanted = self.policy.blocks_to_ask(self.reserve, time.monotonic())
            if wanted:
                await self._round(wanted)
            elif (pause := self.policy.seconds_to_wait(time.monotonic())) > 0:
                # Not woken by claims: while the back-off runs there is nothing to be done for them.
                await asyncio.sleep(pause)
            else:
                await _wait(self._wake, SAMPLE_SECONDS)

    def _sample_rate(self) -> None:
        claimed, now = self.reserve.claimed, time.monotonic()
        before, then = self._last_sample
        self._last_sample = (claimed, now)
        self.policy.observe(claimed - before, now - then)

    async def _round(self, wanted: int) -> None:
        """Ask for `wanted` blocks at once, wait for every answer, offer the blocks in order."""
        epoch = self.broker_epoch
        assert epoch is not None, "rounds begin after the registration"
        began = time.monotonic()
        request = AllocateProducerIdsRequest(self.broker_id, epoch, self.cluster_id)
        answers = await asyncio.gather(*(self.client.allocate(request) for _ in range(wanted)), return_exceptions=True)
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        self._offer([answer for answer in answers if isinstance(answer, AllocateProducerIdsResponse)])
        self.on_round(time.monotonic() - began)
        if not errors:
            self.rounds["ok"] += 1
            self.policy.round_succeeded()
            return
        await self._handle_failures(errors, epoch)

    def _offer(self, answers: list[AllocateProducerIdsResponse]) -> None:
        for answer in sorted(answers, key=lambda one: one.producer_id_start):
            try:
                if answer.error_code != 0 or answer.producer_id_len > MAX_BLOCK_SIZE:
                    raise ValueError(f"error code {answer.error_code}, {answer.producer_id_len} IDs")
                self.reserve.offer(ProducerIdBlock(answer.producer_id_start, answer.producer_id_len))
            except ValueError as error:
                # RejectedBlockError included. The block becomes a gap; what is at hand is untouched.
                self.blocks_rejected += 1
                _log.error("a block from the controller is thrown away: %s", error)
                continue
            self.blocks_received += 1
        if self._starved_since is not None and self.reserve.remaining:
            self._starved_seconds += time.monotonic() - self._starved_since
            self._starved_since = None

    async def _handle_failures(self, errors: list[BaseException], epoch: int) -> None:
        refusals = []
        for error in errors:
            if not isinstance(error, RequestError):
                raise error
            _raise_if_fatal(error)
            refusals.append(error)
        if all(error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED for error in refusals):
            self.rounds["throttled"] += 1
            self.policy.round_throttled(time.monotonic(), max(error.throttle_time_ms for error in refusals))
            return
        self.rounds["failed"] += 1
        self.policy.round_failed(time.monotonic())
        _log.warning(
            "%d of a round's requests for blocks failed, %d IDs left: %s",
            len(refusals),
            self.reserve.remaining,
            refusals[0],
        )
        for error in refusals:
            if error.code in _REGISTER_ANEW:
                await self._register_anew(error, epoch)
                return


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Wait until `event` is set, for `seconds` at most."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


def _raise_if_fatal(error: RequestError) -> None:
    if error.code in _FATAL:
        raise FatalAgentError(str(error)) from error
