"""The rolled segments of an audit: what is to be read of them, and what only shows on the driver.

Segments of one log follow one another and then the tail; the coordinates of `history` and of other members' views say
the same of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from pidkeeper.pipeline.engine.blobs import to_blob
from pidkeeper.pipeline.engine.duck import has_rows
from pidkeeper.pipeline.files.location import Location
from pidkeeper.pipeline.formats.log_segment import ByteRange
from pidkeeper.pipeline.partition_logs.rolled_batches import KNOWN, Named
from pidkeeper.pipeline.partition_logs.rolled_reading import RolledSegment
from pidkeeper.pipeline.segments.listing import BUCKET_BYTES, MAX_BUCKETS
from pidkeeper.pipeline.segments.plan import SegmentPart
from pidkeeper.pipeline.segments.segment_files import Part, SegmentFile

DUE_SQL: Final = """
select s.object, s.segment, base_offset, end_offset, size, index_size, max_timestamp, topic, "partition",
    part, p.file_id, log_id, partition_id, topic_id, p.member_id
from log_segments s join log_parts p using (segment) where object is not null order by segment
"""
SEAMS_SQL: Final = """
create temp table seam_faults as
with told as (select c.*, s.log_number from crossings c join log_segments s using (segment)),
compared as (
    -- All others have no crossings, and a fault already.
    select segment, log_number from log_segments
    semi join (select segment from segments_seen group by segment having bool_and(state = 'read')) using (segment)
    anti join segment_faults using (segment)
),
pairs as (
    select c.segment, b.segment as behind from compared c
    join compared b on b.segment = c.segment + 1 and b.log_number = c.log_number
),
across as (
    select p.*, kind, producer_id, first_offset, marker_offset from pairs p
    join told t on t.segment = p.segment where kind = 'leaves'
    union all
    select p.*, kind, producer_id, first_offset, marker_offset from pairs p
    join told t on t.segment = p.behind where kind = 'enters'
),
lonely as (
    select segment, behind, any_value(kind) as kind, producer_id, first_offset, marker_offset from across
    group by segment, behind, producer_id, first_offset, marker_offset having count(*) = 1
),
lasts as (
    from (select max(segment) as segment, log_number from log_segments group by log_number)
    semi join compared using (segment)
),
tail_markers as (from marker_versions where version = 1 and not rolled)
select case kind when 'leaves' then segment else behind end as segment, producer_id,
    format('the transaction of producer {} from offset {} aborted at {} is not in the index of the segment {} it',
        producer_id, first_offset, marker_offset, case kind when 'leaves' then 'behind' else 'before' end) as detail
from lonely
union all
select p.behind, b.producer_id, format('the transaction of producer {} aborted at offset {} began at {} by it, and has '
    'a batch in the segment before it', b.producer_id, b.marker_offset, b.first_offset)
from pairs p join told b on b.segment = p.behind join told o on o.segment = p.segment and o.producer_id = b.producer_id
where b.kind = 'begins' and o.kind = 'open'
union all
select t.segment, t.producer_id, format('by it a transaction of producer {} was aborted at offset {}, and no such '
    'marker is in the log''s tail', t.producer_id, t.marker_offset)
from lasts join told t using (segment) left join tail_markers m
on m.log_number = t.log_number and m.base_offset = t.marker_offset and m.producer_id = t.producer_id and not committed
where t.kind = 'leaves' and m.base_offset is null
union all
select o.segment, o.producer_id, format('it lacks the transaction of producer {} aborted at offset {}, in the '
    'log''s tail', o.producer_id, m.base_offset)
from lasts join told o using (segment) join (
    select log_number, producer_id, min(base_offset) as base_offset, arg_min(committed, base_offset) as committed
    from tail_markers group by all
) m on m.log_number = o.log_number and m.producer_id = o.producer_id and not m.committed
left join told t on t.segment = o.segment and t.kind = 'leaves' and t.producer_id = o.producer_id
where o.kind = 'open' and t.marker_offset is distinct from m.base_offset
"""
"""What the indices of neighbours, and the tail behind the last one, do not agree about."""
FINDINGS_SQL: Final = r"""
create temp table segment_findings as
with every as (
    select segment, "check", position, base_offset, producer_id, "check" = 'segment_index' as indexed, detail
    from segment_faults
    union all
    select segment, 'segment_index', 0, null, producer_id, true, detail from seam_faults
    union all
    select segment, case when indexed then 'segment_index' else 'segments' end, null, null, null, indexed,
        case when indexed then 'the index is not in the store: nobody can read the segment'
            else format('it is not in the store: {} offsets are lost', offsets) end
    from segments_seen w join log_segments using (segment) semi join lost_objects l on l.object = w.object
    union all
    select segment, 'segments', null, null, null, false,
        format('{} segments have this object, number {} of broker {}, epoch {}', count(*) over same, number, broker_id,
            broker_epoch)
    from log_segments window same as (partition by founding, broker_id, broker_epoch, number)
    qualify count(*) over same > 1
    union all
    select segment, 'segments', null, null, null, false, 'it is named after another partition, ' || topic || '-'
        || "partition" from log_segments where not named_well
    union all
    select segment, 'log_offsets', null, l.start, null, false,
        format('no file has offsets {} to {}', l.start, base_offset - 1)
    from log_segments s join partition_logs l on l.number = s.log_number
    semi join (select min(segment) as segment from log_segments group by log_number) using (segment)
    where base_offset > l.start
)
select e.* exclude (base_offset), coalesce(e.base_offset, s.base_offset) as base_offset, s.log_number,
    case when indexed then regexp_replace(object, '\.log$', '.sparse') else object end as file, s.max_timestamp,
    row_number() over (order by segment, "check" desc, position nulls first, e.detail) as rank
