"""What each producer wrote, in numbers: by log and epoch, and in all, with the block that its ID lies in."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from pidkeeper.pipeline.checks.segments.blocks import allocated_blocks, with_block
from pidkeeper.pipeline.checks.segments.producers import producer_rows
from pidkeeper.pipeline.derived import derived
from pidkeeper.pipeline.inputs import AuditInputs


@derived
def producer_epochs(inputs: AuditInputs) -> DataFrame:
    """One row for each epoch of each producer in each log: `producer_id`, `epoch`, `log_id`, `partition_id`, and

    `batches`, markers included; `data_batches`; `data_ms`, the earliest timestamp of data; `inside`, `outside`: whether
    it wrote data in transactions and outside of them. Without fenced batches: `from_any`, the earliest timestamp, and
    `to_any`, the newest of data; `from_broker`, `to_broker`, the same by brokers' clocks. Where the producer's first
    row in the log is of the epoch, its `first_offset`, `first_file`, `first_position` and `first_ms`.

    Cost: one exchange of these rows, after partial aggregation.
    """
    data, stamp = ~F.col("is_control"), F.col("timestamp_ms")
    valid = F.col("fenced_by").isNull()
    by_broker = valid & F.col("broker_clock")
    first = {"offset": "base_offset", "file": "file_id", "position": "position", "ms": "timestamp_ms"}
    return (
        producer_rows(inputs)
        .groupBy("producer_id", "epoch", "log_id", "partition_id")
        .agg(
            F.count("*").alias("batches"),
            F.count(F.when(data, True)).alias("data_batches"),
            F.min(F.when(data, stamp)).alias("data_ms"),
            F.max(data & F.col("is_transactional")).alias("inside"),
            F.max(data & ~F.col("is_transactional")).alias("outside"),
            F.min(F.when(valid, stamp)).alias("from_any"),
            F.max(F.when(valid & data, stamp)).alias("to_any"),
            F.min(F.when(by_broker, stamp)).alias("from_broker"),
            F.max(F.when(by_broker & data, stamp)).alias("to_broker"),
            *[F.max(F.when(F.col("is_first"), F.col(name))).alias(f"first_{word}") for word, name in first.items()],
        )
    )


@derived
def producer_ids(inputs: AuditInputs) -> DataFrame:
    """One row for each producer id: `batches`, `data_batches`; `mixed`: whether it wrote both in transactions and
    outside of them; `block`: `last_id`, `first_id` and `broker_id` of a block around it, null without one.

    Cost: an exchange of a row for each epoch of a producer in a log, once with these figures and once with the id
    alone, and then that of blocks.py.
    """
    ids = (
        producer_epochs(inputs)
        .groupBy("producer_id")
        .agg(
            F.sum("batches").alias("batches"),
            F.sum("data_batches").alias("data_batches"),
            (F.max("inside") & F.max("outside")).alias("mixed"),
        )
    )
    return with_block(ids, allocated_blocks(inputs))
