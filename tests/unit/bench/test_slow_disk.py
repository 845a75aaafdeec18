"""An fdatasync that takes as long as a file says, and is let go while it waits."""

from __future__ import annotations

import threading
from pathlib import Path

from bench.slow_disk import SlowDiskCluster, slowed


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
