"""Transactional ids as records tell of them: the pair that each has, and what belongs to its transaction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from pidkeeper.protocol.transactions import (
    AddPartitionsRecord,
    ForgetTransactionRecord,
    TopicPartitions,
    TransactionRecord,
)

ONGOING: Final = 1
COMMITTED: Final = 4
IDLE: Final = frozenset((0, COMMITTED, 5))
"""Kafka's numbers of a transaction's states: empty, committed, aborted are those in which none is under way."""


class Transaction(msgspec.Struct):
    """What is known of a transactional id; `joined`: topics and partitions of its transaction."""

    producer_id: int
    producer_epoch: int
    ongoing: bool
    joined: set[tuple[str, int]]

    def join(self, topics: Iterable[TopicPartitions]) -> None:
        self.joined.update((topic.topic, number) for topic in topics for number in topic.partitions)


class Transactions:
    """All of them; `take`, `add` and `forget` their records in order."""

    def __init__(self, records: Iterable[TransactionRecord] = ()) -> None:
        self._known: dict[str, Transaction] = {}
        self._users: dict[int, str] = {}
        for record in records:
            self._store(record)

    def take(self, record: TransactionRecord) -> Transaction | None:
        """The transaction that is under way no more from this record on, if there was one."""
        before = self._known.get(record.transactional_id)
        self._store(record)
        return before if before is not None and before.ongoing and record.status != ONGOING else None

    def _store(self, record: TransactionRecord) -> None:
        known = Transaction(record.producer_id, record.producer_epoch, record.status == ONGOING, set())
        known.join(record.partitions)
        self._known[record.transactional_id] = known
        self._users[record.producer_id] = record.transactional_id

    def add(self, record: AddPartitionsRecord) -> None:
        """Partitions join."""
        known = self._known.get(record.transactional_id)
        if known is None:
            known = Transaction(record.producer_id, record.producer_epoch, True, set())
            self._known[record.transactional_id] = known
            self._users[record.producer_id] = record.transactional_id
        known.ongoing = True
        known.join(record.topics)

    def forget(self, record: ForgetTransactionRecord) -> Transaction | None:
        """An id is not known any more; the transaction that it had under way."""
        before = self._known.pop(record.transactional_id, None)
        return before if before is not None and before.ongoing else None

    def of(self, producer_id: int) -> Transaction | None:
        """That of the transactional id which has a producer ID, or had it last."""
        name = self._users.get(producer_id)
        return None if name is None else self._known.get(name)

    def why_not(self, what: str, pair: tuple[int, int], place: tuple[str, int], *, transactional: bool) -> str | None:
        """Why what a producer wrote to a partition is not of the transaction that it had under way; None if it is."""
        of = f"{what} of producer {pair[0]}, epoch {pair[1]}"
        transaction = self.of(pair[0])
        if transaction is None:
            return f"{of}, which no transactional id has" if transactional else None
        if (transaction.producer_id, transaction.producer_epoch) != pair:
            return (
                f"{of}, and its transactional id has producer {transaction.producer_id}, epoch "
                f"{transaction.producer_epoch}: it was fenced"
            )
        if transactional and not (transaction.ongoing and place in transaction.joined):
            return f"{of}, whose transaction {place[0]}-{place[1]} had not joined"
        return None
