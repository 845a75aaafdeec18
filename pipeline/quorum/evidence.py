"""The tables of evidence that kernels give of a quorum, as Arrow schemas.

A shard is a range of log offsets. Its blocks are judged where they are read; here is what is in doubt, and what the
driver needs to judge over the seams of shards. Names of members and files are numbers: `member_id` from 0 on, `file_id`
as the table `files` has it.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

_LONG: Final = pa.int64()
_INT: Final = pa.int32()
_TEXT: Final = pa.string()

POSITIONS: Final = 1 << 40
"""More than the bytes of any file, 1 TiB: a file's number and a position in it are one number, a `place`."""

ALLOCATIONS: Final = ("AllocateProducerIdsRecord", "TransactionalBlockRecord")
"""The records of blocks: given to a broker, or taken by the quorum for transactional producers."""

BLOCK_FIELDS: Final = (
    ("offset", _LONG),
    ("first_id", _LONG),
    ("last_id", _LONG),
    ("broker_id", _INT),
    ("broker_epoch", _LONG),
    ("timestamp_ms", _LONG),
    ("place", _LONG),
)
"""A block, and where its first copy stands. The offset is null where no copy tells it."""
BLOCK: Final = pa.struct(BLOCK_FIELDS)

COPIES: Final = pa.schema([*BLOCK_FIELDS, ("member_id", _INT), ("archived", pa.bool_())])
"""Every copy of every block: in an archive, or in a log."""

BLOCKS: Final = pa.schema(
    [
        ("first_id", _LONG),
        ("last_id", _LONG),
        ("offset", _LONG),
        ("broker_id", _INT),
        ("broker_epoch", _LONG),
        ("timestamp_ms", _LONG),
        ("members", _LONG),
        ("version", _INT),
        ("place", _LONG),
        ("day", _TEXT),
    ]
)
"""The table `blocks`: each block once, in the order of the log. `report.tables` says what the columns mean."""


def _table(*columns: tuple[str, Any]) -> Any:
    return pa.schema(columns)


SHARDS: Final = _table(
    ("shard", _INT),
    ("blocks", _LONG),
    ("last_offset", _LONG),
    ("ids", pa.decimal128(38)),
    ("first_ms", _LONG),
    ("last_ms", _LONG),
    ("disordered", _LONG),  # blocks that do not begin above all before them in the shard
    ("lowest", BLOCK),
    ("first", BLOCK),
    ("top", BLOCK),  # reaches farthest
)
ID_RUNS: Final = _table(("shard", _INT), ("first_id", _LONG), ("last_id", _LONG))
"""The IDs of a shard's blocks as runs, in order; of all versions of a block."""
GAPS: Final = _table(("shard", _INT), ("gap_from", _LONG), ("after", _LONG), ("block", BLOCK))
BROKERS: Final = _table(
    ("shard", _INT),
    ("broker_id", _INT),
    ("blocks", _LONG),
    ("first_id", _LONG),
    ("last_id", _LONG),
    ("first", BLOCK),
    ("last", BLOCK),
    ("minute_blocks", _LONG),  # in the busiest minute
    ("minute_ms", _LONG),  # its end
    ("from_ms", _LONG),
    ("to_ms", _LONG),
    ("bucket_low", pa.float64()),  # of the token bucket: see `brokers`
    ("bucket_high", BLOCK),
    ("bucket_high_level", pa.float64()),
    ("bucket_used", _LONG),
    ("bucket_peak", BLOCK),
    ("seam_ms", pa.list_(_LONG)),
)
EPOCH_FALLS: Final = _table(("block", BLOCK), ("previous", BLOCK))
EPOCHS: Final = _table(("shard", _INT), ("broker_epoch", _LONG), ("first", BLOCK))
"""The first block of each registration in a shard."""
STALE_EPOCHS: Final = _table(("block", BLOCK), ("newest", _LONG))
VERSIONS: Final = _table(("block", BLOCK), ("version", _INT), ("copies", _LONG), ("members", _LONG))
ABSENT: Final = _table(
    ("block", BLOCK), ("member_id", _INT), ("file_id", _INT), ("position", _LONG), ("instead", _TEXT)
)
SNAPSHOT_REACH: Final = _table(("next_offset", _LONG), ("block", BLOCK))
HOURS: Final = _table(("shard", _INT), ("hour", _LONG), ("ids", pa.float64()), ("blocks", _LONG))
ARCHIVE_FILES: Final = _table(
    ("file_id", _INT),
    ("member_id", _INT),
    ("cluster_id", _TEXT),
    ("rows", _LONG),
    ("copies", _LONG),  # rows of the shard that came from it
)
PROBLEMS: Final = _table(
    ("file_id", _INT),
    ("member_id", _INT),
    ("file", _TEXT),  # where no number is known
    ("kind", _TEXT),
    ("position", _LONG),
    ("index", _LONG),
    ("detail", _TEXT),
)

SHARD_INPUTS: Final = _table(
    ("shard", _INT),
    ("from_offset", _LONG),
    ("to_offset", _LONG),
    ("inputs", _TEXT),  # a sum of all that it was judged from
    ("settled", pa.bool_()),  # an earlier audit has judged just that
)
CHANGED: Final = _table(
    ("block", BLOCK),  # as an earlier audit saw it
    ("now", BLOCK),  # null: no file has it
    ("blocks", _LONG),  # that many in a row are gone
    ("last_id", _LONG),
    ("last_offset", _LONG),
)
_OF_SHARDS: Final = {
    "shards": SHARDS,
    "id_runs": ID_RUNS,
    "gaps": GAPS,
    "brokers": BROKERS,
    "epoch_falls": EPOCH_FALLS,
    "epochs": EPOCHS,
    "stale_epochs": STALE_EPOCHS,
    "versions": VERSIONS,
    "absent": ABSENT,
    "snapshot_reach": SNAPSHOT_REACH,
    "hours": HOURS,
    "archive_files": ARCHIVE_FILES,
    "problems": PROBLEMS,
    "changed": CHANGED,
}
OF_SHARDS: Final = {
    name: schema if "shard" in schema.names else schema.append(pa.field("shard", _INT))
    for name, schema in _OF_SHARDS.items()
}
"""By name, what is known of a shard, each row with its number."""
CHANGED_BEFORE: Final = OF_SHARDS["changed"]
"""What earlier audits found changed in shards that are judged anew."""
TABLES: Final = {**OF_SHARDS, "shard_inputs": SHARD_INPUTS, "changed_before": CHANGED_BEFORE, "adrift": COPIES}
"""All of the quorum beside what `quorum.logs` has. Problems of logs and snapshots are of no shard."""


def of_shard(number: int, name: str, batch: Any) -> Any:
    """A batch with the column that says of which shard it is."""
    if name not in _OF_SHARDS or "shard" in batch.schema.names:
        return batch
    shard = pa.array([number] * batch.num_rows, _INT)
    return pa.RecordBatch.from_arrays([*batch.columns, shard], schema=OF_SHARDS[name])
