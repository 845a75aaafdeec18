"""The route table: one row for each call. Handlers, metrics labels and `/openapi.json` are all made from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from controller.api.models import BlocksQuery, BrokerPath, ProducerPath, TransferLeadershipRequest, VoterPath
from controller.api.operations import Operations
from protocol.errors import ErrorCode
from protocol.messages import (
    AddVoterRequest,
    AddVoterResponse,
    AllocatedBlock,
    AllocatedBlocksPage,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    QuorumDescription,
    RaiseFloorRequest,
    RaiseFloorResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    RemoveVoterResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

Handler = Callable[[Operations, Any, Any], Awaitable[Any]]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One call.

    `name` is its operation id and metrics label. `path_model` and `query_model` (one of them at most) hold integer
    parameters, which the handler gets before the decoded `request`. `errors` are the rows that the handler raises
    itself; those that every call can raise are in COMMON_ERRORS.
    """

    method: str
    path: str
    name: str
    summary: str
    handler: Handler
    response: type[Any]
    request: type[Any] | None = None
    path_model: type[Any] | None = None
    query_model: type[Any] | None = None
    errors: tuple[ErrorCode, ...] = ()


COMMON_ERRORS: Final = (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR)
"""Any call may be malformed, and any call may meet a fault of the server."""

_PROPOSAL: Final = (
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
_CHANGE: Final = (*_PROPOSAL, ErrorCode.REASSIGNMENT_IN_PROGRESS)
_SESSION: Final = (*_PROPOSAL, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)

# The hottest call first: a path without a parameter is found by one look-up, whatever the order, but a reader
# should not have to know that.
ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/producer-ids/allocate",
        name="allocate_producer_ids",
        summary="Give a registered broker the next block of producer IDs (KIP-730).",
        handler=Operations.allocate,
        request=AllocateProducerIdsRequest,
        response=AllocateProducerIdsResponse,
        errors=(*_SESSION, ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.PRODUCER_IDS_EXHAUSTED),
    ),
    Route(
        method="POST",
        path="/v1/brokers/{id}/register",
        name="register_broker",
        summary="Register a process as a broker; older epochs of the id are stale from then on.",
        handler=Operations.register,
        path_model=BrokerPath,
        request=RegisterBrokerRequest,
        response=RegisterBrokerResponse,
        errors=(*_PROPOSAL, ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.DUPLICATE_BROKER_REGISTRATION),
    ),
    Route(
        method="POST",
        path="/v1/brokers/{id}/heartbeat",
        name="broker_heartbeat",
        summary="Keep a registration unfenced.",
        handler=Operations.heartbeat,
        path_model=BrokerPath,
        request=BrokerHeartbeatRequest,
        response=BrokerHeartbeatResponse,
        errors=_SESSION,
    ),
    Route(
        method="POST",
        path="/v1/brokers/{id}/unregister",
        name="unregister_broker",
        summary="End a registration.",
        handler=Operations.unregister,
        path_model=BrokerPath,
        request=UnregisterBrokerRequest,
        response=UnregisterBrokerResponse,
        errors=_SESSION,
    ),
    Route(
        method="GET",
        path="/v1/producer-ids/blocks",
        name="list_blocks",
        summary="The allocation history in order of ID, a page at a time.",
        handler=Operations.blocks,
        query_model=BlocksQuery,
        response=AllocatedBlocksPage,
    ),
    Route(
        method="GET",
        path="/v1/producer-ids/{id}/owner",
        name="producer_id_owner",
        summary="Which broker was given a producer ID, and when.",
        handler=Operations.owner,
        path_model=ProducerPath,
        response=AllocatedBlock,
        errors=(ErrorCode.RESOURCE_NOT_FOUND,),
    ),
    Route(
        method="POST",
        path="/v1/producer-ids/floor",
        name="raise_floor",
        summary="Raise the next producer ID; it never goes back.",
        handler=Operations.raise_floor,
        request=RaiseFloorRequest,
        response=RaiseFloorResponse,
        errors=_PROPOSAL,
    ),
    Route(
        method="GET",
        path="/v1/quorum",
        name="describe_quorum",
        summary="Leader, term, commit and voters as this member sees them.",
        handler=Operations.quorum,
        response=QuorumDescription,
    ),
    Route(
        method="POST",
        path="/v1/quorum/transfer",
        name="transfer_leadership",
        summary="Begin to hand leadership over; the answer is the quorum as it is at that moment.",
        handler=Operations.transfer,
        request=TransferLeadershipRequest,
        response=QuorumDescription,
        errors=(ErrorCode.NOT_CONTROLLER, ErrorCode.RESOURCE_NOT_FOUND),
    ),
    Route(
        method="POST",
        path="/v1/quorum/voters",
        name="add_voter",
        summary="Go one step towards a new voter: make it a learner, or make the caught-up learner a voter (KIP-853).",
        handler=Operations.add_voter,
        request=AddVoterRequest,
        response=AddVoterResponse,
        errors=_CHANGE,
    ),
    Route(
        method="DELETE",
        path="/v1/quorum/voters/{id}",
        name="remove_voter",
        summary="Remove a voter or a learner from the quorum (KIP-853).",
        handler=Operations.remove_voter,
        path_model=VoterPath,
        response=RemoveVoterResponse,
        errors=(*_CHANGE, ErrorCode.RESOURCE_NOT_FOUND),
    ),
)
