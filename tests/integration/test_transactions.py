"""Transactional ids over real members: pairs that outlive their leader, fencing, and transactions to their end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pidkeeper.cli.local_cluster import Controller, LocalCluster
from pidkeeper.controller.node.transaction_duties import MAX_FORGETTING
from tests.support.cluster import (
    allocate,
    bring_back,
    metrics,
    new_leader,
    pidkeeper,
    quorum,
    register,
    running_cluster,
    wait_until,
)
from tests.support.transactional_client import TransactionalClient, code

OPTIONS = {"transaction_abort_check_ms": 100, "snapshot_entries": 20}
"""Snapshots as often as they come, so that a restart reads ids from them."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("transactions"), controller_options=OPTIONS) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: LocalCluster) -> LocalCluster:
    bring_back(shared)
    return shared


@pytest.fixture
def client(cluster: LocalCluster) -> TransactionalClient:
    return TransactionalClient(cluster)


def fail_over(cluster: LocalCluster) -> None:
    """Kill the leader and wait for another one."""
    old = cluster.leader()
    cluster.kill(old)
    new_leader(cluster, old)


def test_a_bump_is_answered_alike_when_the_leader_was_killed_in_between(
    cluster: LocalCluster, client: TransactionalClient
) -> None:
    producer_id, epoch = first = client.pair("bumped")
    assert epoch == 0
    assert client.pair("bumped", first) == (producer_id, 1)
    fail_over(cluster)
    assert client.pair("bumped", first) == (producer_id, 1), "the same request again"
    assert client.pair("bumped", (producer_id, 1)) == (producer_id, 2)
    assert code(client.init("bumped", first)) == "PRODUCER_FENCED"


def test_a_new_instance_fences_the_old_one_whose_transaction_is_aborted(client: TransactionalClient) -> None:
    old = client.pair("fenced")
    assert client.add("fenced", old, 0, 1).status == 200
    new = client.pair("fenced")
    assert new == (old[0], 1)
    assert code(client.add("fenced", old)) == "PRODUCER_FENCED"
    assert code(client.end("fenced", old)) == "PRODUCER_FENCED"
    assert client.add("fenced", new).status == 200
    # The zombie costs the living producer nothing.
    assert code(client.init("fenced", old)) == "PRODUCER_FENCED"
    assert client.describe("fenced")["state"] == "Ongoing"
    assert client.end("fenced", new).status == 200


@pytest.mark.parametrize("committed", [True, False])
def test_transactions_one_after_the_other(client: TransactionalClient, committed: bool) -> None:
    name, end = f"ended-{committed}", "Commit" if committed else "Abort"
    pair = client.pair(name)
    assert code(client.end(name, pair, committed=committed)) == "INVALID_TXN_STATE"
    for number in range(3):
        assert client.add(name, pair, number).status == 200
        assert client.describe(name)["topics"] == [{"topic": "t", "partitions": [number]}]
        assert client.end(name, pair, committed=committed).status == 200
        described = client.reach(name, f"Complete{end}")
        assert (described["topics"], described["start_ms"]) == ([], None)
    assert client.end(name, pair, committed=committed).status == 200, "asked again"
    assert code(client.end(name, pair, committed=not committed)) == "INVALID_TXN_STATE"


def test_no_broker_names_an_id_that_is_not_its_own(cluster: LocalCluster, client: TransactionalClient) -> None:
    """One that belongs to a producer without a transactional id, one that no block ever held, and one above all."""
    leader = cluster.leader()
    epoch = register(leader, 53, "of-another-broker").json()["broker_epoch"]
    of_another = allocate(leader, 53, epoch).json()["producer_id_start"]
    skipped = quorum(leader)["next_producer_id"]
    assert client.ask("POST", "/v1/producer-ids/floor", {"at_least": skipped + 1000}).status == 200
    given = {}
    for number, candidate in enumerate((0, of_another, skipped, 2**63 - 2)):
        answer = client.init(f"named-{number}", candidate=candidate)
        assert answer.status == 200, answer
        given[candidate] = answer.json()["producer_id"]
    assert not set(given) & set(given.values()), given
    assert len(set(given.values())) == len(given)
    for producer_id in given.values():
        owner = json.loads(cluster.get(cluster.leader(), f"/v1/producer-ids/{producer_id}/owner")[1])
        assert (owner["broker_id"], owner["broker_epoch"]) == (-1, -1), "the quorum took the block itself"
    assert code(client.ask("GET", f"/v1/producer-ids/{skipped}/owner")) == "RESOURCE_NOT_FOUND"


def test_whose_a_producer_id_was_is_told_also_when_the_id_is_forgotten(tmp_path: Path) -> None:
    """By the command, from members whose logs are gone, after a restart of all of them."""
    forgetful = OPTIONS | {"transactional_id_expiration_ms": 1000}
    with running_cluster(tmp_path, controllers=1, agents=0, controller_options=forgetful) as cluster:
        client = TransactionalClient(cluster)
        producer_id, _ = client.pair("forgotten")

        def gone() -> bool:
            return code(client.find("forgotten")) == "TRANSACTIONAL_ID_NOT_FOUND"

        wait_until(gone, "the end of the id")
        for number in range(25):
            client.pair(f"other-{number}")
        cluster.kill(*cluster.layout.controllers)
        bring_back(cluster)
        assert gone()
        assert list((Path(cluster.layout.controllers[0].data_dir) / "archive").glob("*.own"))
        shown = pidkeeper("ids", "owner", str(producer_id), "--cluster", cluster.directory, "--output", "json")
        owner = json.loads(shown.stdout)
        assert (owner["broker_id"], owner["transactional"]["transactional_id"]) == (-1, "forgotten")
        assert owner["transactional"]["offset"] > owner["offset"]
        table = pidkeeper("ids", "owner", str(producer_id), "--cluster", cluster.directory)
        assert ("forgotten" in table.stdout, "the quorum's own" in table.stdout) == (True, True)
        data = cluster.layout.controllers[0].data_dir
        offline = pidkeeper("ids", "owner", str(producer_id), "--dir", data, "--output", "json")
        assert json.loads(offline.stdout) == owner
        free = pidkeeper("ids", "owner", str(owner["last"]), "--cluster", cluster.directory)
        assert "none yet" in free.stdout


