"""The one table of what Kafka clients may ask here: for each API key its versions, its reader, and what serves it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from pidkeeper.broker_agent.coordinator.caller import ANYBODY, Caller
from pidkeeper.broker_agent.coordinator.requests import TransactionStep
from pidkeeper.broker_agent.kafka.answers import LocalAnswers
from pidkeeper.broker_agent.kafka.wire import find_coordinator, init_producer_id, metadata, transactions
from pidkeeper.protocol.messages import InitProducerIdRequest
from pidkeeper.service.kafka.wire import api_versions, sasl
from pidkeeper.service.kafka.wire.headers import RequestHeader
from pidkeeper.service.kafka.wire.primitives import Reader
from pidkeeper.service.kafka.wire.versions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    API_VERSIONS,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Versions,
)


class TransactionalCall(msgspec.Struct, frozen=True):
    """A decoded request that has to be put to the controllers, for whoever sent it."""

    header: RequestHeader
    request: InitProducerIdRequest | TransactionStep
    caller: Caller = ANYBODY


class Api(msgspec.Struct, frozen=True):
    """One API. `read` takes the whole body in a version and raises WireError.

    `serve` gives the body of the answer, or the call that takes the controllers.
    """

    versions: Versions
    read: Callable[[Reader, int], Any]
    serve: Callable[[LocalAnswers, RequestHeader, Any, Caller], bytes | TransactionalCall]


def _put_to_controllers(_: LocalAnswers, header: RequestHeader, request: Any, caller: Caller) -> TransactionalCall:
    return TransactionalCall(header, request, caller)


DISPATCH: Final[Mapping[int, Api]] = {
    METADATA: Api(metadata.VERSIONS, metadata.read_metadata_request, LocalAnswers.metadata),
    FIND_COORDINATOR: Api(
        find_coordinator.VERSIONS, find_coordinator.read_find_coordinator_request, LocalAnswers.find_coordinator
    ),
    SASL_HANDSHAKE: Api(sasl.HANDSHAKE_VERSIONS, sasl.read_handshake_request, LocalAnswers.sasl_handshake),
    API_VERSIONS: Api(api_versions.VERSIONS, api_versions.read_api_versions_request, LocalAnswers.api_versions),
    # Without a transactional id it never comes this far: the responder claims an ID from the reserve.
    INIT_PRODUCER_ID: Api(
        init_producer_id.VERSIONS, init_producer_id.read_init_producer_id_request, _put_to_controllers
    ),
    ADD_PARTITIONS_TO_TXN: Api(
        transactions.ADD_PARTITIONS_VERSIONS, transactions.read_add_partitions_to_txn_request, _put_to_controllers
    ),
    ADD_OFFSETS_TO_TXN: Api(
        transactions.ADD_OFFSETS_VERSIONS, transactions.read_add_offsets_to_txn_request, _put_to_controllers
    ),
    END_TXN: Api(transactions.END_VERSIONS, transactions.read_end_txn_request, _put_to_controllers),
    SASL_AUTHENTICATE: Api(sasl.AUTHENTICATE_VERSIONS, sasl.read_authenticate_request, LocalAnswers.sasl_authenticate),
}

SERVED: Final[Mapping[int, Versions]] = {key: api.versions for key, api in DISPATCH.items()}
"""The versions of each API, as ApiVersions lists them."""
