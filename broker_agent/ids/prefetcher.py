"""The rounds that fill the reserve: requests for blocks, their answers, and what follows from refusals.

Invariant, kept where blocks are offered:
A5  a block is offered only while the registration that it was asked for under is in force. A registration is where the
    agent learns anew whom it deals with; a block that was granted to the one before it is a gap, never an ID.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from pidkeeper.broker_agent.backoff import Random
from pidkeeper.broker_agent.controllers.client import ControllerClient
from pidkeeper.broker_agent.ids.prefetch import PrefetchPolicy, PrefetchSettings
from pidkeeper.broker_agent.ids.reserve import BlockReserve
from pidkeeper.broker_agent.session.refusals import STALE, raise_if_fatal
from pidkeeper.broker_agent.session.session import Session
from pidkeeper.broker_agent.waiting import wait_at_most
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.ids import MAX_BLOCK_SIZE, ProducerIdBlock
from pidkeeper.protocol.messages import AllocateProducerIdsRequest, AllocateProducerIdsResponse

SAMPLE_SECONDS: Final = 0.1
"""How often the claim rate is measured while nothing else wakes the prefetcher."""

_log = logging.getLogger(__name__)


class Prefetcher:
    """Keeps a reserve filled. Counters are plain ints that the metrics read.

    `on_round` gets each round's seconds, and how many blocks it brought. `round_span` gives what goes on around one, of
    how many blocks it asks for.
    """

    def __init__(self, session: Session, client: ControllerClient, settings: PrefetchSettings, rng: Random) -> None:
        self.reserve = BlockReserve(self._on_low, ask_fraction=settings.ask_fraction)
        self.policy = PrefetchPolicy(settings, rng)
        self.blocks_received = 0
        self.blocks_rejected = 0
        self.rounds: Counter[str] = Counter({"ok": 0, "throttled": 0, "failed": 0})
        self.on_round: Callable[[float, int], None] = lambda _seconds, _blocks: None
        self.round_span: Callable[[int], AbstractContextManager[object]] = nullcontext
        self._session = session
        self._client = client
        self._starved_seconds = 0.0
        self._starved_since: float | None = None
        self._wake = asyncio.Event()

    @property
    def starved_seconds(self) -> float:
        """Seconds in which claims failed for want of an ID, since the start."""
        running = 0.0 if self._starved_since is None else _now() - self._starved_since
        return self._starved_seconds + running

    def why_not_ready(self) -> list[str]:
        """What keeps claims from being served, in words; empty when nothing does."""
        if not self.policy.is_filled(self.reserve) and not self.reserve.exhausted:
            return ["the first fill of the reserve is not done"]
        if self.reserve.remaining:
            return []
        return ["no producer ID is left in this cluster" if self.reserve.exhausted else "the reserve is empty"]

    async def run_forever(self) -> None:
        """Ask for blocks whenever the policy wants some. Begins once the session is registered.

        Raises FatalAgentError.
        """
        sampled = (self.reserve.claimed, _now())
        while True:
            self._wake.clear()
            sampled = self._sample_rate(*sampled)
            wanted = self.policy.blocks_to_ask(self.reserve, _now())
            if wanted:
                with self.round_span(wanted):
                    await self._round(wanted)
            elif (pause := self.policy.seconds_to_wait(_now())) > 0:
                # Not woken by claims: while the back-off runs there is nothing to be done for them.
                await asyncio.sleep(pause)
            else:
                await wait_at_most(self._wake, SAMPLE_SECONDS)

    def _sample_rate(self, before: int, then: float) -> tuple[int, float]:
        """Measure the claim rate since `then`, when `before` IDs were claimed; returns the same of now."""
        claimed, now = self.reserve.claimed, _now()
        self.policy.observe(claimed - before, now - then)
        return claimed, now

    def _on_low(self) -> None:
        self._wake.set()
        if self._starved_since is None and self.reserve.remaining == 0 and self.reserve.failed_claims:
            self._starved_since = _now()

    async def _round(self, wanted: int) -> None:
        """Ask for `wanted` blocks, offer what the answer brings in order."""
        session = self._session
        epoch = session.broker_epoch
        assert epoch is not None, "rounds begin after the registration"
        began = _now()
        request = AllocateProducerIdsRequest(session.broker_id, epoch, session.cluster_id, session.held())
        try:
            answer = await self._client.allocate(request, wanted)
        except RequestError as refusal:
            self.on_round(_now() - began, 0)
            await self._handle_refusal(refusal, epoch)
            return
        accepted = self._offer(answer, epoch, wanted)
        self.on_round(_now() - began, accepted)
        if accepted < 1 + len(answer.more):
            # Asked again at once, a controller that is wrong would be asked as fast as it answers.
            self.rounds["failed"] += 1
            self.policy.round_failed(_now())
        else:
            self.rounds["ok"] += 1
            self.policy.round_succeeded()

    def _offer(self, answer: AllocateProducerIdsResponse, epoch: int, wanted: int) -> int:
        """Offer the blocks in order; how many were accepted. Another becomes a gap; what is at hand is untouched."""
        self._session.meet(answer.founding_id, answer.succession)
        first = answer.producer_id_start, answer.producer_id_len
        blocks = sorted([first, *((one.producer_id_start, one.producer_id_len) for one in answer.more)])
        accepted = 0
        for place, block in enumerate(blocks):
            try:
                self._check(answer.error_code, block, epoch)
                if place >= wanted:
                    raise ValueError(f"{len(blocks)} blocks came, {wanted} were asked for")
                self.reserve.offer(ProducerIdBlock(*block))
            except ValueError as error:  # RejectedBlockError included
                _log.error("a block from the controller is thrown away: %s", error)
                continue
            accepted += 1
        self.blocks_received += accepted
        self.blocks_rejected += len(blocks) - accepted
        if self._starved_since is not None and self.reserve.remaining:
            self._starved_seconds += _now() - self._starved_since
            self._starved_since = None
        return accepted

    def _check(self, error_code: int, block: tuple[int, int], epoch: int) -> None:
        """Raise ValueError for a block, start and length, asked for under `epoch`, that may not be offered."""
        if epoch != self._session.broker_epoch:
            raise ValueError(f"A5: it was granted to epoch {epoch}, in force is {self._session.broker_epoch}")
        if error_code != 0 or block[1] > MAX_BLOCK_SIZE:
            raise ValueError(f"error code {error_code}, {block[1]} IDs")

    async def _handle_refusal(self, refusal: RequestError, epoch: int) -> None:
        raise_if_fatal(refusal)
        if refusal.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            self.rounds["throttled"] += 1
            self.policy.round_throttled(_now(), refusal.throttle_time_ms)
            return
        self.rounds["failed"] += 1
        self.policy.round_failed(_now())
        if refusal.code is ErrorCode.PRODUCER_IDS_EXHAUSTED:
            self.reserve.exhaust()
        _log.warning("a request for blocks failed, %d IDs left: %s", self.reserve.remaining, refusal)
        if refusal.code in STALE:
            await self._session.register_anew(refusal, epoch)


def _now() -> float:
    return asyncio.get_running_loop().time()
