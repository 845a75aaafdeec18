"""A transactional producer that says over Kafka's wire whatever a test likes, in the versions of KIP-890."""

from __future__ import annotations

import socket
import struct
import time
from collections import Counter
from typing import Any, Final, NamedTuple

from pidkeeper.broker_agent.kafka.wire.find_coordinator import GROUP, TRANSACTION
from pidkeeper.protocol.addresses import HostPort
from tests.support.built_batches import built
from tests.support.plain_messages import Plain, requests, response

Pair = tuple[int, int]

NO_PAIR: Final[Pair] = (-1, -1)
TIMEOUT_MS: Final = 60_000
SECONDS: Final = 30.0
"""How long an answer may take; never how fast it must be."""

POLL_SECONDS: Final = 0.005
COME_AGAIN: Final = frozenset({6, 14, 15, 16, 19, 51})
"""What passes: coordinators and leaders come up, and markers of the transaction before are being written."""


class Told(NamedTuple):
    """An answer. `pair`: with what the producer is to go on, if it is told."""

    code: int
    pair: Pair = NO_PAIR


class TransactionalWire:
    """`pairs`: all that it was given, oldest first. What passes by itself is asked again, as clients do."""

    def __init__(self, bootstrap: str, transactional_id: str, topic: str) -> None:
        address = HostPort.parse(bootstrap, "bootstrap")
        self._socket = socket.create_connection((address.host, address.port), SECONDS)
        self._stream = self._socket.makefile("rb")
        self._id = transactional_id
        self._topic = topic
        self._sequences: Counter[tuple[int, Pair]] = Counter()
        self.pairs: list[Pair] = []

    def init(self, pair: Pair = NO_PAIR, *, timeout_ms: int = TIMEOUT_MS) -> Told:
        """InitProducerId 5."""
        answer = self._ask("init_producer_id", 5, pair, {"transaction_timeout_ms": timeout_ms})
        return self._given(Told(answer["error_code"], (answer["producer_id"], answer["producer_epoch"])))

    def end(self, pair: Pair, *, committed: bool, version: int = 5) -> Told:
        """EndTxn."""
        answer = self._ask("end_txn", version, pair, {"committed": committed})
        told = (answer["producer_id"], answer["producer_epoch"]) if version >= 5 else NO_PAIR
        return self._given(Told(answer["error_code"], told))

    def produce(self, pair: Pair, *, partition: int = 0, version: int = 12, skipped: int = 0) -> Told:
        """A batch of one record, with the next sequence of the pair in that partition; or `skipped` behind that."""
        sequence = self._sequences[partition, pair] + skipped
        records = built(0, (b"k", b"v"), producer=(*pair, sequence), transactional=True)
        topic = {"name": self._topic, "partition_data": [{"index": partition, "records": records}]}
        answer = self._ask("produce", version, pair, {"acks": -1, "timeout_ms": 10_000, "topic_data": [topic]})
        told = Told(answer["responses"][0]["partition_responses"][0]["error_code"])
        self._sequences[partition, pair] += told.code == 0
        return told

    def add(self, pair: Pair, *, partition: int = 0) -> Told:
        """AddPartitionsToTxn 3."""
        topics = [{"name": self._topic, "partitions": [partition]}]
        message = {f"v3_and_below_{name}": value for name, value in {**self._producer(pair), "topics": topics}.items()}
        (topic,) = self._ask("add_partitions_to_txn", 3, pair, message)["results_by_topic_v3_and_below"]
        return Told(topic["results_by_partition"][0]["partition_error_code"])

    def offsets(self, pair: Pair, group: str, *, version: int = 5) -> Told:
        """TxnOffsetCommit of a group that has no members."""
        partition = {
            "partition_index": 0,
            "committed_offset": 1,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        message = {
            "group_id": group,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": self._topic, "partitions": [partition]}],
        }
        (topic,) = self._ask("txn_offset_commit", version, pair, message)["topics"]
        return Told(topic["partitions"][0]["error_code"])

    def find_coordinators(self) -> None:
        """Of its transactional id, and of a group of that name: whoever looks has a broker of Kafka begin to be one."""
        for key_type in (GROUP, TRANSACTION):
            self._ask("find_coordinator", 3, NO_PAIR, {"key": self._id, "key_type": key_type})

    def close(self) -> None:
        """Hang up."""
        self._stream.close()
        self._socket.close()

    def _producer(self, pair: Pair) -> Plain:
        return {"transactional_id": self._id, "producer_id": pair[0], "producer_epoch": pair[1]}

    def _given(self, told: Told) -> Told:
        if told.pair != NO_PAIR and told.pair not in self.pairs:
            self.pairs.append(told.pair)
        return told

    def _ask(self, api: str, version: int, pair: Pair, message: Plain) -> Any:
        frame = requests(api, version, self._producer(pair) | message)[0]
        deadline = time.monotonic() + SECONDS
        while True:
            self._socket.sendall(struct.pack(">i", len(frame)) + frame)
            (size,) = struct.unpack(">i", self._stream.read(4))
            answer = response(api, version, self._stream.read(size))
            if COME_AGAIN.isdisjoint(_codes(answer)):
                return answer
            assert time.monotonic() < deadline, f"{api} {version} is answered {answer}"
            time.sleep(POLL_SECONDS)


def _codes(answer: Any) -> set[int]:
    """All error codes in it."""
    if isinstance(answer, list):
        return set().union(*map(_codes, answer))
    if not isinstance(answer, dict):
        return set()
    own = {value for name, value in answer.items() if name.endswith("error_code")}
    return own.union(*map(_codes, answer.values()))
