"""Values of the interface that no other part needs: path and query parameters, the leadership transfer."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from controller.raft.messages import NodeId
from protocol.ids import MAX_PRODUCER_ID
from protocol.records import BrokerId, ProducerId

MAX_PAGE_BLOCKS: Final = 1000
"""Blocks on one page: at about 130 bytes of JSON each a page stays below 130 KiB."""


class BrokerPath(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The broker in `/v1/brokers/{id}/...`."""

    id: BrokerId


class ProducerPath(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The producer ID in `/v1/producer-ids/{id}/owner`."""

    id: ProducerId


class VoterPath(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The member in `/v1/quorum/voters/{id}`."""

    id: NodeId


class BlocksQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A page of the history: blocks above the ID `after` (-1: from the start), at most `limit`."""

    after: Annotated[int, msgspec.Meta(ge=-1, le=MAX_PRODUCER_ID)] = -1
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE_BLOCKS)] = 100


class TransferLeadershipRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hand leadership to the voter `target`; null leaves the choice to the leader."""

    target: NodeId | None = None
