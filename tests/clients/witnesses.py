"""Producer ids by kafka-python over the Kafka wire; the demonstration has the same for the other two libraries."""

from __future__ import annotations

import time
import warnings

from pidkeeper.cli.demo.witnesses import WITNESS_SECONDS, aiokafka_ids, confluent_ids

with warnings.catch_warnings():
    # kafka-python reads its bundled schemas in a way that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaProducer
    from kafka.errors import KafkaError as KafkaPythonError

__all__ = ["KafkaProducer", "KafkaPythonError", "aiokafka_ids", "confluent_ids", "kafka_python_ids"]


def kafka_python_ids(kafka: str, count: int) -> list[int]:
    """`count` ids by as many kafka-python producers, one after the other."""
    return [_kafka_python_id(kafka) for _ in range(count)]


def _kafka_python_id(kafka: str) -> int:
    producer = KafkaProducer(bootstrap_servers=kafka)
    try:
        deadline = time.monotonic() + WITNESS_SECONDS
        while time.monotonic() < deadline:
            pair = producer._transaction_manager.producer_id_and_epoch
            if pair.is_valid:
                return int(pair.producer_id)
            time.sleep(0.002)
        raise TimeoutError(f"kafka-python got no producer id within {WITNESS_SECONDS} s")
    finally:
        producer.close(timeout=1)
