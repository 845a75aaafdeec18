"""The stream: blocks are checked beside those of earlier runs, and a finding is given once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from pidkeeper.controller.storage.archive import AllocationArchive
from pidkeeper.pipeline.audit import AuditOptions, run_audit
from pidkeeper.pipeline.checks import Checks
from pidkeeper.pipeline.interrupts import Interrupts
from pidkeeper.pipeline.paths import AuditPaths, LoadingError
from pidkeeper.pipeline.stream import StreamOptions, run_stream, watched
from pidkeeper.pipeline.watermark import StateError
from pidkeeper.protocol.messages import AllocatedBlock
from tests.pipeline.stand_ins import overlap
from tests.support.member_files import CLUSTER, MemberFiles, block

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pidkeeper.pipeline.inputs import AuditInputs


def test_a_block_that_an_earlier_run_saw_is_not_given_again(spark: SparkSession, tmp_path: Path) -> None:
    from pidkeeper.pipeline.sources import register

    register(spark)
    data, state = tmp_path / "data", tmp_path / "state"
    member = MemberFiles(data / "1")
    member.archive((0, 30))
    said: list[str] = []

    def run() -> int:
        said.clear()
        return run_stream(spark, StreamOptions([str(data)], state, once=True), {"overlap": overlap}, said.append)

    assert run() == 0
    assert said == [
        "batch 0: 30 copies of blocks from 1 member, IDs 0 to 299: no new findings",
        "done: 30 new copies of blocks; no violations in all",
    ]
    other = MemberFiles(data / "2", 2)
    twice = AllocationArchive(other.files, other.path / "archive", CLUSTER)
    twice.append([AllocatedBlock(205, 209, 8, 3, 40, block(40).timestamp_ms)], 30, 50)
    assert run() == 1
    assert said == [
        "batch 1: 1 copy of blocks from 1 member, IDs 205 to 209: 1 new finding",
        "  violation: overlap: IDs 205 to 209: IDs 205 to 209",
        "done: 1 new copy of blocks; 1 violation in all",
    ]
    member.archive((30, 31))
    assert run() == 1
    assert said[0] == "batch 2: 1 copy of blocks from 1 member, IDs 300 to 309: no new findings"
    assert said[1:] == ["done: 1 new copy of blocks; 1 violation in all"]
    with pytest.raises(StateError, match=r"is the state of .* stream.*: name another --out"):
        run_audit(spark, AuditOptions(AuditPaths([str(data)]), state), Checks((), ()))
    assert run() == 1


def test_an_interrupt_lets_the_batch_end_and_nothing_is_lost_or_said_twice(spark: SparkSession, tmp_path: Path) -> None:
    from pidkeeper.pipeline.sources import register

    register(spark)
    data, state = tmp_path / "data", tmp_path / "state"
    member = MemberFiles(data / "1")
    member.archive((0, 30))
    said: list[str] = []

    def run(interrupts: Interrupts, *, once: bool) -> int:
        said.clear()
        options = StreamOptions([str(data)], state, once=once, every_seconds=0.5)
        return run_stream(spark, options, {"overlap": found}, said.append, interrupts)

    def found(inputs: AuditInputs) -> DataFrame:
        """The check of a batch, in the midst of which the signal comes."""
        during.note()
        return overlap(inputs)

    during = Interrupts()
    assert run(during, once=False) == 0
    assert sorted(said) == [
        "batch 0: 30 copies of blocks from 1 member, IDs 0 to 299: no new findings",
        "stopped: 30 new copies of blocks; no violations in all",
        "stopping when batch 0 is done; once more to stop now",
    ]
    assert run(Interrupts(), once=True) == 0
    assert said == ["done: no new copies of blocks; no violations in all"]


def test_what_is_watched_is_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    MemberFiles(data / "1")
    options = StreamOptions([str(data)], tmp_path / "state", every_seconds=2)
    assert watched(options) == f"watching every 2 s, until Ctrl-C:\n  {data}: no archive files yet"
    MemberFiles(data / "2", 2).archive((0, 5), (5, 9))
    folder = data / "2" / "archive"
    assert watched(msgspec.structs.replace(options, once=True)) == (
        f"watching once:\n  {folder}: {len(list(folder.iterdir()))} archive files, member 2"
    )


def test_a_stream_of_nothing_says_so(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(LoadingError, match="nothing at"):
        run_stream(spark, StreamOptions([str(tmp_path / "none")], tmp_path / "state", once=True), {}, print)
