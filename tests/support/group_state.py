"""What is asked of consumer groups, on the machine of `log_state`."""

from __future__ import annotations

from collections.abc import Iterable

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.group_messages import OffsetsTransaction
from pidkeeper.protocol.groups import (
    NO_GENERATION,
    NO_VERSION,
    OFFSETS_TOPIC,
    GroupMember,
    PartitionOffset,
    TopicOffsets,
    offsets_partition,
)
from pidkeeper.protocol.transactions import TopicPartitions
from tests.support.log_state import EPOCHS, join

Told = tuple[str, int, int]
"""A topic, a partition, and the offset to go on at."""


def member(name: str, instance_id: str | None = None) -> GroupMember:
    """One member."""
    return GroupMember(name, instance_id, "client", "host")


def gather(
    group_id: str, after: int = NO_VERSION, generation: int = 1, *members: str | GroupMember, broker: int = 1
) -> requests.CommitGroup:
    """A coordinator goes on with a group."""
    made = tuple(member(one) if isinstance(one, str) else one for one in members)
    return requests.CommitGroup((broker, EPOCHS[broker]), group_id, after, generation, "consumer", made)


def offsets(told: Iterable[Told], metadata: str = "") -> tuple[TopicOffsets, ...]:
    """One partition for each."""
    return tuple(
        TopicOffsets(topic, (PartitionOffset(partition, offset, 3, metadata),)) for topic, partition, offset in told
    )


def keep(
    group_id: str,
    *told: Told,
    who: tuple[int, str, str | None] = (NO_GENERATION, "", None),
    transaction: tuple[str, tuple[int, int]] | None = None,
    metadata: str = "",
    operator: bool = False,
) -> requests.CommitOffsets:
    """Commit offsets. `who`: generation, member id and instance id."""
    with_what = None if transaction is None else OffsetsTransaction(transaction[0], *transaction[1])
    broker = None if operator else (1, EPOCHS[1])
    return requests.CommitOffsets(broker, group_id, offsets(told, metadata), *who, with_what)


def add_group(name: str, producer: tuple[int, int], group_id: str) -> requests.AddPartitionsToTxn:
    """A transaction is to settle offsets of a group (AddOffsetsToTxn)."""
    return join(name, producer, OFFSETS_TOPIC, offsets_partition(group_id))


def delete(group_id: str) -> requests.DeleteGroup:
    """An operator's."""
    return requests.DeleteGroup(None, group_id)


def delete_offsets(group_id: str, *places: tuple[str, int], operator: bool = False) -> requests.DeleteOffsets:
    """Forget offsets."""
    topics = tuple(TopicPartitions(topic, (partition,)) for topic, partition in places)
    return requests.DeleteOffsets(None if operator else (1, EPOCHS[1]), group_id, topics)


def committed(machine: StateMachine, group_id: str) -> dict[tuple[str, int], int]:
    """Where a group is to go on, in each partition that it committed."""
    group = machine.groups.get(group_id)
    return {} if group is None else {(topic, number): kept.offset for topic, number, kept in group.committed_after()}


def pending(machine: StateMachine, group_id: str) -> dict[tuple[str, int, int], int]:
    """What transactions hold: by topic, partition and producer id."""
    group = machine.groups.get(group_id)
    return (
        {} if group is None else {(topic, number, who): kept.offset for topic, number, who, kept in group.all_pending()}
    )
