"""What the replicated state says of transactional ids and brokers, in the words of the HTTP interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from pidkeeper.controller.state.brokers import BrokersState
from pidkeeper.controller.state.transactions import TransactionsState
from pidkeeper.controller.state.transitions import TransactionStatus
from pidkeeper.protocol.messages import (
    BrokerDescription,
    BrokersResponse,
    TransactionDescription,
    TransactionsPage,
    TransactionTopic,
)
from pidkeeper.protocol.transactions import TransactionRecord

STATE_NAMES: Final = tuple(status.name.title().replace("_", "") for status in TransactionStatus)
"""Kafka's names of the states, by number."""

MAX_PAGE_PARTITION_BYTES: Final = 512 * 1024
"""Of the partitions on one page, which are about as many bytes of JSON: eight of the largest transactions."""


MAX_LOOKED_AT: Final = 10_000
"""Ids looked at for one page: 5 ms. A page of those in a state that few are in ends early, even empty."""


def transactions_page(
    transactions: TransactionsState, after: str, limit: int, state: str | None, producer_id: int | None
) -> TransactionsPage:
    """At most `limit` ids above `after`, those in `state` and with `producer_id` if these are not None.

    A page may be shorter, even empty, and not be the last: that one alone has no `next_after`.
    """
    page: list[TransactionDescription] = []
    room = MAX_PAGE_PARTITION_BYTES
    looked_at, last = 0, after
    for record in islice(_candidates(transactions, after, producer_id), MAX_LOOKED_AT):
        if state is None or STATE_NAMES[record.status] == state:
            room -= record.partition_bytes
            if len(page) == limit or (room < 0 and page):
                return TransactionsPage(page, last)
            page.append(transaction_description(record))
        looked_at, last = looked_at + 1, record.transactional_id
    return TransactionsPage(page, None if looked_at < MAX_LOOKED_AT else last)


def _candidates(transactions: TransactionsState, after: str, producer_id: int | None) -> Iterator[TransactionRecord]:
    if producer_id is None:
        yield from transactions.after(after)
    elif (user := transactions.user_of(producer_id)) is not None and user > after:
        record = transactions.get(user)
        if record is not None and record.producer_id == producer_id:
            yield record


def transaction_description(record: TransactionRecord) -> TransactionDescription:
    """One transactional id."""
    return TransactionDescription(
        transactional_id=record.transactional_id,
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        last_producer_id=record.last_producer_id,
        last_producer_epoch=record.last_producer_epoch,
        state=STATE_NAMES[record.status],
        timeout_ms=record.timeout_ms,
        start_ms=None if record.start_ms < 0 else record.start_ms,
        update_ms=record.update_ms,
        topics=[TransactionTopic(topic.topic, list(topic.partitions)) for topic in record.partitions],
    )


def brokers_response(
    brokers: BrokersState,
    last_contact_ms: Callable[[int], int | None] = lambda _: None,
    reserve_ids: Callable[[int], int | None] = lambda _: None,
    known_to: Callable[[int], int | None] = lambda _: None,
) -> BrokersResponse:
    """All registered brokers. `last_contact_ms`: how long ago one was heard, by its id, if that is known.

    `reserve_ids`: how many IDs one had at hand then; `known_to`: the metadata version that it knows; both likewise.
    """
    return BrokersResponse(
        [
            BrokerDescription(
                known.broker_id,
                known.broker_epoch,
                known.fenced,
                known.kafka,
                known.incarnation_id,
                last_contact_ms(known.broker_id),
                reserve_ids(known.broker_id),
                known.store_id,
                known_to(known.broker_id),
            )
            for known in brokers.all()
        ]
    )
