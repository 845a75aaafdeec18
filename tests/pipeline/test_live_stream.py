"""The audit as a watch over a quorum: it follows, is quiet while members fall, and tells of a repeat at once."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Final

import msgspec

from pidkeeper.controller.raft.messages import Entry
from pidkeeper.controller.storage.directory import read_meta
from pidkeeper.controller.storage.wal import WriteAheadLog
from pidkeeper.disk.files import OsFiles
from pidkeeper.protocol.records import AllocateProducerIdsRecord, decode_batch, encode_batch
from tests.support.audit_stream import AuditStream
from tests.support.checking_client import CheckingClient
from tests.support.cluster import bring_back, new_leader, running_cluster, wait_until

DEADLINE_SECONDS: Final = 10.0
OPTIONS: Final = {"snapshot_entries": 100}
"""So that archives are written, merged and sent while they are watched."""


def test_it_follows_a_quorum_whose_leader_is_killed(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "cluster", controller_options=OPTIONS) as cluster:
        data = [controller.data_dir for controller in cluster.layout.controllers]
        with AuditStream(data, tmp_path / "out") as stream:
            with CheckingClient(cluster) as client:
                client.more(200)
                stream.reach(client.highest())
                leader = cluster.leader()
                cluster.kill(leader)
                new_leader(cluster, leader)
                client.more(200)
                stream.reach(client.highest())
                bring_back(cluster)
                client.more(200)
            at_rest = time.monotonic()
            stream.reach(client.highest())
            late = time.monotonic() - at_rest
            assert stream.findings == []
            assert stream.end() == 0, stream.lines
        client.check()
        assert late < DEADLINE_SECONDS, "no member writes that the last block is committed, for no entry comes after it"


def test_it_tells_of_a_second_grant_within_ten_seconds(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "cluster", controller_options=OPTIONS) as cluster:
        with CheckingClient(cluster) as client:
            client.more(150)
        client.check()
    copies = tmp_path / "copies"
    shutil.copytree(cluster.directory / "data", copies)
    with AuditStream(sorted(copies.iterdir()), tmp_path / "out") as stream:
        stream.reach(client.highest())
        assert stream.findings == []
        repeated = grant_again(sorted(copies.iterdir()))
        granted = time.monotonic()
        wait_until(lambda: [line for line in stream.findings if "overlap" in line.text], f"a finding: {stream.lines}")
        found = next(line for line in stream.findings if "overlap" in line.text)
        assert found.text.startswith("  violation: overlap:")
        assert f"{repeated.producer_id_start}" in found.text
        assert found.at - granted < DEADLINE_SECONDS
        assert stream.end() == 5


def grant_again(directories: list[Path]) -> AllocateProducerIdsRecord:
    """Append the newest block once more to the log of each member, as a quorum that forgot it would; the block.

    Nobody writes that it is committed, just as of the last entry of a quorum at rest.
    """
    for directory in directories:
        meta = read_meta(OsFiles(), directory)
        log, recovered = WriteAheadLog.open(OsFiles(), directory / "wal", meta, segment_bytes=1 << 20)
        newest = [record for entry in recovered.entries for record in decode_batch(entry.data or encode_batch([]))]
        last = recovered.entries[-1]
        record = [one for one in newest if isinstance(one, AllocateProducerIdsRecord)][-1]
        again = msgspec.structs.replace(record, timestamp_ms=record.timestamp_ms + 1)
        log.append([Entry(recovered.hard_state.term, last.index + 1, encode_batch([again]))], recovered.hard_state)
        log.close()
    return again
