"""Files, logs and parts get numbers in the order of what they stand for."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pidkeeper.pipeline.segments.plan import SegmentPart, plan_segments
from pidkeeper.pipeline.segments.segment_files import list_segments
from tests.unit.pipeline.segments.logs import FIRST_SEGMENT, Log, write

P = 17


def test_numbers_ascend_with_member_folder_base_offset_and_byte(tmp_path: Path) -> None:
    logs = []
    for member in ("2", "1"):
        for topic, partition in (("orders", 10), ("orders", 9), ("__consumer_offsets", 0)):
            log = Log(topic, partition, member).run(P, 0, (0, 3, 6))
            log.rows[2]["name"] = f"{6:020}.log"
            logs.append(log)
    logs[0].rows[1]["name"] = "odd.log"
    write(tmp_path, logs)
    (tmp_path / "stray").mkdir()
    (tmp_path / "stray" / FIRST_SEGMENT).write_bytes(logs[0].segments()[FIRST_SEGMENT])
    plan = plan_segments(list_segments([str(tmp_path)]), {"orders": "delete"}, first_file_id=100, range_bytes=150)
    parts = [part for task in plan.tasks for part in task]
    assert [part.number for part in parts] == list(range(len(parts)))
    rows = {row["file_id"]: row for row in plan.files.to_pylist()}
    assert sorted(rows) == list(range(100, 100 + len(rows)))
    # The path of the stray file begins with a slash, and a member's id with a digit.
    places = [
        (rows[part.file_id]["member"][:1], rows[part.file_id]["topic"], rows[part.file_id]["partition"])
        for part in parts
    ]
    assert places == sorted(places, key=lambda place: (place[0], place[1] or "", str(place[2])))
    of_log = [part for part in parts if part.part.file.path.startswith(str(tmp_path / "2" / "orders-10"))]
    assert [(Path(part.part.file.path).name, part.part.range.start) for part in of_log if part.part.range] == [
        ("odd.log", 0),
        (FIRST_SEGMENT, 0),
        (f"{6:020}.log", 0),
    ]
    assert len({part.log_id for part in parts}) == 7
    assert len({(part.partition_id, part.topic_id) for part in parts}) == 4
    assert {part.partition_id: rows[part.file_id]["partition"] for part in parts} == {0: None, 1: 0, 2: 9, 3: 10}
    facts = {(rows[part.file_id]["topic"], part.sequenced, part.whole) for part in parts}
    assert facts == {("orders", True, True), ("__consumer_offsets", False, False), (None, True, False)}
    assert rows[100]["source"] == "segment" and rows[100]["bytes"] == Path(rows[100]["path"]).stat().st_size


def test_a_part_survives_the_way_to_another_machine(tmp_path: Path) -> None:
    write(tmp_path, [Log().run(P, 0, (0, 3, 6))])
    ((part,),) = plan_segments(list_segments([str(tmp_path)])).tasks
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(part), type=SegmentPart) == part
