"""Which partitions may not join a transaction (`KafkaApis.handleAddPartitionsToTxnRequest`).

Where an agent keeps partition logs, a partition has to exist, and its topic to be one that the producer may write to.
"""

from __future__ import annotations

from collections.abc import Iterable

from pidkeeper.broker_agent.coordinator.caller import Caller
from pidkeeper.broker_agent.data.codes import TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION
from pidkeeper.broker_agent.data.topics import Topics, log_of
from pidkeeper.broker_agent.security.resources import TOPIC_WRITE
from pidkeeper.protocol.messages import TransactionTopic


class Joining:
    """Looks at what wants to join."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    async def refused(self, wanted: Iterable[TransactionTopic], caller: Caller) -> dict[tuple[str, int], int]:
        """Kafka's code for each topic and partition that may not join. Raises RequestError while nobody can tell."""
        refused: dict[tuple[str, int], int] = {}
        allowed = []
        for one in wanted:
            if caller.may(TOPIC_WRITE, one.topic):
                allowed.append(one)
            else:
                refused |= {(one.topic, partition): TOPIC_AUTHORIZATION_FAILED for partition in one.partitions}
        known = await self._topics.find(one.topic for one in allowed)
        for one in allowed:
            for partition in one.partitions:
                if log_of(known.get(one.topic), partition) is None:
                    refused[one.topic, partition] = UNKNOWN_TOPIC_OR_PARTITION
        return refused
