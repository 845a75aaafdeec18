"""Which agent clients are told to ask for a partition: by rendezvous hashing, as for transactional ids.

Any agent that has its store serves any partition. Naming one brings the batches of a partition together, in fewer and
larger objects.
"""

from __future__ import annotations

import asyncio
from typing import Final

from pidkeeper.broker_agent.coordinator.directory import Directory, Node, weight
from pidkeeper.protocol.log_messages import TopicDescription
from pidkeeper.protocol.logs import MAX_PARTITIONS

WEIGHED_AT_ONCE: Final = 2000
"""Weights between two turns of the event loop: two milliseconds."""


class Leaders:
    """Names of leaders, remembered while the same agents live: MAX_PARTITIONS of them, a few bytes each."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._nodes: tuple[Node, ...] = ()
        self._known: dict[bytes, list[int]] = {}
        self._partitions = 0

    async def leaders(self, topic: TopicDescription) -> list[int]:
        """The broker id of each partition's leader; all agents with the same directory name the same."""
        # One without a store would send clients on. Where nobody has one, they come again.
        nodes = self._directory.keepers or self._directory.nodes
        if nodes != self._nodes or self._partitions > MAX_PARTITIONS:
            self._nodes, self._partitions = nodes, 0
            self._known.clear()
        key = topic.topic_id.bytes
        known = self._known.get(key)
        if known is None or len(known) != topic.partitions:
            known = []
            for partition in range(topic.partitions):
                name = key + partition.to_bytes(4, "big")
                known.append(max(nodes, key=lambda node: (weight(node.id, name), node.id)).id)
                if (partition + 1) * len(nodes) % WEIGHED_AT_ONCE < len(nodes):
                    await asyncio.sleep(0)
            if nodes == self._nodes:
                self._known[key] = known
                self._partitions += topic.partitions
        return known
