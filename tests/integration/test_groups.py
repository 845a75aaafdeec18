"""Consumer groups over real members: one of two coordinators goes on, and offsets outlive their leader."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from pidkeeper.cli.failures import ExitCode
from pidkeeper.cli.local_cluster import LocalCluster
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.groups import OFFSETS_TOPIC, offsets_partition
from pidkeeper.protocol.metadata_version import GROUPS
from tests.support.cluster import (
    WAIT_SECONDS,
    bring_back,
    labelled,
    metrics,
    new_leader,
    pidkeeper,
    quorum,
    running_cluster,
    wait_until,
)
from tests.support.transactional_client import ROOT, Pair, TransactionalClient, code

UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT.kafka_code


class Coordinator(TransactionalClient):
    """An agent's calls about groups, all of topic `t`."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__(cluster)
        wait_until(lambda: quorum(cluster.leader())["metadata_version"] >= GROUPS, "a quorum that knows groups")
        # The same uuid each time: made once, it is answered alike.
        topic = {"topic_id": str(uuid.UUID(int=7)), "name": "t", "partitions": 3}
        assert self.ask("POST", "/v1/topics", topic).status == 200

    def join(self, group: str, *members: str, after: int = -1, generation: int = 0) -> dict[str, Any]:
        """The answer to a CommitGroup of these members."""
        wanted = {"group_id": group, "after": after, "generation": generation, "protocol_type": "consumer"}
        told = [[member, None, "client", "host"] for member in members]
        answer = self.ask("POST", "/v1/groups/commit", {**self._broker(), **wanted, "members": told})
        assert answer.status == 200, answer
        joined: dict[str, Any] = answer.json()
        return joined

    def commit(self, group: str, *offsets: tuple[int, int], **more: Any) -> list[int]:
        """The codes of a CommitOffsets."""
        topics = [["t", [[partition, offset, -1, ""] for partition, offset in offsets]]]
        body = {**self._broker(), "group_id": group, "topics": topics, **more}
        answer = self.ask("POST", "/v1/groups/offsets/commit", body)
        assert answer.status == 200, answer
        codes: list[int] = answer.json()["codes"]
        return codes

    def fetch(self, group: str, *, stable: bool = False) -> dict[int, tuple[int, int]]:
        """Offset and code of each partition."""
        body = {"group_id": group, "topics": [["t", [0, 1, 2]]], "require_stable": stable}
        rows = self.ask("POST", "/v1/groups/offsets/fetch", body).json()["offsets"]
        return {row[1]: (row[2], row[5]) for row in rows}

    def begin(self, name: str, group: str) -> tuple[Pair, dict[str, Any]]:
        """AddOffsetsToTxn: a producer, and the transaction that goes along with its offsets."""
        pair = self.pair(name)
        topics = [{"topic": OFFSETS_TOPIC, "partitions": [offsets_partition(group)]}]
        added = self.ask("POST", f"{ROOT}/add-partitions", self._producer(name, pair, topics=topics))
        assert added.status == 200, added
        return pair, {"transactional_id": name, "producer_id": pair[0], "producer_epoch": pair[1]}

    def _broker(self) -> dict[str, Any]:
        return {"broker_id": 50, "broker_epoch": self._epoch}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    # Snapshots as often as they come, so that a restart reads groups from them.
    with running_cluster(tmp_path_factory.mktemp("groups"), controller_options={"snapshot_entries": 20}) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: LocalCluster) -> LocalCluster:
    bring_back(shared)
    return shared


@pytest.fixture
def agent(cluster: LocalCluster) -> Coordinator:
    return Coordinator(cluster)


def test_of_two_coordinators_one_goes_on(cluster: LocalCluster, agent: Coordinator) -> None:
    names = [f"member-{number}" for number in range(8)]
    with ThreadPoolExecutor(len(names)) as pool:
        answers = list(pool.map(lambda name: agent.join("raced", name), names))
    taken = [name for name, answer in zip(names, answers, strict=True) if answer["taken"]]
    assert len(taken) == 1
    assert {answer["group"]["members"][0][0] for answer in answers} == set(taken), "all are told of the same one"
    old = cluster.leader()
    cluster.kill(old)
    new_leader(cluster, old)
    assert agent.join("raced", taken[0])["taken"], "its answer was lost"
    assert not agent.join("raced", "late")["taken"]
    version = agent.join("raced", taken[0])["group"]["version"]
    with ThreadPoolExecutor(len(names)) as pool:
        answers = list(pool.map(lambda name: agent.join("raced", name, after=version, generation=1), names))
    assert [answer["taken"] for answer in answers].count(True) == 1


