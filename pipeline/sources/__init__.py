"""Spark data sources for the files of the quorum, and for Kafka's."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make every source known to a session: `pidkeeper_archive`, `pidkeeper_log`, `kafka_segment`."""
    # Listing and reading files goes without Spark: only a session needs the sources themselves.
    from pidkeeper.pipeline.sources.archive import ArchiveSource
    from pidkeeper.pipeline.sources.kafka_segment import KafkaSegmentSource
    from pidkeeper.pipeline.sources.write_ahead_log import LogSource

    for source in (ArchiveSource, LogSource, KafkaSegmentSource):
        spark.dataSource.register(source)
