"""Calls of the disk that take as long as a file says, and are let go while they wait."""

from __future__ import annotations

import threading
from pathlib import Path

from bench.slow_disk import READS, SlowDiskCluster, slowed


def test_a_sync_hangs_until_the_disk_is_sped_up(tmp_path: Path) -> None:
    cluster = SlowDiskCluster(tmp_path, controllers=1, agents=0)
    (member,) = cluster.members()
    synced: list[int] = []
    sync = slowed(synced.append, Path(cluster.program(member)[-1]))
    sync(1)
    assert synced == [1]
    cluster.slow_down(float("inf"), member)
    thread = threading.Thread(target=sync, args=(2,))
    thread.start()
    assert thread.is_alive()
    assert synced == [1]
    cluster.slow_down(0.0, member)
    thread.join()
    cluster.speed_up(member)
    sync(3)
    assert synced == [1, 2, 3]


def test_reads_are_slow_apart_from_syncs(tmp_path: Path) -> None:
    cluster = SlowDiskCluster(tmp_path, controllers=1, agents=0)
    (member,) = cluster.members()
    told = Path(cluster.program(member)[-1])
    cluster.slow_reads_down(float("inf"), member)
    assert not told.exists()
    found: list[bytes] = []
    read = slowed(lambda size, offset: found.append(b"content"[offset : offset + size]), told.with_suffix(READS))
    thread = threading.Thread(target=read, args=(3,), kwargs={"offset": 2})
    thread.start()
    assert thread.is_alive()
    assert found == []
    cluster.speed_up(member)
    thread.join()
    assert found == [b"nte"]
