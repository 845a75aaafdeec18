"""The registration of one process as a broker: how it comes, how it is kept alive, how it ends (KIP-631)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable
from typing import Final

from pidkeeper.broker_agent.controllers.client import ControllerClient
from pidkeeper.broker_agent.session.refusals import STALE, FatalAgentError, raise_if_fatal
from pidkeeper.broker_agent.waiting import wait_at_most
from pidkeeper.protocol.addresses import HostPort
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.founding import Succession
from pidkeeper.protocol.messages import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    HeldIds,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UnregisterBrokerRequest,
    keeps,
)
from pidkeeper.protocol.metadata_version import BASE, PARTITION_LOGS

RETRY_SECONDS: Final = 0.5
"""Pause between calls that could not reach any leader for the whole deadline of the client."""

UNREGISTER_SECONDS: Final = 1.0
"""How long a graceful stop waits to unregister; past it the controller fences this broker on its own."""

_log = logging.getLogger(__name__)


class Session:
    """One process (`incarnation_id`) as broker `broker_id`. Counters are plain ints that the metrics read.

    `kafka`: where Kafka clients reach it, if they do. `broker_epoch` is that of the registration in force, None before
    the first; `cluster_id` is pinned by the first and goes along with every later request. `metadata_version`: the
    quorum's, as far as was heard; it never falls, so a late answer or a member of an older build takes nothing back.
    `founding_id`: the founding of the quorum, as of its newest answer.

    `store_id`: of the store where it keeps objects, once that is found. The quorum is told of it once its metadata
    version has words for that; `store_epoch`: the epoch under which it was told.

    `highest_held()`: the highest ID that this process ever held, -1 before the first; `highest_known()`: likewise, or
    passed on. The latter goes along with every sign of life, so that a quorum which has lost what it knew learns of it.
    `reserve_ids()`: how many are at hand; heartbeats tell it, for operators to see. `let_go()` has all of these thrown
    away: called when the quorum turns out to be of another founding than the one that gave them.
    """

    def __init__(
        self,
        broker_id: int,
        client: ControllerClient,
        *,
        incarnation_id: str,
        kafka: HostPort | None,
        heartbeat_seconds: float,
        highest_held: Callable[[], int],
        highest_known: Callable[[], int],
        reserve_ids: Callable[[], int],
        let_go: Callable[[], None],
    ) -> None:
        self.broker_id = broker_id
        self.incarnation_id = incarnation_id
        self.heartbeat_seconds = heartbeat_seconds
        self.kafka = None if kafka is None else str(kafka)
        self.store_id: uuid.UUID | None = None
        self.broker_epoch: int | None = None
        self.store_epoch: int | None = None
        self.cluster_id: str | None = None
        self.metadata_version = BASE
        self.founding_id: uuid.UUID | None = None
        self.fenced = False
        self.registrations = 0
        self._highest_held = highest_held
        self._highest_known = highest_known
        self._reserve_ids = reserve_ids
        self._let_go = let_go
        self._client = client
        self._epoch_doubted = asyncio.Event()
        self._registering = asyncio.Lock()

    @property
    def store_known(self) -> bool:
        """Whether the quorum was told of the store under the registration in force; it takes no objects before."""
        return self.broker_epoch is not None and self.store_epoch == self.broker_epoch

    def why_store_unknown(self) -> str:
        """Why the quorum does not know the store, in words; empty if it does."""
        if self.store_known:
            return ""
        if self.broker_epoch is None:
            return "not registered with the controller yet"
        if self.metadata_version < PARTITION_LOGS:
            return f"the quorum's metadata version is {self.metadata_version}, records need {PARTITION_LOGS}"
        return "the quorum was not told of the store yet"

    def doubt_epoch(self, epoch: int) -> None:
        """Note that a controller refused `epoch`: the next heartbeat follows at once, and registers anew if need be."""
        if epoch == self.broker_epoch:
            self._epoch_doubted.set()

    def held(self) -> HeldIds | None:
        """What the quorum is told of the IDs that are known here; nothing before it has told its founding."""
        return self._up_to(self._highest_known())

    def _up_to(self, highest: int) -> HeldIds | None:
        return None if self.founding_id is None or highest < 0 else HeldIds(self.founding_id, highest)

    async def register(self) -> None:
        """Register for the first time. Tries until it succeeds; raises FatalAgentError."""
        await self._register(None)

    async def register_anew(self, error: RequestError, epoch: int) -> None:
        """Register after `error` refused `epoch`, unless another task has done so already. Raises FatalAgentError."""
        _log.warning("epoch %d of broker %d is refused, registering anew: %s", epoch, self.broker_id, error)
        await self._register(epoch)

    async def unregister(self) -> None:
        """End the registration, so that the controller need not wait for heartbeats to stop. Never raises."""
        if self.broker_epoch is None:
            return
        try:
            async with asyncio.timeout(UNREGISTER_SECONDS):
                await self._client.unregister(self.broker_id, UnregisterBrokerRequest(self.broker_epoch))
        except (RequestError, TimeoutError) as error:
            _log.info("not unregistered, the controller will fence broker %d: %s", self.broker_id, error)
        else:
            _log.info("unregistered broker %d, epoch %d", self.broker_id, self.broker_epoch)

    async def advertise(self) -> None:
        """Register once more, to leave address and store with the controllers. That keeps an epoch that is in force.

        Raises RequestError and FatalAgentError.
        """
        async with self._registering:
            await self._advertise()

    async def _advertise(self) -> None:
        request = self._registration()
        try:
            answer = await self._client.register(self.broker_id, request)
        except RequestError as error:
            raise_if_fatal(error)
            raise
        self._heard(answer)
        if answer.broker_epoch != self.broker_epoch:
            self._registered(answer, request)
        elif _may_name(request, answer):
            self.store_epoch = answer.broker_epoch

    async def heartbeat_forever(self) -> None:
        """Say that this broker lives, and register anew when its epoch is refused. Raises FatalAgentError."""
        reachable = True
        while True:
            await wait_at_most(self._epoch_doubted, self.heartbeat_seconds)
            self._epoch_doubted.clear()
            epoch = self.broker_epoch
            assert epoch is not None, "heartbeats begin after the registration"
            try:
                request = BrokerHeartbeatRequest(epoch, self.held())
                answer = await self._client.heartbeat(self.broker_id, request, self._reserve_ids())
            except RequestError as error:
                raise_if_fatal(error)
                if error.code in STALE:
                    await self.register_anew(error, epoch)
                elif reachable:
                    _log.warning("heartbeats fail, going on: %s", error)
                    reachable = False
                continue
            self.fenced = answer.fenced
            self._heard(answer)
            if not reachable:
                _log.info("heartbeats are answered again")
                reachable = True

    async def _register(self, stale_epoch: int | None) -> None:
        """Register, unless another task has replaced `stale_epoch` already. Tries until it succeeds or is fatal."""
        async with self._registering:
            while self.broker_epoch == stale_epoch:
                request = self._registration()
                try:
                    answer = await self._client.register(self.broker_id, request)
                except RequestError as error:
                    raise_if_fatal(error)
                    _log.warning("registration failed, trying again: %s", error)
                    await asyncio.sleep(max(RETRY_SECONDS, error.throttle_time_ms / 1000))
                    continue
                if answer.broker_epoch == stale_epoch:
                    _log.warning("the controller calls epoch %d stale and hands it out again", answer.broker_epoch)
                    await asyncio.sleep(RETRY_SECONDS)
                self._registered(answer, request)
                break
            if self._registration().store_id is not None and self.store_epoch != self.broker_epoch:
                with contextlib.suppress(RequestError):  # else it is told with the next look at who lives
                    await self._advertise()

    def _registration(self) -> RegisterBrokerRequest:
        # An earlier build would refuse the field.
        store_id = self.store_id if self.metadata_version >= PARTITION_LOGS else None
        return RegisterBrokerRequest(self.incarnation_id, self.cluster_id, self.kafka, self.held(), store_id)

    def _registered(self, answer: RegisterBrokerResponse, request: RegisterBrokerRequest) -> None:
        self._pin_cluster_id(answer.cluster_id)
        self._heard(answer)
        self.broker_epoch = answer.broker_epoch
        if _may_name(request, answer):
            self.store_epoch = answer.broker_epoch
        self.registrations += 1
        _log.info("registered broker %d of cluster %s, epoch %d", self.broker_id, self.cluster_id, answer.broker_epoch)

    def _heard(self, answer: RegisterBrokerResponse | BrokerHeartbeatResponse) -> None:
        self.metadata_version = max(self.metadata_version, answer.metadata_version)
        self.meet(answer.founding_id, answer.succession)

    def meet(self, founding_id: uuid.UUID | None, succession: Succession | None) -> None:
        """An answer comes from a quorum of `founding_id`; None if that has none yet. Called before its IDs count.

        Under another founding than before only those IDs are kept that lie below the floor of its succession.
        """
        if founding_id is None or founding_id == self.founding_id:
            return
        # What was passed on is not held here, and may be of the new quorum, before anything else was heard of that.
        held = self._up_to(self._highest_held())
        if held is not None and succession is not None and keeps(held, succession):
            _log.warning(
                "the quorum is of founding %s now, which takes the place of %s from ID %d on: this agent holds none "
                "above %d, and goes on with them",
                founding_id,
                self.founding_id,
                succession.floor,
                held.highest_producer_id,
            )
        elif self.founding_id is not None:
            _log.error(
                "the quorum is of founding %s, this agent was of %s: letting go of all IDs up to %d",
                founding_id,
                self.founding_id,
                self._highest_held(),
            )
            self._let_go()
        else:
            _log.info("the quorum is of founding %s", founding_id)
        self.founding_id = founding_id

    def _pin_cluster_id(self, cluster_id: str) -> None:
        if self.cluster_id is None:
            self.cluster_id = cluster_id
        elif self.cluster_id != cluster_id:
            raise FatalAgentError(f"the controllers belong to cluster {cluster_id}, this agent to {self.cluster_id}")


def _may_name(request: RegisterBrokerRequest, answer: RegisterBrokerResponse) -> bool:
    """Whether objects may be put under that registration.

    The quorum has to know the store, and to tell its founding: one that hears its brokers after a restore gives epochs
    that the quorum before may have given, too, and the founding that is known from then is that one's.
    """
    return request.store_id is not None and answer.founding_id is not None
