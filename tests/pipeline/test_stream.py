"""The stream: blocks are checked beside those of earlier runs, and a finding is given once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from controller.storage.archive import AllocationArchive
from pipeline.paths import LoadingError
from pipeline.stream import StreamOptions, run_stream
from protocol.messages import AllocatedBlock
from tests.pipeline.stand_ins import overlap
from tests.support.member_files import CLUSTER, MemberFiles, block

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_block_that_an_earlier_run_saw_is_not_given_again(spark: SparkSession, tmp_path: Path) -> None:
    from pipeline.sources import register

    register(spark)
    data, state = tmp_path / "data", tmp_path / "state"
    member = MemberFiles(data / "1")
    member.archive((0, 30))
    said: list[str] = []

    def run() -> int:
        said.clear()
        return run_stream(spark, StreamOptions([str(data)], state, once=True), {"overlap": overlap}, said.append)

    assert run() == 0
    assert said == ["batch 0: 30 blocks, IDs 0 to 299: no finding(s)"]
    other = MemberFiles(data / "2", 2)
    twice = AllocationArchive(other.files, other.path / "archive", CLUSTER)
    twice.append([AllocatedBlock(205, 209, 8, 3, 40, block(40).timestamp_ms)], 30, 50)
    assert run() == 1
    assert said == [
        "batch 1: 1 blocks, IDs 205 to 209: 1 finding(s)",
        "  violation: overlap: IDs 205 to 209: IDs 205 to 209",
    ]
    member.archive((30, 31))
    assert run() == 1
    assert said == ["batch 2: 1 blocks, IDs 300 to 309: no finding(s)"]


def test_a_stream_of_nothing_says_so(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(LoadingError, match="nothing at"):
        run_stream(spark, StreamOptions([str(tmp_path / "none")], tmp_path / "state", once=True), {}, print)