from every e join log_segments s using (segment)
"""
FOUND_SQL: Final = """
insert into findings by name
select "check", 'violation' as severity, format('{}, offset {}', log_text(l.log), base_offset) as subject,
    producer_id as first_id, producer_id as last_id, base_offset as "offset", topic, "partition",
    case when is_time(max_timestamp) then max_timestamp end as timestamp_ms, file, "position", detail
from segment_findings f join partition_logs l on l.number = f.log_number where rank <= $most
"""
SHAPES_SQL: Final = """
insert into findings by name
with spans as (
    select v.member_id, v.view, least(v.to_index, r."index", n."index") as "index",
        greatest(v.from_index, o.from_index) as from_index
    from views v join reached r using (member_id), newest_view n
    join views o on (o.member_id, o.view) = (n.member_id, n.view)
    where (v.member_id, v.view) <> (n.member_id, n.view)
),
shapes as (
    select v.member_id, v.view, v."index", log, base_offset, s.member_id = v.member_id and s.view = v.view as own,
        {'to': end_offset - 1, 'broker': broker_id, 'epoch': broker_epoch, 'number': number, 'size': size,
            'index_size': index_size, 'latest': max_timestamp} as segment
    from spans v, newest_view n
    join rolled s on (s.member_id, s.view) in ((v.member_id, v.view), (n.member_id, n.view))
    where v."index" >= v.from_index and s."index" <= v."index" and coalesce(until_index > v."index", true)
),
unlike as (
    select member_id, log, min("index") as "index", min(base_offset) as base_offset,
        min({'base_offset': base_offset, 'own': own, 'segment': segment}) as first
    from (select *, count(*) over (partition by member_id, view, "index", log, base_offset, segment) as copies
        from shapes) where copies = 1 group by all
)
select 'replicas_disagree' as "check", 'violation' as severity,
    format('{}, offset {}, member {}', log_text(log), u.base_offset, name_of(u.member_id)) as subject,
    u.base_offset as "offset", topic, "partition", name_of(u.member_id) as member,
    format('at index {} {} says that the log has a segment from this offset on, {}, and {} does not', u."index",
        case when first.own then 'it' else 'member ' || name_of(n.member_id) end, first.segment::varchar,
        case when first.own then 'member ' || name_of(n.member_id) else 'it' end) as detail
from unlike u join partition_logs l using (log), newest_view n
"""
"""Views of the same index that have other segments: of a member, and the one that reaches farthest."""
LEFT_SQL: Final = """
insert into left_out by name
select "check", 'violation' as severity, count(*) as "rows" from segment_findings where rank > $most group by "check"
"""


def named_segments(con: Any, store: Location) -> list[RolledSegment]:
    """All that the newest view of members names, as `history` has them, and what else members tell of their batches."""
    known = _known(con)
    found = []
    for name, number, base, end, size, index_size, latest, topic, partition, *ids in con.execute(DUE_SQL).fetchall():
        number_of_part, file_id, log_id, partition_id, topic_id, member_id = ids
        named = Named(number, base, end, size, index_size, latest, known.get(number, b""))
        file = SegmentFile(store / name, "", topic, partition, base, size)
        part = SegmentPart(
            part=Part(file, ByteRange(0, size)),
            number=number_of_part,
            file_id=file_id,
            log_id=log_id,
            partition_id=partition_id,
            topic_id=topic_id,
            member_id=member_id,
            sequenced=True,
            whole=False,
        )
        found.append(RolledSegment(name, named, part))
    return found


def buckets_for(named: Sequence[RolledSegment]) -> int:
    """Into how many producers are cut."""
    return min(MAX_BUCKETS, 1 + sum(one.named.size for one in named) // BUCKET_BYTES)


def _known(con: Any) -> dict[int, bytes]:
    """By segment a blob of KNOWN."""
    table = con.sql("from known_of_segments").to_arrow_table().combine_chunks()
    numbers = table["segment"].to_numpy()
    rows = table.select(KNOWN.names).cast(KNOWN)
    cuts = (np.flatnonzero(np.diff(numbers)) + 1).tolist()
    return {
        int(numbers[start]): to_blob(rows.slice(start, end - start).combine_chunks().to_batches()[0])
        for start, end in pairwise([0, *cuts, len(numbers)])
        if end > start
    }


def conclude(con: Any, most: int) -> None:
    """Insert findings of `segments` and `segment_index`, the first `most` of all, and count the others.

    And of `replicas_disagree`, about which segments there are.
    """
    if not has_rows(con, "rolled"):
        return
    con.execute(SHAPES_SQL)
    con.execute(SEAMS_SQL)
    con.execute(FINDINGS_SQL)
    con.execute(FOUND_SQL, {"most": most})
    con.execute(LEFT_SQL, {"most": most})
