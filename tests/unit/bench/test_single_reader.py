from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

pytest.importorskip("numpy")

from bench.generate import (
    CLUSTER_ID,
    FIRST_OFFSET,
    RECORDS,
    Workload,
    batch_rows,
    write_workload,
)
from bench.single_reader import Found, main
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.snapshots.archive_format import encode_archive

LOAD = Workload(blocks=500, batches=1600, members=2)


def read(directory: Path, capsys: pytest.CaptureFixture[str]) -> Found:
    main(str(directory / "quorum"), str(directory / "kafka"))
    return msgspec.json.decode(capsys.readouterr().out, type=Found)


def test_what_is_generated_keeps_all_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_workload(tmp_path, LOAD)
    assert read(tmp_path, capsys) == Found(blocks=500, batches=1600)


def test_each_fault_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quorum, kafka = write_workload(tmp_path, LOAD)
    offset = FIRST_OFFSET + LOAD.blocks
    again = AllocatedBlock(5500, 5600, 7, 7, offset, 1_700_000_100_000)
    name = f"{offset:020d}-{offset + 1:020d}.arc"
    (quorum / "1" / "archive" / name).write_bytes(encode_archive(CLUSTER_ID, offset, offset + 1, [again]))
    (log,) = (kafka / "payments-3").glob("*.log")
    missing = batch_rows(LOAD, 7, range(203, 204)).tobytes()
    far = batch_rows(Workload(blocks=10 * LOAD.blocks, batches=LOAD.batches), 7, range(205, 206))
    assert far["base_offset"][0] == 205 * RECORDS and far["producer_id"][0] > 500_000
    log.write_bytes(log.read_bytes() + missing + far.tobytes())
    found = read(tmp_path, capsys)
    assert found == Found(
        blocks=501, batches=1602, overlaps=1, regressions=1, disagreements=1, unallocated=1, out_of_sequence=1
    )
