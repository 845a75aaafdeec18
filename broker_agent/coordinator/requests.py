"""What a producer asks for within a transaction, over the wire or by HTTP (KIP-98): Kafka's fields, in snake case."""

from __future__ import annotations

from typing import Annotated

import msgspec

from pidkeeper.protocol.messages import MAX_REQUEST_PARTITIONS, TransactionTopic
from pidkeeper.protocol.transactions import AnyEpoch, AnyProducerId


class AddPartitionsToTxn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Kafka's AddPartitionsToTxnRequest (API key 24)."""

    transactional_id: str
    producer_id: AnyProducerId
    producer_epoch: AnyEpoch
    topics: Annotated[list[TransactionTopic], msgspec.Meta(min_length=1, max_length=MAX_REQUEST_PARTITIONS)]


class AddOffsetsToTxn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Kafka's AddOffsetsToTxnRequest (API key 25): the offsets of consumer group `group_id` join the transaction."""

    transactional_id: str
    producer_id: AnyProducerId
    producer_epoch: AnyEpoch
    group_id: str


class EndTxn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Kafka's EndTxnRequest (API key 26). `new_epoch`: as from version 5 on."""

    transactional_id: str
    producer_id: AnyProducerId
    producer_epoch: AnyEpoch
    committed: bool
    new_epoch: bool = False


TransactionStep = AddPartitionsToTxn | AddOffsetsToTxn | EndTxn