def test_more_idle_ids_than_are_removed_at_once_are_gone_in_the_end(tmp_path: Path) -> None:
    forgetful = OPTIONS | {"transactional_id_expiration_ms": 1000}
    with running_cluster(tmp_path, controllers=1, agents=0, controller_options=forgetful) as cluster:
        client = TransactionalClient(cluster)
        names = [f"idle-{number}" for number in range(MAX_FORGETTING + 50)]
        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(client.pair, names))) == len(names)
        wait_until(lambda: not client.ask("GET", "/v1/transactions").json()["transactions"], "the end of all ids")


def test_a_transaction_outlives_its_leader(cluster: LocalCluster, client: TransactionalClient) -> None:
    pair = client.pair("moved")
    assert client.add("moved", pair, 4).status == 200
    fail_over(cluster)
    assert client.add("moved", pair, 5).status == 200
    assert client.describe("moved")["topics"] == [{"topic": "t", "partitions": [4, 5]}]
    assert client.end("moved", pair).status == 200
    client.reach("moved", "CompleteCommit")


def test_a_transaction_whose_time_is_up_is_aborted(cluster: LocalCluster, client: TransactionalClient) -> None:
    pair = client.pair("late", timeout_ms=1)
    assert client.add("late", pair).status == 200
    described = client.reach("late", "CompleteAbort")
    assert (described["producer_id"], described["producer_epoch"]) == (pair[0], 1)
    assert code(client.end("late", pair)) == "PRODUCER_FENCED"
    assert client.pair("late", pair) == (pair[0], 1), "its producer goes on with the next epoch"
    assert metrics(cluster.leader())["pidkeeper_transactions_timed_out_total"] >= 1


def test_a_new_leader_aborts_what_takes_too_long(cluster: LocalCluster, client: TransactionalClient) -> None:
    pair = client.pair("late-elsewhere", timeout_ms=3000)
    assert client.add("late-elsewhere", pair).status == 200
    fail_over(cluster)
    assert client.reach("late-elsewhere", "CompleteAbort")["producer_epoch"] == 1


def test_a_restart_of_all_members_keeps_every_pair(cluster: LocalCluster, client: TransactionalClient) -> None:
    for number in range(30):
        name = f"kept-{number:02}"
        pair = client.pair(name)
        if number % 3 > 0:
            pair = client.pair(name, pair)
        if number % 3 > 1:
            assert client.add(name, pair, number).status == 200
    before = client.all()
    assert sum(one["state"] == "Ongoing" for one in before) >= 10
    cluster.kill(*cluster.layout.controllers)
    bring_back(cluster)
    assert client.all() == before
    for one in before:
        if one["transactional_id"].startswith("kept-") and one["last_producer_id"] >= 0 and one["state"] == "Empty":
            last = (one["last_producer_id"], one["last_producer_epoch"])
            assert client.pair(one["transactional_id"], last) == (one["producer_id"], one["producer_epoch"])


def test_the_command_line(cluster: LocalCluster, client: TransactionalClient) -> None:
    pair = client.pair("shown")
    assert client.add("shown", pair, 3, 0).status == 200
    by = ("--cluster", cluster.directory)

    def transactions(*arguments: str) -> Any:
        result = pidkeeper("transactions", *arguments, *by, "--output", "json")
        assert result.returncode == 0, result
        document = json.loads(result.stdout)
        assert document.pop("schema_version") == 1
        return document.get("items", document)

    (listed,) = transactions("list", "--producer-id", str(pair[0]), "--state", "Ongoing")
    assert listed == transactions("describe", "shown") == client.describe("shown")
    assert listed in transactions("find-hanging", "--max-transaction-timeout", "0")
    assert listed not in transactions("find-hanging")
    table = pidkeeper("transactions", "describe", "shown", *by)
    assert "t-0,t-3" in table.stdout
    wrong = pidkeeper("transactions", "abort", "shown", "--producer-id", "0", "--producer-epoch", "9", *by)
    assert (wrong.returncode, "Traceback" in wrong.stderr) == (5, False)
    assert transactions("abort", "shown") == {"error_code": 0}
    assert client.reach("shown", "CompleteAbort")["producer_epoch"] == pair[1] + 1
    unknown = pidkeeper("transactions", "describe", "nobody", *by)
    assert unknown.returncode == 5
    assert "nobody" in unknown.stderr


def test_brokers_say_where_their_clients_reach_them(cluster: LocalCluster, client: TransactionalClient) -> None:
    body = {"incarnation_id": "with-address", "kafka": "127.0.0.1:9092"}
    epoch = client.ask("POST", "/v1/brokers/51/register", body).json()["broker_epoch"]
    wanted = {"broker_id": 51, "broker_epoch": epoch, "fenced": False, **body}

    def known(member: Controller) -> bool:
        brokers = json.loads(cluster.get(member, "/v1/brokers")[1])["brokers"]
        return any(wanted.items() <= broker.items() for broker in brokers)

    wait_until(lambda: all(map(known, cluster.layout.controllers)), "the broker on every member")
