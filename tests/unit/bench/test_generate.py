from __future__ import annotations

from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("duckdb")

from bench.generate import (  # noqa: E402 - only with numpy
    BLOCK_IDS,
    FIRST_OFFSET,
    RECORD_BYTES,
    RECORDS,
    Workload,
    grow_workload,
    write_archive,
    write_segments,
    write_workload,
)
from pidkeeper.pipeline.audit import AuditOptions, run_audit  # noqa: E402
from pidkeeper.pipeline.engine.local import LocalEngine  # noqa: E402
from pidkeeper.pipeline.files.location import locate  # noqa: E402
from pidkeeper.pipeline.paths import AuditPaths  # noqa: E402
from pidkeeper.snapshots.archive_format import decode_archive  # noqa: E402
from tests.support.segment_builder import batch  # noqa: E402

LOAD = Workload(blocks=700, batches=1600)


def test_an_archive_is_what_members_write(tmp_path: Path) -> None:
    write_archive(tmp_path / "1", Workload(700, 0), 0, 700)
    (path,) = (tmp_path / "1" / "archive").iterdir()
    header, blocks = decode_archive(path.read_bytes())
    assert (header.from_offset, header.to_offset, header.cluster_id) == (0, FIRST_OFFSET + 700, "bench")
    assert [block.first for block in blocks] == list(range(0, 700 * BLOCK_IDS, BLOCK_IDS))
    assert all(block.broker_epoch < block.offset for block in blocks)


def test_batches_are_those_of_the_builder_of_the_tests(tmp_path: Path) -> None:
    """Byte by byte, and so the CRC too."""
    write_segments(tmp_path / "kafka", LOAD)
    logs = sorted((tmp_path / "kafka").glob("*-*/*.log"))
    assert len(logs) == 8
    for place, path in enumerate(logs):
        written = b"".join(
            batch(
                number * RECORDS,
                [b"x" * RECORD_BYTES] * RECORDS,
                producer=(producer_of(place, number % 2), 0, number // 2 * RECORDS),
                base_timestamp=1_700_000_000_000 + (number * 8 + place) * 20,
            )
            for number in range(200)
        )
        assert path.read_bytes() == written, path


def producer_of(place: int, own: int) -> int:
    """Of 16 producers in 700 blocks."""
    producer = own * 8 + place
    return producer * 700 // 16 * BLOCK_IDS + producer


def test_the_index_names_the_starts_of_batches(tmp_path: Path) -> None:
    write_segments(tmp_path / "kafka", LOAD)
    for path in (tmp_path / "kafka").glob("*-*/*.index"):
        entries = np.frombuffer(path.read_bytes(), ">i4").reshape(-1, 2)
        data = path.with_suffix(".log").read_bytes()
        assert len(entries) > 1
        for offset, position in entries.tolist():
            assert int.from_bytes(data[position : position + 8]) == offset - RECORDS + 1


@pytest.mark.parametrize("skewed", [False, True], ids=["even", "skewed"])
def test_an_audit_finds_nothing_in_what_is_generated_and_grown(tmp_path: Path, skewed: bool) -> None:
    load = Workload(blocks=2000, batches=16_000, skewed=skewed)
    write_workload(tmp_path, load)
    paths = AuditPaths([str(tmp_path / "quorum")], [str(tmp_path / "kafka")])
    for share in (0, 0.05):
        due = grow_workload(tmp_path, load, share) if share else load
        verdict = run_audit(LocalEngine(), AuditOptions(paths, locate(tmp_path / f"out-{due.blocks}")))
        assert (verdict.verdict, verdict.blocks, verdict.batches) == ("clean", due.blocks, due.batches)
        assert verdict.checks["unallocated"].warnings == 0
    largest = max(path.stat().st_size for path in (tmp_path / "kafka").rglob("*.log"))
    everything = sum(path.stat().st_size for path in (tmp_path / "kafka").rglob("*.log"))
    assert (largest > everything * 0.8) == skewed
