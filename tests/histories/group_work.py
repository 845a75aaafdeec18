"""What members of groups do: a part of an exactly-once pipeline, or commits of any kind.

- a transformer reads what is committed of its input partitions, and writes one batch for what it read, with the offsets
  in the same transaction (KIP-447);
- a committer commits offsets by itself and within transactions, in any order, and looks what is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pidkeeper.broker_agent.coordinator.requests import AddPartitionsToTxn
from pidkeeper.broker_agent.kafka.wire.data.fetch import FetchedTopic, FetchPartition, FetchRequest, FetchTopic
from pidkeeper.broker_agent.kafka.wire.data.isolation import IsolationLevel
from pidkeeper.protocol.messages import TransactionTopic
from tests.histories.group_client import CALL_SECONDS, GroupClient, RejoinError
from tests.simulation.appending import Delivery, note_refusals
from tests.simulation.appending_transactions import Transaction
from tests.simulation.consumer import _batches

if TYPE_CHECKING:
    from tests.histories.grouping import Grouping

EXACT: Final = "exact"
MIXED: Final = "mixed"
MAX_BYTES: Final = (1, 400)
"""Of a fetch: one batch, or some."""

THINKS: Final = 0.2
"""Of the times between reading and committing, which last up to a second."""


class Transformer(GroupClient):
    """A member of the group that does everything exactly once."""

    group = EXACT

    def __init__(self, grouping: Grouping, name: str, number: int, instance_id: str | None) -> None:
        self.places = grouping.inputs
        super().__init__(grouping, name, number, instance_id)

    async def work(self) -> None:
        positions = await self._positions()
        while not self.rebalancing:
            for place in self.assigned:
                end = await self._read(place, positions[place])
                if end > positions[place]:
                    done = await self._transform(place, positions[place], end)
                    positions = positions | {place: end} if done else await self._positions()
            await self.rest(self.grouping.plan.think_ms / 1000)

    async def _positions(self) -> dict[int, int]:
        """Where to go on: no transaction may be about to say otherwise."""
        while not self.rebalancing:
            found = await self.offsets(self.assigned, stable=True)
            if found is not None:
                return {place: max(0, offset) for place, offset in found.items()}
            await self.rest()
        raise RejoinError

    async def _read(self, place: int, offset: int) -> int:
        """The offset behind what is committed from `offset` on and read at once."""
        agent = self.plane.any_agent()
        if agent is None or agent.data is None:
            return offset
        data = agent.data
        topic, partition = self.plane.place(place)
        wanted = FetchTopic(topic, [FetchPartition(partition, offset, self.rng.choice(MAX_BYTES))])
        request = FetchRequest(-1, 0, 1, 1 << 20, IsolationLevel.READ_COMMITTED, [wanted])
        try:
            topics: Sequence[FetchedTopic] = await self.told(
                lambda told: data.fetch(request, lambda code, topics: told(topics)), CALL_SECONDS
            )
        except TimeoutError:
            return offset
        given = topics[0].partitions[0]
        headers = [header for header, _ in _batches(b"".join(map(bytes, given.records)))]
        return headers[-1].base_offset + headers[-1].records_count if headers else offset

    async def _transform(self, place: int, first: int, end: int) -> bool:
        """Whether a transaction has what came of the input from `first` to `end`, and that it is done."""
        transaction = Transaction(first=True)
        self.plane.transactions.append(transaction)
        if self.rng.random() < THINKS:
            await asyncio.sleep(self.rng.random())
        offsets_first = self.rng.random() < 0.5
        filled = not offsets_first or await self.commit_in_transaction(place, end)
        filled = filled and await self._produce(transaction, place, first, end)
        filled = filled and (offsets_first or await self.commit_in_transaction(place, end))
        ended = (filled or self.rng.random() < 0.5) and await self.end(committed=filled)
        transaction.committed = filled if ended else None
        await self.go_on(ended=ended)
        return bool(transaction.committed)

    async def _produce(self, transaction: Transaction, place: int, first: int, end: int) -> bool:
        grouping, plane = self.grouping, self.plane
        output = self.rng.choice(grouping.outputs)
        topic, partition = plane.place(output)
        joined = AddPartitionsToTxn(self.name, *self.pair, [TransactionTopic(topic, [partition])])
        if not self.own_epochs and not await self.step(joined):
            return False
        name = f"{self.name}.{self.number}:{place}@{first}-{end}"
        sent = plane.make(name, output, transaction=len(plane.transactions))
        transaction.batches.append(sent)
        grouping.sources[sent] = place, range(first, end)
        batches = [(sent, (*self.pair, 0))]
        delivery: Delivery = await self.told(
            lambda told: Delivery(plane, batches, self.name, told, joining=self.own_epochs)
        )
        note_refusals(delivery)
        return delivery.codes == [0]


class Committer(GroupClient):
    """A member of a group that commits offsets of topics which may be deleted."""

    group = MIXED

    def __init__(self, grouping: Grouping, name: str, number: int, instance_id: str | None) -> None:
        self.places = range(grouping.plane.places)
        super().__init__(grouping, name, number, instance_id)

    async def work(self) -> None:
        while not self.rebalancing:
            await self.rest(self.grouping.plan.think_ms / 1000)
            if not self.assigned:
                continue
            place, way = self.rng.choice(self.assigned), self.rng.random()
            if way < 0.3:
                await self.offsets([place], stable=self.rng.random() < 0.5)
            elif way < 0.6:
                await self.commit(place, self._offset())
            else:
                await self._in_transaction(place)

    async def _in_transaction(self, place: int) -> None:
        await self.commit_in_transaction(place, self._offset())
        if self.rng.random() < 0.4:
            await self.offsets([place], stable=self.rng.random() < 0.5)
        if self.rng.random() < 0.4:
            await self.commit(place, self._offset())
        if self.rng.random() < THINKS:
            await asyncio.sleep(self.rng.random())
        await self.go_on(ended=await self.end(committed=self.rng.random() < 0.6))

    def _offset(self) -> int:
        return self.rng.randrange(1 << 20)
