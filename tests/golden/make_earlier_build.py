"""Writes tests/golden/earlier-build.tar.xz anew: `python -m tests.golden.make_earlier_build`.

Three members' directories of the build before foundings, and `told.json`: what was asked of its processes. One member
led until it was killed, and never heard of another leader; the other two went on without it. UUIDs and times differ
with every run.
"""

from __future__ import annotations

import json
import signal
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pidkeeper.cli.local_cluster import Agent, Controller, LocalCluster
from tests.support.cluster import CONTROLLER_OPTIONS, allocate, exit_code, new_leader, quorum, register, wait_until
from tests.support.earlier_build import GOLDEN, METADATA_VERSION, EarlierBuild, MixedCluster
from tests.support.http_calls import Answer, call

BROKER: Final = 7
"""Takes blocks at the controllers."""
KAFKA: Final = "broker-1.example:9092"
"""What the agent tells clients: no address of the machine that makes the directories gets into them."""
BLOCKS_BEFORE: Final = 110
BLOCKS_AFTER: Final = 130
CONTROLLERS: Final = CONTROLLER_OPTIONS | {"snapshot_entries": 100}
AGENT: Final = {"kafka_advertised": KAFKA, "min_reserve_ids": 10_000}
"""Ten blocks, instead of a hundred."""


def main() -> None:
    """Make the directories and pack them."""
    with tempfile.TemporaryDirectory() as folder:
        build = EarlierBuild.unpack(Path(folder) / "build")
        options = {"agents": 1, "controller_options": CONTROLLERS, "agent_options": AGENT}
        cluster = MixedCluster(Path(folder) / "cluster", build, **options)
        try:
            told = _live(cluster)
        finally:
            cluster.kill(*(one for one in cluster.members() if cluster.running(one)))
        (cluster.directory / "data" / "told.json").write_text(json.dumps(told))
        _pack(cluster.directory / "data", GOLDEN)


def _live(cluster: LocalCluster) -> dict[str, Any]:
    cluster.start()
    cluster.wait_ready()
    wait_until(lambda: quorum(cluster.leader())["metadata_version"] == METADATA_VERSION, "its newest metadata version")
    (agent,) = cluster.layout.agents
    lagging = cluster.leader()
    _take(lagging, BLOCKS_BEFORE)
    _begin(agent, "open")
    _granted(agent, "transactions/end", _begin(agent, "committed") | {"committed": True})
    wait_until(lambda: _transactions(lagging)[0]["state"] == "CompleteCommit", "the end of a transaction")
    cluster.kill(lagging)
    leader = new_leader(cluster, lagging)
    _take(leader, BLOCKS_AFTER)
    _begin(agent, "late")
    cluster.signal(agent, signal.SIGTERM)
    assert exit_code(cluster, agent) == 0
    told = _told(leader) | {"lagging": lagging.id}
    codes = cluster.stop()
    assert list(codes.values()) == [0, 0], codes
    return told


def _take(leader: Controller, count: int) -> None:
    epoch = register(leader, BROKER, f"taking-{count}").json()["broker_epoch"]
    for _ in range(count):
        assert allocate(leader, BROKER, epoch).status == 200


def _begin(agent: Agent, name: str) -> dict[str, Any]:
    """Begin a transaction of a new transactional id; its name and pair."""
    wanted = {"transactional_id": name, "transaction_timeout_ms": 600_000}
    granted = _granted(agent, "init-producer-id", wanted)
    producer = {"transactional_id": name} | {key: granted[key] for key in ("producer_id", "producer_epoch")}
    topics = [{"topic": "t", "partitions": [0, 1]}]
    _granted(agent, "transactions/add-partitions", producer | {"topics": topics})
    return producer


def _granted(agent: Agent, path: str, body: dict[str, Any]) -> dict[str, Any]:
    def attempt() -> Answer | None:
        answer = call(agent.http, "POST", f"/v1/{path}", body)
        return answer if answer.status == 200 else None

    answer = wait_until(attempt, f"{path} of {body}")
    assert answer is not None
    granted: dict[str, Any] = answer.json()
    return granted


def _told(leader: Controller) -> dict[str, Any]:
    """What the leader says of all that was handed out."""
    described = quorum(leader)
    return {
        "cluster_id": described["cluster_id"],
        "next_producer_id": described["next_producer_id"],
        "metadata_version": described["metadata_version"],
        "blocks": list(_blocks(leader)),
        "transactions": _transactions(leader),
    }


def _transactions(leader: Controller) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = call(leader.http, "GET", "/v1/transactions").json()["transactions"]
    return found


def _blocks(leader: Controller) -> Iterator[dict[str, Any]]:
    after: int | None = -1
    while after is not None:
        page = call(leader.http, "GET", f"/v1/producer-ids/blocks?after={after}&limit=1000").json()
        yield from page["blocks"]
        after = page["next_after"]


def _pack(data: Path, target: Path) -> None:
    """The same directories give the same bytes: sorted, without owners and times."""
    with tarfile.open(target, "w:xz", preset=9) as archive:
        for path in sorted(data.rglob("*")):
            archive.add(path, path.relative_to(data), recursive=False, filter=_plain)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() else 0o644
    return member


if __name__ == "__main__":
    main()
