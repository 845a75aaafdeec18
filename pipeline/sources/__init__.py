"""Spark data sources for the files of the quorum, and for Kafka's."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pipeline.sources.archive import ArchiveSource
from pipeline.sources.kafka_segment import KafkaSegmentSource
from pipeline.sources.write_ahead_log import LogSource


def register(spark: SparkSession) -> None:
    """Make every source known to a session: `pidkeeper_archive`, `pidkeeper_log`, `kafka_segment`."""
    for source in (ArchiveSource, LogSource, KafkaSegmentSource):
        spark.dataSource.register(source)