def test_offsets_are_stable_once_their_transaction_has_ended(agent: Coordinator) -> None:
    assert agent.commit("stable", (0, 5), (1, 7)) == [0, 0]
    pair, transaction = agent.begin("stable-tx", "stable")
    assert agent.commit("stable", (0, 6), (2, 1), transaction=transaction) == [0, 0]
    assert agent.fetch("stable") == {0: (5, 0), 1: (7, 0), 2: (-1, 0)}
    assert agent.fetch("stable", stable=True) == {0: (-1, UNSTABLE), 1: (7, 0), 2: (-1, UNSTABLE)}
    assert agent.end("stable-tx", pair).status == 200
    assert agent.fetch("stable", stable=True) == {0: (6, 0), 1: (7, 0), 2: (1, 0)}


def test_offsets_of_an_aborted_transaction_are_gone(cluster: LocalCluster, agent: Coordinator) -> None:
    agent.commit("aborted", (0, 5))
    pair, transaction = agent.begin("aborted-tx", "aborted")
    agent.commit("aborted", (0, 6), transaction=transaction)
    old = cluster.leader()
    cluster.kill(old)
    new_leader(cluster, old)
    assert agent.fetch("aborted", stable=True)[0] == (-1, UNSTABLE), "pending, at the next leader too"
    assert agent.end("aborted-tx", pair, committed=False).status == 200
    assert agent.fetch("aborted", stable=True)[0] == (5, 0)


def test_a_group_with_members_is_reset_by_nobody(cluster: LocalCluster, agent: Coordinator) -> None:
    version = agent.join("busy", "m")["group"]["version"]
    agent.commit("busy", (0, 5), generation=0, member_id="m")
    topics = [["t", [[0, 0, -1, ""]]]]
    refused = agent.ask("POST", "/v1/groups/offsets/reset", {"group_id": "busy", "topics": topics})
    assert code(refused) == "NON_EMPTY_GROUP"
    asked = ["--cluster", str(cluster.directory)]
    earliest = ["groups", "reset-offsets", "busy", "--topic", "t:0", "--to-earliest", *asked]
    told = pidkeeper(*earliest, "--execute")
    assert (told.returncode, "has members" in told.stderr) == (ExitCode.REFUSED, True), told
    assert pidkeeper("groups", "delete", "busy", "--yes", *asked).returncode == ExitCode.REFUSED
    assert agent.fetch("busy")[0] == (5, 0)
    assert agent.join("busy", after=version, generation=1)["taken"]
    assert pidkeeper(*earliest).returncode == 0
    assert agent.fetch("busy")[0] == (5, 0), "without --execute nothing is done"
    assert pidkeeper(*earliest, "--execute").returncode == 0
    assert agent.fetch("busy")[0] == (0, 0)
    described = pidkeeper("groups", "describe", "busy", "-o", "json", *asked)
    assert [(one["offset"], one["lag"]) for one in json.loads(described.stdout)["offsets"]] == [(0, 0)]
    assert pidkeeper("groups", "delete", "busy", "--yes", *asked).returncode == 0
    assert agent.ask("GET", "/v1/groups/describe?group=busy").status == 404


def test_a_group_goes_on_at_the_first_record_since_a_time(tmp_path: Path) -> None:
    with running_cluster(tmp_path, controllers=1, agents=1, data=True) as cluster:
        (agent,) = cluster.layout.agents
        producer = confluent_kafka.Producer({"bootstrap.servers": agent.kafka, "log_level": 0})
        for second in range(1, 6):
            producer.produce("timed", b"x", partition=0, timestamp=1000 * second)
        assert producer.flush(WAIT_SECONDS) == 0, "the records are not taken"
        for time, offset in (("1970-01-01T00:00:02.500", 2), ("1970-01-01T00:00:03", 2), ("1970-01-01T00:00:06", 5)):
            asked = ["g", "--topic", "timed:0", "--to-datetime", time, "--execute", "-o", "json"]
            done = pidkeeper("groups", "reset-offsets", *asked, "--cluster", cluster.directory)
            assert done.returncode == 0, done
            assert json.loads(done.stdout)["items"][0]["new_offset"] == offset


def test_a_leader_forgets_offsets_that_nobody_goes_on_with(tmp_path: Path) -> None:
    options = {"offsets_retention_ms": 3000, "offsets_retention_check_ms": 200}
    with running_cluster(tmp_path, controllers=1, controller_options=options) as cluster:
        agent = Coordinator(cluster)
        agent.join("busy", "m")
        agent.commit("busy", (0, 5), generation=0, member_id="m")
        agent.commit("simple", (0, 5), (1, 6))
        assert labelled(cluster.leader(), "pidkeeper_groups_kept")["offsets",] == 3
        wait_until(lambda: metrics(cluster.leader())["pidkeeper_groups_offsets_expired_total"] == 2, "an expiry")
        wait_until(lambda: agent.ask("GET", "/v1/groups/describe?group=simple").status == 404, "a forgotten group")
        assert agent.fetch("busy")[0] == (5, 0)
