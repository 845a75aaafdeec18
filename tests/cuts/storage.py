"""What is in the store against what the quorum needs, looked at from outside: files, and what the leader lists."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from pidkeeper.broker_agent.data.object_names import PREFIXES
from pidkeeper.cli.local_cluster import Controller
from pidkeeper.protocol.segment_messages import KeptObjectsPage
from tests.cuts.stage import Stage, garbage_objects
from tests.support.http_calls import call

PAGE: Final = 500
SETTLE_SECONDS: Final = 60.0
"""For a sweep, garbage that is looked for each 3 s, and one that an agent begins anew with a back-off."""
LOOK_SECONDS: Final = 0.1


class Difference(NamedTuple):
    """`orphans`: files that no log needs. `missing`: names that logs need and that are no files."""

    orphans: list[str]
    missing: list[str]


def files(store: Path) -> dict[str, tuple[int, int]]:
    """Objects of the store by name, each with its size and the time of its writing (ns)."""
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in _walked(store)}


def _walked(store: Path) -> Iterator[tuple[str, os.stat_result]]:
    for prefix in PREFIXES:
        for folder, _, names in os.walk(store / prefix):
            for name in names:
                path = Path(folder) / name
                # What is deleted meanwhile is not there.
                if path.exists():
                    yield str(path.relative_to(store)), path.stat()


def kept(leader: Controller) -> set[str]:
    """All names that logs need. Raises OSError, HTTPException and msgspec.DecodeError."""
    names: set[str] = set()
    after: int | None = -1
    while after is not None:
        answer = call(leader.http, "GET", f"/v1/objects?after={after}&limit={PAGE}")
        page = msgspec.json.decode(answer.body, type=KeptObjectsPage)
        names |= {name for one in page.objects if one.batches for name in one.names}
        after = page.next_after
    return names


def difference(stage: Stage) -> Difference:
    """As it is now. Nobody may write meanwhile."""
    wanted, there = kept(stage.leader()), files(stage.store).keys()
    return Difference(sorted(there - wanted), sorted(wanted - there))


def settled(stage: Stage) -> Difference:
    """Once nothing is garbage and nothing differs; after SETTLE_SECONDS what differs then. Nobody may write.

    All agents are started anew before, so that what a living one gave up on is of a dead epoch.
    """
    agents = stage.cluster.layout.agents
    for one in agents:
        stage.cluster.kill(one)
        stage.cluster.start(one)
    stage.cluster.wait_ready(*agents)
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        found = difference(stage)
        if not (found.orphans or found.missing or garbage_objects(stage.leader())) or time.monotonic() > deadline:
            return found
        time.sleep(LOOK_SECONDS)
