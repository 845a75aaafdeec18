"""What the calls do: claim an ID, put a transaction's request to the controllers, tell what the agent holds."""

from __future__ import annotations

from pidkeeper.broker_agent.agent import Agent
from pidkeeper.broker_agent.api.models import AgentStatus
from pidkeeper.broker_agent.requests import TransactionStep
from pidkeeper.broker_agent.reserve import NO_ID
from pidkeeper.broker_agent.transactions import Transactions, check_init
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import InitProducerIdRequest, InitProducerIdResponse, TransactionResponse
from pidkeeper.service.call import Call
from pidkeeper.service.health_check import HealthCheck


class Operations:
    """One method for each call, whose body is a validated value; every method raises RequestError only."""

    def __init__(self, agent: Agent, transactions: Transactions) -> None:
        self._agent = agent
        self._transactions = transactions

    async def init_producer_id(self, call: Call[None, None, InitProducerIdRequest]) -> InitProducerIdResponse:
        """Claim a producer ID; with a transactional id, ask for its newest pair."""
        wanted = call.body
        if wanted.transactional_id is not None:
            return await self._transactions.init_producer_id(wanted)
        check_init(wanted)
        claimed = self._agent.reserve.claim()
        if claimed == NO_ID:
            raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return InitProducerIdResponse(0, claimed, 0)

    async def step(self, call: Call[None, None, TransactionStep]) -> TransactionResponse:
        """Take a step of a transaction."""
        await self._transactions.step(call.body)
        return TransactionResponse(0)

    async def status(self, call: Call[None, None, None]) -> AgentStatus:
        """What the agent holds."""
        agent, reserve = self._agent, self._agent.reserve
        return AgentStatus(
            broker_id=agent.broker_id,
            broker_epoch=agent.broker_epoch,
            cluster_id=agent.cluster_id,
            incarnation_id=agent.incarnation_id,
            ready=agent.ready,
            reasons=agent.why_not_ready(),
            fenced=agent.fenced,
            leader=agent.client.leader,
            reserve_ids=reserve.remaining,
            reserve_blocks=reserve.blocks_held,
            reserve_target_ids=agent.policy.target_ids(),
            highest_held=reserve.highest_held,
            claimed=reserve.claimed,
            claim_errors=reserve.failed_claims,
            claim_rate=round(agent.policy.claim_rate, 1),
            blocks_received=agent.blocks_received,
        )

    def liveness(self) -> list[HealthCheck]:
        """No condition: an agent whose memory cannot be trusted ends its process."""
        return []

    def readiness(self) -> list[HealthCheck]:
        """Whether claims will succeed."""
        reasons = self._agent.why_not_ready()
        return [HealthCheck("claims", not reasons, "; ".join(reasons))]
