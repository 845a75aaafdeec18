"""The verdict of an audit, from what the driver's connection has when all is concluded."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pidkeeper.pipeline.evidence import Seen, judge
from pidkeeper.pipeline.partition_logs import conclude as partition_logs
from pidkeeper.pipeline.quorum import conclusions
from pidkeeper.pipeline.segments import conclude as segments
from pidkeeper.pipeline.verdict import BadFile, CheckCount, Verdict, Watermark
from pidkeeper.protocol.ids import OWN

MAX_NAMED_BAD_FILES: Final = 100
"""So many are named in the verdict; the table `files` has all."""
MAX_NAMED_PARTITIONS: Final = 100
"""The same for the partitions in the verdict's watermark."""

FACTS_SQL: Final = f"""
with spans as (
    select first_ms, last_ms from shards
    union all select timestamp_ms, timestamp_ms from blocks_adrift where is_time(timestamp_ms)
    union all select first_timestamp_ms, last_timestamp_ms from batches_daily
)
select
    (select count(*) from audited_files) as files_read,
    (select count(*) filter (problems > 0) from audited_files) as files_bad,
    (select coalesce(sum(blocks), 0) from shards) + (select count(*) from versions where version > 1)
        + (select count(*) from blocks_adrift) as blocks,
    (select coalesce(sum(ids), 0) from shards)
        + (select coalesce(sum(last_id::hugeint - first_id + 1), 0) from blocks_adrift) as ids,
    (select coalesce(sum(batches), 0) from batches_daily) as batches,
    (select count(distinct broker_id) from (
        select broker_id from brokers
        union all select broker_id from blocks_adrift where broker_id <> {OWN}
    )) as brokers,
    greatest((select max(last_id) from id_runs), (select max(last_id) from blocks_adrift)) as highest_id,
    (select min(first_ms) filter (is_time(first_ms)) from spans) as first_ms,
    (select max(last_ms) filter (is_time(last_ms)) from spans) as last_ms
"""
BAD_FILES_SQL: Final = """
select file, kinds, first_position, detail from audited_files where problems > 0 order by file limit $most
"""
PARTITIONS_SQL: Final = """
select topic, "partition", max(last_offset) from batches_daily group by all order by topic, "partition"
"""
READ_ANEW_SQL: Final = """
select count(distinct file_id) from (
    select a.file_id from archive_files a join shard_inputs i on a.shard = i.shard and not i.settled
    union all select file_id from logs
    union all select file_id from snapshots
    union all select file_id from segment_parts where anew
)
"""


def sum_up(con: Any, seen: Seen) -> Verdict:
    """Whether all is well, in figures."""
    counts = _counts(con, seen)
    violations = sum(count.violations for count in counts.values())
    found = judge(seen)
    bad = con.execute(BAD_FILES_SQL, {"most": MAX_NAMED_BAD_FILES}).fetchall()
    ((read_anew,),) = con.sql(READ_ANEW_SQL).fetchall()
    return Verdict(
        verdict="violations" if violations else "incomplete" if found.unseen else "clean",
        violations=violations,
        warnings=sum(count.warnings for count in counts.values()),
        notes=sum(count.notes for count in counts.values()),
        checks=counts,
        bad_files=[BadFile(*row) for row in bad],
        watermark=_watermark(con, seen.held_by),
        coverage=found,
        pidkeeper_version=importlib.metadata.version("pidkeeper"),
        files_read_anew=read_anew,
        **_facts(con),
    )


def _counts(con: Any, seen: Seen) -> dict[str, CheckCount]:
    ran: tuple[str, ...] = conclusions.CHECKS if seen.quorum else ()
    ran += segments.CHECKS if seen.segments or seen.logs is not None else ()
    ran += partition_logs.CHECKS if seen.logs is not None else ()
    counts = {name: CheckCount() for name in (*ran, "files")}
    for check, severity, count in con.sql('select "check", severity, count(*) from findings group by all').fetchall():
        setattr(counts.setdefault(check, CheckCount()), f"{severity}s", count)
    return counts


def _facts(con: Any) -> dict[str, Any]:
    found = con.execute(FACTS_SQL)
    names = [column[0] for column in found.description]
    (row,) = found.fetchall()
    return {name: None if value is None else int(value) for name, value in zip(names, row, strict=True)}


def _watermark(con: Any, held: Mapping[str, Sequence[tuple[int, int]]]) -> Watermark:
    reach = {member: intervals[-1][1] for member, intervals in held.items()}
    partitions = con.sql(PARTITIONS_SQL).fetchall()
    named = {f"{topic}-{partition}": last for topic, partition, last in partitions[:MAX_NAMED_PARTITIONS]}
    return Watermark(log_offsets=reach, partition_offsets=named, partitions=len(partitions))
