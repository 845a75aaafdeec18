"""Topics by name and by id."""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Iterable

from pidkeeper.protocol.logs import TopicRecord


class Topics:
    """Topics by name. `partitions`: of all of them. `next_log`: the number of the next partition's log."""

    __slots__ = ("_by_id", "_by_name", "_names", "next_log", "partitions")

    def __init__(self, topics: Iterable[TopicRecord] = (), next_log: int = 0) -> None:
        self._by_name: dict[str, TopicRecord] = {}
        self._by_id: dict[uuid.UUID, TopicRecord] = {}
        # Ascending; None when topics came or went since the last look.
        self._names: list[str] | None = None
        self.partitions = 0
        self.next_log = 0
        for topic in topics:
            self.add(topic, "a snapshot")
        self.next_log = next_log

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> TopicRecord | None:
        """The topic of that name, if there is one."""
        return self._by_name.get(name)

    def of_id(self, topic_id: uuid.UUID) -> TopicRecord | None:
        """The topic with that id, if there is one."""
        return self._by_id.get(topic_id)

    def all(self) -> list[TopicRecord]:
        """All topics, in the order of their creation."""
        return list(self._by_name.values())

    def after(self, name: str, limit: int) -> list[TopicRecord]:
        """The first topics whose names are above `name`, ascending, at most `limit`."""
        if self._names is None:
            self._names = sorted(self._by_name)
        first = bisect_right(self._names, name)
        return [self._by_name[one] for one in self._names[first : first + limit]]

    def add(self, topic: TopicRecord, where: str) -> None:
        """A topic was created; `where`: for the message if it cannot have been."""
        assert topic.first_log >= self.next_log, f"L2: {where} has {topic}, but log {self.next_log} is the next one"
        assert topic.name not in self._by_name, f"L2: {where} has {topic} beside {self._by_name[topic.name]}"
        assert topic.topic_id not in self._by_id, f"L2: {where} has {topic} beside {self._by_id[topic.topic_id]}"
        self._by_name[topic.name] = self._by_id[topic.topic_id] = topic
        self.partitions += topic.partitions
        self.next_log = topic.first_log + topic.partitions
        self._names = None

    def remove(self, topic_id: uuid.UUID, where: str) -> TopicRecord:
        """A topic was deleted; which it was."""
        topic = self._by_id.pop(topic_id, None)
        assert topic is not None, f"L2: {where} deletes topic {topic_id}, which there is not"
        del self._by_name[topic.name]
        self.partitions -= topic.partitions
        self._names = None
        return topic
