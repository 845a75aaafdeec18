"""An independent consumer of a whole topic: it assigns itself all partitions, from their beginnings."""

from __future__ import annotations

from typing import Final, Literal

import confluent_kafka
from confluent_kafka import KafkaError

MAX_AT_ONCE: Final = 1000
Level = Literal["read_committed", "read_uncommitted"]


class Reader:
    """`values`: what was read of each partition, by its number. Close it."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, level: Level = "read_committed") -> None:
        self.values: list[list[str]] = [[] for _ in range(partitions)]
        self._ended = [False] * partitions
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                # It has to name a group, and is of none.
                "group.id": "none",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": level,
                "log_level": 0,
            }
        )
        self._consumer.assign([confluent_kafka.TopicPartition(topic, one, 0) for one in range(partitions)])

    @property
    def count(self) -> int:
        return sum(map(len, self.values))

    @property
    def at_the_end(self) -> bool:
        """Whether there was nothing more in any partition when it was last looked at."""
        return all(self._ended)

    def read(self, seconds: float) -> None:
        """Take what comes within `seconds`."""
        for message in self._consumer.consume(MAX_AT_ONCE, seconds):
            partition, value, error = message.partition(), message.value(), message.error()
            if error is None:
                assert partition is not None and value is not None, "a consumed message has both"
                self.values[partition].append(value.decode())
                self._ended[partition] = False
            elif error.code() == KafkaError._PARTITION_EOF:
                assert partition is not None, "an end is that of a partition"
                self._ended[partition] = True
            else:
                # Those who serve are killed and stopped: it finds them again by itself.
                assert error.retriable() or error.code() in _AWAY, error

    def close(self) -> None:
        self._consumer.close()


_AWAY: Final = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}
