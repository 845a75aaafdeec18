"""What the calls do: claim an ID, put a transaction's request to the controllers, tell what the agent holds."""

from __future__ import annotations

from typing import Any

from pidkeeper.broker_agent.agent import Agent
from pidkeeper.broker_agent.api.models import AgentStatus
from pidkeeper.broker_agent.coordinator.caller import Caller, anything
from pidkeeper.broker_agent.coordinator.checks import check_init
from pidkeeper.broker_agent.coordinator.requests import TransactionStep
from pidkeeper.broker_agent.data.seeking import StoreSeeker
from pidkeeper.broker_agent.data.store_report import Reporter, StoreReport
from pidkeeper.broker_agent.ids.reserve import NO_ID
from pidkeeper.broker_agent.security.acls import AclList
from pidkeeper.broker_agent.security.fingerprints import Fingerprints
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import InitProducerIdRequest, InitProducerIdResponse, TransactionResponse
from pidkeeper.service.build import build_version
from pidkeeper.service.call import Call
from pidkeeper.service.health_check import HealthCheck


class Operations:
    """One method for each call, whose body is a validated value; every method raises RequestError only."""

    def __init__(
        self,
        agent: Agent,
        acls: AclList | None,
        fingerprints: Fingerprints,
        store: StoreSeeker | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        self._agent = agent
        self._store = store
        self._reporter = reporter
        self._acls = acls
        self._fingerprints = fingerprints
        self._version = build_version()

    async def init_producer_id(self, call: Call[None, None, InitProducerIdRequest]) -> InitProducerIdResponse:
        """Claim a producer ID; with a transactional id, ask for its newest pair."""
        wanted = call.body
        if wanted.transactional_id is not None:
            return await self._agent.transactions.init_producer_id(wanted, self._caller(call))
        check_init(wanted)
        claimed = self._agent.reserve.claim()
        if claimed == NO_ID:
            raise RequestError(self._agent.reserve.refusal)
        return InitProducerIdResponse(0, claimed, 0)

    async def step(self, call: Call[None, None, TransactionStep]) -> TransactionResponse:
        """Take a step of a transaction."""
        return await self._agent.transactions.step(call.body, self._caller(call))

    def _caller(self, call: Call[Any, Any, Any]) -> Caller:
        may_use = anything if self._acls is None else self._acls.may_use(call.principal.name)
        return Caller(may_use, call.has_hung_up)

    async def status(self, call: Call[None, None, None]) -> AgentStatus:
        """What the agent holds."""
        agent, session, prefetcher = self._agent, self._agent.session, self._agent.prefetcher
        reserve, policy = prefetcher.reserve, prefetcher.policy
        return AgentStatus(
            broker_id=session.broker_id,
            broker_epoch=session.broker_epoch,
            cluster_id=session.cluster_id,
            founding_id=session.founding_id,
            incarnation_id=session.incarnation_id,
            ready=agent.ready,
            reasons=agent.why_not_ready(),
            fenced=session.fenced,
            leader=agent.client.leader,
            reserve_ids=reserve.remaining,
            reserve_blocks=reserve.blocks_held,
            reserve_target_ids=policy.target_ids(),
            highest_held=agent.supply.highest_known,
            claimed=reserve.claimed,
            claim_errors=reserve.failed_claims,
            claim_rate=round(policy.claim_rate, 1),
            blocks_received=prefetcher.blocks_received,
            version=self._version,
            users_fingerprint=self._fingerprints.users,
            acls_fingerprint=self._fingerprints.acls,
            quotas_fingerprint=self._fingerprints.quotas,
        )

    async def store_report(self, call: Call[None, None, None]) -> StoreReport:
        """What is in the store."""
        if self._reporter is None:
            raise RequestError(ErrorCode.RESOURCE_NOT_FOUND, "this agent keeps no records: it has no store")
        return await self._reporter.report()

    def liveness(self) -> list[HealthCheck]:
        """No condition: an agent whose memory cannot be trusted ends its process."""
        return []

    def readiness(self) -> list[HealthCheck]:
        """Whether claims will succeed, and, beside that, whether records are taken."""
        reasons = self._agent.why_not_ready()
        claims = HealthCheck("claims", not reasons, "; ".join(reasons))
        if self._store is None:
            return [claims]
        hindered = self._store.why_down() or self._agent.session.why_store_unknown()
        return [claims, HealthCheck("store", not hindered, hindered, counts=False)]
