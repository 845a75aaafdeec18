"""The interface of one agent, put together."""

from __future__ import annotations

from typing import Final

from pidkeeper.broker_agent.agent import Agent
from pidkeeper.broker_agent.api.data_metrics import DataCollector
from pidkeeper.broker_agent.api.file_metrics import FileCollector
from pidkeeper.broker_agent.api.group_metrics import GroupCollector
from pidkeeper.broker_agent.api.metrics import AgentCollector
from pidkeeper.broker_agent.api.operations import Operations
from pidkeeper.broker_agent.api.quota_metrics import QuotaCollector
from pidkeeper.broker_agent.api.routes import ROUTES
from pidkeeper.broker_agent.data.room import DataRoom
from pidkeeper.broker_agent.data.seeking import StoreSeeker
from pidkeeper.broker_agent.groups.room import GroupRoom
from pidkeeper.broker_agent.kafka.quotas.meter import Throttled
from pidkeeper.broker_agent.security.acls import AclList
from pidkeeper.broker_agent.security.fingerprints import Fingerprints
from pidkeeper.broker_agent.security.quota_list import QuotaList
from pidkeeper.broker_agent.security.user_list import UserList
from pidkeeper.service.app import App, Service
from pidkeeper.service.authentication import Authenticator
from pidkeeper.service.certificate_metrics import CertificateCollector
from pidkeeper.service.kafka.listener import KafkaListener
from pidkeeper.service.openapi import Description
from pidkeeper.service.protection import UNPROTECTED, Protection
from pidkeeper.service.token_list import TokenList
from pidkeeper.service.tracing import Tracer

DESCRIPTION: Final = Description(
    "pidkeeper broker agent", "Hands out Kafka producer IDs from memory, and serves transactional producers."
)


def build_app(
    agent: Agent,
    listener: KafkaListener,
    *,
    room: DataRoom | None = None,
    store: StoreSeeker | None = None,
    groups: GroupRoom | None = None,
    tokens: TokenList | None = None,
    users: UserList | None = None,
    acls: AclList | None = None,
    quotas: QuotaList | None = None,
    throttled: Throttled | None = None,
    protection: Protection = UNPROTECTED,
    tracer: Tracer | None = None,
) -> App:
    """The app that serves `agent`; `listener` is counted in its metrics, and so are `room`, `store` and `groups`, if it
    keeps partition logs.

    `tokens`: of callers with roles of their own; None leaves all calls open, unless `protection` wants names. `users`:
    those of the Kafka listener. `acls`: which transactional ids callers may use. `quotas`: how much callers of the
    Kafka listener may ask, and `throttled`: what came of that. `tracer`: gets the spans of requests.
    """
    fingerprints = Fingerprints(users, acls, quotas)
    operations = Operations(agent, acls, fingerprints, store, None if room is None else room.reporter)
    service = Service(
        description=DESCRIPTION,
        readiness="Is this agent ready to hand out producer IDs?",
        routes=ROUTES,
        operations=operations,
        live=operations.liveness,
        ready=operations.readiness,
        collectors=[
            AgentCollector(agent, listener),
            CertificateCollector(protection),
            FileCollector(fingerprints),
            *([] if room is None or store is None else [DataCollector(room, agent.session, store)]),
            *([] if groups is None else [GroupCollector(groups.coordinator, groups.answers.commits)]),
            QuotaCollector(throttled or Throttled()),
        ],
        upkeep=agent.late_requests.beat,
        answers_in_kind=True,
        tracer=tracer,
    )
    listed = None if tokens is None else tokens.find
    return App(service, Authenticator(listed=listed, closed=protection.required))
