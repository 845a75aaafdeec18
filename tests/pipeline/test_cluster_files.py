"""The files of a real cluster whose members were killed: what they told before, and the product's own reading."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from pidkeeper.controller.storage.directory import read_meta
from pidkeeper.controller.storage.dump import DumpedFrame, dump_log
from pidkeeper.controller.storage.recovery import recover
from pidkeeper.disk.files import OsFiles
from pidkeeper.pipeline.formats.archive import file_name
from pidkeeper.protocol.messages import AllocatedBlock
from tests.support.checking_client import CheckingClient
from tests.support.cluster import bring_back, ledger, running_cluster
from tests.support.member_evidence import archived, block_of, listed, told


class Files(NamedTuple):
    """The data directories of a cluster that was killed, and the history that its members told before."""

    data: Path
    history: list[AllocatedBlock]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Files]:
    options = {"snapshot_allocations": 50, "snapshot_entries": 100}
    with running_cluster(tmp_path_factory.mktemp("killed"), controller_options=options) as cluster:
        with CheckingClient(cluster) as client:
            for _ in range(3):
                client.more(80)
                cluster.kill(cluster.leader())
                client.more(80)
                bring_back(cluster)
        history = [msgspec.convert(block, AllocatedBlock) for block in ledger(cluster)]
        cluster.kill(*cluster.members())
        yield Files(cluster.directory / "data", history)


def members(files: Files) -> list[Path]:
    found = sorted(files.data.iterdir())
    assert len(found) == 3
    return found


def test_archives_and_logs_of_all_members_together_are_the_history(killed: Files) -> None:
    """A member alone lacks what was allocated while it was down, where it went on behind a received snapshot.

    One that was killed right behind such a snapshot has no record in its log at all.
    """
    assert len(killed.history) >= 480
    known = {block.offset: block for block in killed.history}
    found: set[int] = set()
    for data in members(killed):
        found_there = archived(data).blocks
        logged = [block_of(row) for row in allocations(data)]
        assert found_there == [known[block.offset] for block in found_there]
        assert logged == [known[block.offset] for block in logged]
        mine = {block.offset for block in [*found_there, *logged]}
        names = [name for member in listed(data).members for files in member.archives for name in files.names]
        covered = [range(*named) for name in names if (named := file_name(name)) is not None]
        offsets = [row["offset"] for row in told(data)["records"]]
        covered.append(range(min(offsets, default=0), max(offsets, default=-1) + 1))
        assert mine == {offset for offset in known if any(offset in one for one in covered)}
        assert mine
        found |= mine
    assert found == set(known)


def test_the_log_of_every_member_gives_the_records_that_the_product_recovers(killed: Files) -> None:
    for data in members(killed):
        recovered = recover(OsFiles(), data / "wal", read_meta(OsFiles(), data)).log
        dumped = {
            (frame.segment, frame.offset): frame
            for frame in dump_log(OsFiles(), data / "wal")
            if isinstance(frame, DumpedFrame)
        }
        rows = told(data)["records"]
        assert {(row["index"], row["term"]) for row in rows} == {
            (entry.index, entry.term) for entry in recovered.entries if entry.data
        }
        for row in rows:
            frame = dumped[row["segment"], row["position"]]
            assert (frame.index, frame.term) == (row["index"], row["term"])
            assert type(frame.records[row["record_number"]]).__name__ == row["record_type"]
            assert row["committed"] == (row["index"] <= recovered.hard_state.commit)


def test_snapshots_agree_with_the_history_and_with_the_offsets_of_the_log(killed: Files) -> None:
    rows = told(killed.data)["snapshots"]
    assert {row["member"] for row in rows} == {"1", "2", "3"}
    known = {block.offset: block for block in killed.history}
    for row in rows:
        last = known[row["last_offset"]]
        assert (last.first, last.last, last.broker_id) == (
            row["last_first_id"],
            row["last_last_id"],
            row["last_broker_id"],
        )
        assert max(block.last for block in killed.history if block.offset < row["next_offset"]) == last.last


def test_only_the_end_of_a_log_may_be_torn(killed: Files) -> None:
    problems = told(killed.data)["problems"]
    assert [problem for problem in problems if problem["kind"] != "torn"] == []


def allocations(data: Path) -> list[dict[str, Any]]:
    return [row for row in told(data)["records"] if row["record_type"] == "AllocateProducerIdsRecord"]
