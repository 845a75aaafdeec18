"""Orders that are refused, by real controllers with a real ZooKeeper: each with its reason, and nothing changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.security import make_acl, make_digest_acl

from pidkeeper.controller.migration.zookeeper import BLOCK_PATH
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from tests.migration.quorum_client import Quorum, StoredZnode, quorum_on, stored, znode_at
from tests.support.cluster import bring_back, quorum, wait_until
from tests.support.http_calls import Answer, call
from tests.support.zookeeper import Ensemble, why_unavailable

DIGEST = "pidkeeper:correct"


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if (why := why_unavailable()) is not None:
        pytest.skip(why)
    ensemble = Ensemble(tmp_path_factory.mktemp("refusals"))
    try:
        ensemble.start()
        yield ensemble.chroot("refusals")
    finally:
        ensemble.close()


@pytest.fixture(scope="module")
def bridge(connect: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quorum]:
    """A quorum in BRIDGE; whoever gets it leaves it there."""
    with quorum_on(connect, tmp_path_factory.mktemp("bridge")) as one:
        yield one


@pytest.fixture
def znode(connect: str) -> Iterator[StoredZnode]:
    with znode_at(connect, DIGEST) as znode:
        yield znode


def refused(answer: Answer, *parts: str) -> None:
    """Says MIGRATION_REFUSED with all of `parts`."""
    problem = answer.json()
    assert (answer.status, problem["code"], problem["retryable"]) == (409, "MIGRATION_REFUSED", False), problem
    for part in parts:
        assert part in problem["detail"], problem


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"{not json", "bad JSON", id="bad-json"),
        pytest.param(b"[1]", "is not an object", id="no-object"),
        pytest.param(stored(-1000, 999), "block_start is -1000: producer IDs are not negative", id="negative"),
        pytest.param(stored(0, MAX_PRODUCER_ID + 1), "above the highest producer ID", id="overflow"),
        pytest.param(stored(2000, 1999), "block_end 1999 is below block_start 2000", id="end-below-start"),
        pytest.param(stored(0, 999, version=2), "unknown version 2", id="version"),
        pytest.param(stored(0, MAX_PRODUCER_ID), "no producer ID is left", id="exhausted"),
        pytest.param(
            stored(MAX_PRODUCER_ID - 999, MAX_PRODUCER_ID, broker=-1)[:-1] + b', "claimed_by": "another"}',
            "was sealed by another",
            id="sealed",
        ),
    ],
)
def test_a_znode_that_no_broker_wrote(bridge: Quorum, znode: StoredZnode, data: bytes, reason: str) -> None:
    znode.store(data)
    version = znode.version()
    refused(bridge.order("start"), reason)
    described = bridge.describe()
    assert described["phase"] == "bridge" and reason in described["refusals"]["start"]
    answer = bridge.allocate()
    assert answer.status in {503, 507} and answer.json()["detail"], answer
    assert znode.version() == version


def test_no_znode(bridge: Quorum, znode: StoredZnode) -> None:
    znode.client.delete(BLOCK_PATH)
    try:
        refused(bridge.order("start"), f"there is no znode {BLOCK_PATH}", "is the chroot right?")
        assert bridge.allocate().json()["code"] == "ZOOKEEPER_UNAVAILABLE"
        assert not znode.client.exists(BLOCK_PATH), "a quorum never makes the znode"
    finally:
        znode.client.create(BLOCK_PATH)


@pytest.mark.parametrize("allowed", ["nothing", "reading"])
def test_no_permission(bridge: Quorum, znode: StoredZnode, allowed: str) -> None:
    """Also who may read only is told so before anything began."""
    acl = [make_digest_acl(*DIGEST.split(":"), all=True)]
    if allowed == "reading":
        acl.append(make_acl("world", "anyone", read=True))
    znode.client.delete(BLOCK_PATH)
    znode.client.create(BLOCK_PATH, stored(0, 999), acl=acl)
    try:
        refused(bridge.order("start"), "ZooKeeper does not permit it", BLOCK_PATH)
        assert bridge.allocate().json()["code"] == "ZOOKEEPER_UNAVAILABLE"
        assert bridge.describe()["phase"] == "bridge" and znode.next_id() == 1000
    finally:
        znode.client.delete(BLOCK_PATH)
        znode.client.create(BLOCK_PATH)


def test_a_digest_gives_the_permission(connect: str, znode: StoredZnode, tmp_path: Path) -> None:
    secret = tmp_path / "digest"
    secret.write_text(f"{DIGEST}\n")
    secret.chmod(0o600)
    znode.client.create("/closed")
    acl = [make_digest_acl(*DIGEST.split(":"), all=True)]
    znode.client.create(f"/closed{BLOCK_PATH}", stored(0, 999), acl=acl)
    with quorum_on(f"{connect}/closed", tmp_path / "data", controllers=1, digest_file=str(secret)) as one:
        one.start()
        assert one.first() == 1000


def test_a_quorum_ahead_of_zookeeper(bridge: Quorum, znode: StoredZnode) -> None:
    """The znode was set back: what the quorum knows to be handed out does not fit to it."""
    znode.store(stored(0, 999))
    first = bridge.first()
    znode.store(stored(0, 999))
    refused(bridge.order("start"), "the quorum is ahead of ZooKeeper", f"set its block_end to {first + 999} or above")
    assert bridge.describe()["phase"] == "bridge"
    assert bridge.first() == first + 1000, "the quorum gives no ID twice, whatever stands there"


def test_orders_out_of_turn(bridge: Quorum) -> None:
    refused(bridge.order("finalize", agreed=True), "finalize is possible in dual_write only", "the phase is bridge")
    refused(
        bridge.order("rollback"),
        "rollback is possible in import or dual_write",
        "the phase is bridge",
    )
    refused(bridge.order("finalize"), "nobody agreed to it", "agreed = true")


def test_a_quorum_that_handed_out_ids_by_itself(connect: str, znode: StoredZnode, tmp_path: Path) -> None:
    with quorum_on(None, tmp_path, controllers=1, mode="quorum") as one:
        assert one.first() == 0
        one.cluster.kill(*one.cluster.members())
        one.cluster.controller_options["zookeeper"] = {"connect": connect}
        bring_back(one.cluster)
        version = znode.version()
        refused(one.order("start"), "handed out IDs by itself, 0 to 999 at last", 'mode = "zookeeper"')
        assert one.describe()["phase"] == "none" and znode.version() == version
        assert one.first() == 1000


def test_a_quorum_that_knows_zookeeper_waits_for_the_start(connect: str, znode: StoredZnode, tmp_path: Path) -> None:
    znode.store(stored(3000, 3999))
    with quorum_on(None, tmp_path, controllers=1, mode="quorum") as one:
        one.cluster.kill(*one.cluster.members())
        one.cluster.controller_options["zookeeper"] = {"connect": connect}
        one.cluster.start()
        (member,) = one.cluster.layout.controllers
        reason = "the migration from it has not begun"
        wait_until(
            lambda: reason in call(member.http, "GET", "/readyz/zookeeper").body.decode(), "the reason in readiness"
        )
        wait_until(lambda: quorum(member)["role"] == "leader", "a leader")
        answer = one.allocate()
        assert (answer.json()["code"], reason in answer.json()["detail"]) == ("MIGRATION_UNDER_WAY", True)
        one.start()
        assert one.first() == 4000
        assert call(member.http, "GET", "/readyz").status == 200


def test_a_quorum_without_zookeeper(tmp_path: Path) -> None:
    with quorum_on(None, tmp_path, controllers=1, mode="quorum") as one:
        refused(one.order("start"), "this member has no [zookeeper] in its configuration: add it on all members")
        assert one.first() == 0
