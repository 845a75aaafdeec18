"""Segments of a real broker: whole they are clean; some of the faults of `make audit-faults`, in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from pidkeeper.pipeline.audit import AuditOptions, look
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.files.location import locate
from pidkeeper.pipeline.paths import AuditPaths
from pidkeeper.pipeline.segments import listing
from pidkeeper.pipeline.segments.policies import METADATA_TOPIC, read_policies
from pidkeeper.pipeline.segments.segment_files import list_segments
from tests.pipeline.kafka_faults import Case, audited, said_of, write_case, write_members
from tests.support.segment_edits import PartitionLog

TOPICS: Final = ("codecs", "stamped", "transactions", "asynchronous", "python", "compacted", "wrapped")
RANGE_BYTES: Final = 4 << 10
"""Of a part; a batch without compression is larger, and an index has an entry for each."""
SAMPLE: Final = (
    Case("a batch repeated in a later segment", of_both=True),
    Case("a batch of a segment gone", of_both=False),
    Case("a byte of a record", of_both=True),
    Case("a segment of another topic at the start", of_both=False),
)


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.name)
def test_a_fault_is_told(kafka_logs: Path, tmp_path: Path, case: Case) -> None:
    said, expected = said_of(LocalEngine(), kafka_logs, tmp_path, case)
    assert said == expected


def test_indexes_that_lie_change_nothing_where_segments_are_read_in_parts(
    kafka_logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "RANGE_BYTES", RANGE_BYTES)
    write_case(kafka_logs, tmp_path, Case("indexes that lie", of_both=True))
    outcome = audited(LocalEngine(), tmp_path)
    assert outcome.segments is not None
    assert max(len(one.starts) for one in outcome.segments.segments) > 2, "no segment was cut into parts"
    assert (outcome.verdict.verdict, outcome.verdict.warnings) == ("clean", 0)
    once = sum(len(PartitionLog(folder).batches) for folder in kafka_logs.glob("*-*") if folder.is_dir())
    assert outcome.verdict.batches == 2 * once


def test_what_a_broker_wrote_is_clean(kafka_logs: Path, tmp_path: Path) -> None:
    """As it is: with sparse indexes, files that the cleaner will delete, and a segment that it emptied."""
    members = write_members(tmp_path)
    paths = AuditPaths([str(path) for path in members], [str(kafka_logs)])
    outcome = look(LocalEngine(), AuditOptions(paths, locate(tmp_path / "out")))
    verdict = outcome.verdict
    assert (verdict.verdict, verdict.violations, verdict.warnings, verdict.coverage.unseen) == ("clean", 0, 0, [])
    logs = {topic: PartitionLog(kafka_logs / f"{topic}-0") for topic in TOPICS}
    days = [row for row in outcome.tables["batches_daily"].to_pylist() if row["topic"] in TOPICS]
    for topic, log in logs.items():
        of_topic = [row for row in days if row["topic"] == topic]
        assert sum(row["batches"] for row in of_topic) == len(log.batches), topic
        assert sum(row["records"] for row in of_topic) == sum(one.record_count for one in log.batches), topic
        assert max(row["last_offset"] for row in of_topic) == log.end_offset - 1, topic
        assert {row["replicas"] for row in of_topic} == {1}, topic
        producers = {one.producer_id for one in log.batches if one.producer_id >= 0}
        assert max(row["producers"] for row in of_topic) == len(producers), topic
        assert verdict.watermark.partition_offsets[f"{topic}-0"] == log.end_offset - 1


def test_policies_are_those_that_the_topics_were_made_with(kafka_logs: Path) -> None:
    policies = read_policies(list_segments([str(kafka_logs)]))
    assert {topic: policies[topic] for topic in TOPICS} == {
        topic: "compact" if topic == "compacted" else "delete" for topic in TOPICS
    }
    assert METADATA_TOPIC not in policies


def test_a_segment_that_the_cleaner_emptied_is_none_to_be_told_of(kafka_logs: Path, tmp_path: Path) -> None:
    """Whether it left one is a matter of the broker's run: here it did."""
    write_case(kafka_logs, tmp_path, Case("nothing wrong", of_both=False))
    for replica in (tmp_path / "kafka").iterdir():
        log = PartitionLog(replica / "compacted-0")
        log.path(next(file for file in range(1, log.files[-1]) if file not in log.files)).touch()
    outcome = audited(LocalEngine(), tmp_path)
    assert (outcome.verdict.verdict, outcome.verdict.warnings, outcome.verdict.files_bad) == ("clean", 0, 0)
