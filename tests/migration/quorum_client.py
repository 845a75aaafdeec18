"""What the directed tests ask of a real quorum and of the znode."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from pidkeeper.cli.local_cluster import Controller, LocalCluster
from pidkeeper.controller.migration.zookeeper import BLOCK_PATH
from tests.support.cluster import allocate, metrics, register, running_cluster, wait_until
from tests.support.http_calls import Answer, call
from tests.support.zookeeper import zookeeper_client

PATH = "/v1/migration/zookeeper"
BROKER = 1
REQUEST_TIMEOUT_MS = 700


class Quorum:
    """A cluster under migration, and one broker of it. `token`: the operators', where they have one."""

    def __init__(self, cluster: LocalCluster, token: str | None = None) -> None:
        self.cluster = cluster
        self._token = token
        self.epoch = self.register()

    def register(self) -> int:
        """The broker's epoch."""
        epoch: int = register(self.cluster.leader(), BROKER, "directed-tests").json()["broker_epoch"]
        return epoch

    def allocate(self) -> Answer:
        """The leader's answer to one request for a block."""
        return allocate(self.cluster.leader(), BROKER, self.epoch)

    def first(self) -> int:
        """The first ID of a block that is granted at once."""
        answer = self.allocate()
        assert answer.status == 200, answer
        first: int = answer.json()["producer_id_start"]
        return first

    def order(self, order: str, **body: Any) -> Answer:
        """One order, once."""
        return call(self.cluster.leader().http, "POST", f"{PATH}/{order}", body, token=self._token)

    def describe(self) -> dict[str, Any]:
        """GET of the migration."""
        described: dict[str, Any] = call(self.cluster.leader().http, "GET", PATH).json()
        return described

    def reach(self, phase: str) -> None:
        """Return once the phase is in force."""
        wait_until(lambda: self.describe().get("phase") == phase, f"the phase {phase}")

    def start(self) -> None:
        """Until dual write."""
        assert (answer := self.order("start")).status == 200, answer
        self.reach("dual_write")

    def finalize(self) -> None:
        """Until it is final."""
        assert (answer := self.order("finalize", agreed=True)).status == 200, answer
        self.reach("finalized")

    def roll_back(self) -> None:
        """Until ZooKeeper has it back."""
        assert (answer := self.order("rollback")).status == 200, answer
        self.reach("rolled_back")


@contextlib.contextmanager
def quorum_on(
    connect: str | None,
    directory: Path,
    *,
    controllers: int = 3,
    mode: str = "zookeeper",
    digest_file: str | None = None,
    operator_token: str | None = None,
    **options: Any,
) -> Iterator[Quorum]:
    """A quorum that is configured for ZooKeeper at `connect`, in the phase BRIDGE if that is its mode."""
    zookeeper: dict[str, Any] = {
        "connect": connect,
        "request_timeout_ms": REQUEST_TIMEOUT_MS,
        "session_timeout_ms": 2000,
    }
    if digest_file is not None:
        zookeeper["digest_file"] = digest_file
    if operator_token is not None:
        options["operator_token_file"] = str(directory.with_suffix(".operators"))
        Path(options["operator_token_file"]).write_text(operator_token)
    options = {"mode": mode, **options} | ({} if connect is None else {"zookeeper": zookeeper})
    with running_cluster(directory, controllers=controllers, controller_options=options) as cluster:
        yield Quorum(cluster, operator_token)


class StoredZnode:
    """The znode, as somebody with a client of ZooKeeper sees it."""

    def __init__(self, connect: str, digest: str | None = None) -> None:
        self.client: KazooClient = zookeeper_client(connect, session_seconds=3.0, digest=digest)

    def version(self) -> int:
        """The dataVersion."""
        version: int = self.client.get(BLOCK_PATH)[1].version
        return version

    def block(self) -> dict[str, Any] | None:
        """What is stored, None if nothing is."""
        data = self.client.get(BLOCK_PATH)[0]
        return json.loads(data) if data else None

    def next_id(self) -> int:
        """The ID after its block."""
        block = self.block()
        return 0 if block is None else int(block["block_end"]) + 1

    def store(self, data: bytes) -> None:
        """Whatever was there before."""
        self.client.set(BLOCK_PATH, data)


@contextlib.contextmanager
def znode_at(connect: str, digest: str | None = None) -> Iterator[StoredZnode]:
    """The znode in a chroot."""
    znode = StoredZnode(connect, digest)
    try:
        yield znode
    finally:
        znode.client.stop()
        znode.client.close()


def stored(first: int, last: int, broker: int = 7, version: int = 1) -> bytes:
    """A znode's data as a Kafka broker writes it."""
    block = {"version": version, "broker": broker, "block_start": str(first), "block_end": str(last)}
    return json.dumps(block).encode()


def readiness(member: Controller) -> str:
    """/readyz, every check on a line."""
    return call(member.http, "GET", "/readyz?verbose").body.decode()


def zookeeper_metrics(member: Controller) -> tuple[float, float]:
    """`connected` and `stops_allocation`."""
    found = metrics(member)
    return found["pidkeeper_zookeeper_connected"], found["pidkeeper_zookeeper_stops_allocation"]
