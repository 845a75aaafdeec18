"""ZooKeeper away while IDs come from it: allocation stops and says so, everything else goes on, and all recovers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from kazoo.security import make_acl

from pidkeeper.cli.local_cluster import Controller
from pidkeeper.controller.migration.zookeeper import BLOCK_PATH
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.ids import OWN
from tests.migration.quorum_client import BROKER, Quorum, quorum_on, readiness, znode_at, zookeeper_metrics
from tests.support.cluster import ledger, register, wait_until
from tests.support.http_calls import Answer, call
from tests.support.old_broker import Exhausted, OldBroker
from tests.support.transactional_client import TransactionalClient
from tests.support.zookeeper import Ensemble

Away = Literal["killed", "paused"]


@pytest.fixture
def chroot(zookeeper: Ensemble, request: pytest.FixtureRequest) -> str:
    return zookeeper.chroot("away-" + request.node.name.replace("[", "-").rstrip("]"))


@contextlib.contextmanager
def away(ensemble: Ensemble, how: Away, servers: list[int]) -> Iterator[None]:
    """These servers are down, or silent, until the end of the block. Another run of the tests finds them serving."""
    try:
        for server in servers:
            if how == "killed":
                ensemble.kill(server)
            else:
                ensemble.pause(server)
        yield
    finally:
        for server in servers:
            if how == "paused":
                ensemble.resume(server)
        ensemble.start()


@pytest.mark.parametrize("how", ["killed", "paused"])
@pytest.mark.parametrize("phase", ["bridge", "dual_write", "rolled_back"])
def test_allocation_stops_and_all_else_goes_on(
    zookeeper: Ensemble, chroot: str, tmp_path: Path, phase: str, how: Away
) -> None:
    with quorum_on(chroot, tmp_path) as one:
        client = TransactionalClient(one.cluster)
        pair = client.pair("transactional")
        if phase != "bridge":
            one.start()
        if phase == "rolled_back":
            one.roll_back()
        wait_until(lambda: _own_blocks(one) == 2, "a block that is claimed ahead")
        last = one.first()
        given = ledger(one.cluster)
        with away(zookeeper, how, [1]):
            _check_stopped(one.allocate(), at=chroot)
            wait_until(lambda: all(_stopped(one)), "every member to say so")
            _check_stopped(one.allocate(), at="no session with ZooKeeper")
            assert one.describe()["zookeeper"].startswith("no session with ZooKeeper at 127.0.0.1:")
            assert _at_leader(one, lambda leader: register(leader, 2, "registered-meanwhile")).status == 200
            beat = f"/v1/brokers/{BROKER}/heartbeat", {"broker_epoch": one.epoch}
            assert _at_leader(one, lambda leader: call(leader.http, "POST", *beat)).status == 200
            assert client.pair("transactional", pair) == (pair[0], pair[1] + 1)
            assert client.add("transactional", (pair[0], pair[1] + 1)).status == 200
            assert client.end("transactional", (pair[0], pair[1] + 1)).status == 200
            another = client.pair("begun-meanwhile")
            assert another[0] == pair[0] + 1, "the quorum's own block lasts for those that come"
            assert ledger(one.cluster) == given, "no block without ZooKeeper"
        _check_recovered(one, first=last + 1000)


def _at_leader(one: Quorum, ask: Callable[[Controller], Answer]) -> Answer:
    """What the leader answers, whoever that is by then: on a busy machine another may be elected meanwhile."""

    def asked() -> Answer | None:
        answer = ask(one.cluster.leader())
        return None if answer.status == ErrorCode.NOT_CONTROLLER.http_status else answer

    answer = wait_until(asked, "an answer of the leader")
    assert answer is not None, "it waits until there is one"
    return answer


def _own_blocks(one: Quorum) -> int:
    return sum(block["broker_id"] == OWN for block in ledger(one.cluster))


def _check_stopped(answer: Answer, at: str) -> None:
    problem = answer.json()
    assert (answer.status, problem["code"], problem["retryable"]) == (503, "ZOOKEEPER_UNAVAILABLE", True), problem
    assert at in problem["detail"], problem


def _stopped(one: Quorum) -> Iterator[bool]:
    """Whether each member is unready because of ZooKeeper, and its metrics say so."""
    for member in one.cluster.layout.controllers:
        yield "[-]zookeeper failed: no session with ZooKeeper at" in readiness(member)
        yield call(member.http, "GET", "/readyz").status == 503
        yield zookeeper_metrics(member) == (0.0, 1.0)


def _check_recovered(one: Quorum, first: int) -> None:
    """The next block is the very next one: a write that nobody heard of is taken up again."""
    answers: list[Answer] = []

    def granted() -> bool:
        answers.append(one.allocate())
        return answers[-1].status == 200

    wait_until(granted, "a block")
    assert answers[-1].json()["producer_id_start"] == first
    members = one.cluster.layout.controllers
    wait_until(lambda: all(zookeeper_metrics(member) == (1.0, 0.0) for member in members), "the metrics to recover")
    wait_until(lambda: all("[+]zookeeper ok" in readiness(member) for member in members), "readiness")


def test_an_ensemble_is_away_without_its_majority_only(zookeeper_ensemble: Ensemble, tmp_path: Path) -> None:
    connect = zookeeper_ensemble.chroot("majority")
    with quorum_on(connect, tmp_path) as one:
        one.start()
        assert one.first() == 0
        follower, other = zookeeper_ensemble.followers()
        with away(zookeeper_ensemble, "killed", [follower]):
            _check_recovered(one, first=1000)
            with away(zookeeper_ensemble, "killed", [other]):
                wait_until(lambda: all(_stopped(one)), "every member to say so")
                _check_stopped(one.allocate(), at="ZooKeeper at")
        _check_recovered(one, first=2000)


def test_zookeeper_s_leader_dies_in_dual_write(zookeeper_ensemble: Ensemble, tmp_path: Path) -> None:
    connect = zookeeper_ensemble.chroot("leader-dies")
    with quorum_on(connect, tmp_path) as one, znode_at(connect) as znode:
        one.start()
        assert one.first() == 0
        with away(zookeeper_ensemble, "killed", [zookeeper_ensemble.wait_for_leader()]):
            _check_recovered(one, first=1000)
            assert znode.next_id() == 2000


def test_nobody_misses_zookeeper_after_the_end(zookeeper: Ensemble, chroot: str, tmp_path: Path) -> None:
    with quorum_on(chroot, tmp_path) as one:
        one.start()
        one.finalize()
        with away(zookeeper, "killed", [1]):
            leader = one.cluster.leader()
            wait_until(lambda: zookeeper_metrics(leader) == (0.0, 0.0), "the session to be lost")
            assert [one.first(), one.first()] == [0, 1000]
            assert call(leader.http, "GET", "/readyz").status == 200


def test_nothing_is_finalised_while_zookeeper_is_away(zookeeper: Ensemble, chroot: str, tmp_path: Path) -> None:
    with quorum_on(chroot, tmp_path) as one:
        one.start()
        with away(zookeeper, "killed", [1]):
            leader = one.cluster.leader()
            wait_until(lambda: zookeeper_metrics(leader) == (0.0, 1.0), "the session to be lost")
            answer = one.order("finalize", agreed=True)
            assert (answer.status, answer.json()["code"]) == (409, "MIGRATION_REFUSED")
            assert answer.json()["detail"].startswith("not now: no session with ZooKeeper")
            assert one.describe()["phase"] == "dual_write"
        wait_until(lambda: one.describe()["zookeeper"] is None, "ZooKeeper to be back")
        one.finalize()
        assert one.first() == 0


def test_a_rollback_waits_for_zookeeper(zookeeper: Ensemble, chroot: str, tmp_path: Path) -> None:
    old = OldBroker(chroot, 7)
    with quorum_on(chroot, tmp_path) as one, contextlib.closing(old):
        one.start()
        assert [one.first(), old.allocate().first] == [0, 1000]
        with away(zookeeper, "killed", [1]):
            assert one.order("rollback").json() == {"phase": "rolling_back"}
            wait_until(lambda: "no session with ZooKeeper" in (one.describe()["trouble"] or ""), "the trouble")
            answer = one.allocate()
            assert (answer.status, answer.json()["code"]) == (503, "MIGRATION_UNDER_WAY")
            assert "[-]zookeeper failed" in readiness(one.cluster.leader())
        one.reach("rolled_back")
        with contextlib.closing(OldBroker(chroot, 8)) as other:
            assert other.allocate().first == 2000


@pytest.mark.parametrize("end", ["finalized", "rolled_back"])
def test_a_seal_that_is_not_permitted_waits_and_can_be_called_off(chroot: str, tmp_path: Path, end: str) -> None:
    """Allocation pauses meanwhile: nobody knows better than the operator whether to go on or back."""
    old = OldBroker(chroot, 7)
    with quorum_on(chroot, tmp_path) as one, contextlib.closing(old), znode_at(chroot) as znode:
        one.start()
        assert [one.first(), old.allocate().first] == [0, 1000]
        znode.client.set_acls(BLOCK_PATH, [make_acl("world", "anyone", read=True, admin=True)])
        assert one.order("finalize", agreed=True).json() == {"phase": "finalizing"}
        wait_until(lambda: "ACL" in (one.describe()["trouble"] or ""), "the trouble")
        assert one.allocate().json()["code"] == "MIGRATION_UNDER_WAY"
        if end == "rolled_back":
            assert one.order("rollback").json() == {"phase": "rolling_back"}
        znode.client.set_acls(BLOCK_PATH, [make_acl("world", "anyone", all=True)])
        one.reach(end)
        assert one.first() == 2000
        if end == "finalized":
            with pytest.raises(Exhausted):
                old.allocate()
        else:
            assert old.allocate().first == 3000
