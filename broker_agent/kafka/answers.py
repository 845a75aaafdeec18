"""Answers from what the agent knows by itself: who is here, who coordinates what, which versions are served. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pidkeeper.broker_agent.coordinator.caller import Caller
from pidkeeper.broker_agent.coordinator.directory import Directory
from pidkeeper.broker_agent.kafka.wire.find_coordinator import (
    GROUP,
    TRANSACTION,
    Coordinator,
    FindCoordinatorRequest,
    find_coordinator_response,
)
from pidkeeper.broker_agent.kafka.wire.metadata import MetadataRequest, metadata_response
from pidkeeper.broker_agent.security.resources import GROUP_DESCRIBE
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.groups import MAX_GROUP_ID_LENGTH
from pidkeeper.protocol.transactions import MAX_TRANSACTIONAL_ID_LENGTH
from pidkeeper.service.kafka.wire.api_versions import ApiVersionsRequest, Features, api_versions_response
from pidkeeper.service.kafka.wire.headers import RequestHeader
from pidkeeper.service.kafka.wire.sasl import (
    AuthenticateRequest,
    HandshakeRequest,
    authenticate_response,
    handshake_response,
)
from pidkeeper.service.kafka.wire.versions import JOIN_GROUP, Versions

MAX_LOOKUPS: Final = 64
"""Ids looked up for one request; real clients ask for one. Where 256 agents live, the most known, that
takes 15 ms, and with the longest addresses the answer takes 17 KiB."""

_NOT_AVAILABLE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE.kafka_code
_NOT_ALLOWED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.kafka_code
_NO_GROUP: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED.kafka_code
"""Fatal at once in confluent-kafka, aiokafka and kafka-python."""


class LocalAnswers:
    """Bodies of answers, by a directory. `cluster_id()` is None until the first registration."""

    def __init__(
        self,
        directory: Directory,
        cluster_id: Callable[[], str | None],
        served: Mapping[int, Versions],
        features: Callable[[], Features | None],
    ) -> None:
        self._directory = directory
        self._cluster_id = cluster_id
        self._served = served
        self._features = features

    def api_versions(self, header: RequestHeader, _: ApiVersionsRequest, __: Caller) -> bytes:
        """Every API and its versions, and what the cluster has agreed on."""
        return api_versions_response(header.api_version, self._served, self._features())

    def metadata(self, header: RequestHeader, request: MetadataRequest, _: Caller) -> bytes:
        """The agents that live."""
        return metadata_response(header.api_version, request, self._directory.nodes, self._cluster_id())

    def find_coordinator(self, header: RequestHeader, request: FindCoordinatorRequest, caller: Caller) -> bytes:
        """The agent that coordinates, for each key."""
        return find_coordinator_response(header.api_version, self._coordinators(request, caller))

    def sasl_handshake(self, _: RequestHeader, __: HandshakeRequest, ___: Caller) -> bytes:
        """The refusal of whoever is served already, or where nobody has to authenticate."""
        return handshake_response(ErrorCode.ILLEGAL_SASL_STATE, ())

    def sasl_authenticate(self, header: RequestHeader, _: AuthenticateRequest, __: Caller) -> bytes:
        """The same."""
        detail = "this connection needs no authentication, or has it"
        return authenticate_response(header.api_version, ErrorCode.ILLEGAL_SASL_STATE, detail)

    def _coordinators(self, request: FindCoordinatorRequest, caller: Caller) -> list[Coordinator]:
        """One for each key. One refusal of a request is explained: a sentence for each would be an amplifier."""
        find: Callable[[str, Caller], Coordinator]
        if request.key_type == TRANSACTION:
            find = self._of_transactional_id
        elif request.key_type == GROUP and JOIN_GROUP in self._served:
            find = self._of_group
        else:
            return _refused(request.keys, _NO_GROUP, "no consumer groups are served here")
        found = [find(key, caller) for key in request.keys[:MAX_LOOKUPS]]
        detail = f"{MAX_LOOKUPS} ids are looked up in one request: ask again for the others"
        return found + _refused(request.keys[MAX_LOOKUPS:], _NOT_AVAILABLE, detail)

    def _of_transactional_id(self, transactional_id: str, caller: Caller) -> Coordinator:
        if not 1 <= len(transactional_id) <= MAX_TRANSACTIONAL_ID_LENGTH or not caller.may_use(transactional_id):
            # INVALID_REQUEST would be apt, but librdkafka asks again for ever on any code but this.
            return Coordinator(transactional_id, -1, "", -1, _NOT_ALLOWED)
        node = self._directory.coordinator(transactional_id)
        return Coordinator(transactional_id, node.id, node.host, node.port)

    def _of_group(self, group_id: str, caller: Caller) -> Coordinator:
        if len(group_id) > MAX_GROUP_ID_LENGTH or not caller.may(GROUP_DESCRIBE, group_id):
            return Coordinator(group_id, -1, "", -1, _NO_GROUP)
        node = self._directory.group_coordinator(group_id)
        return Coordinator(group_id, node.id, node.host, node.port)


def _refused(keys: list[str], code: int, detail: str) -> list[Coordinator]:
    return [Coordinator(key, -1, "", -1, code, None if at else detail) for at, key in enumerate(keys)]
