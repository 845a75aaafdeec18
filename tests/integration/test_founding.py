"""A quorum of real processes is founded by one command, and by nothing else."""

from __future__ import annotations

import json
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pidkeeper.cli.failures import ExitCode
from pidkeeper.cli.local_cluster import Agent, LocalCluster
from tests.support.cluster import (
    CONTROLLER_OPTIONS,
    allocate,
    assert_healthy,
    bring_back,
    ledger,
    log_of,
    metrics,
    new_leader,
    pidkeeper,
    quorum,
    register,
    running_cluster,
    wait_until,
)
from tests.support.http_calls import Answer, call

SMALL = {"min_reserve_ids": 100, "max_reserve_blocks": 4}
"""The reserve of an agent whose IDs are used up within seconds."""

WAITS = "the disk is blank, and no founded member has connected: `pidkeeper quorum found` founds a new quorum, once"


@pytest.fixture
def blank(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three controllers with blank disks, which nobody has founded."""
    cluster = LocalCluster(tmp_path, agents=0, controller_options=CONTROLLER_OPTIONS)
    try:
        cluster.start()
        wait_until_waiting(cluster)
        yield cluster
    finally:
        cluster.kill(*[one for one in cluster.members() if cluster.running(one)])


def wait_until_waiting(cluster: LocalCluster) -> None:
    for one in cluster.layout.controllers:
        wait_until(lambda one=one: quorum(one)["reasons"], "an answer")  # type: ignore[misc]


def assert_nobody_hands_out(cluster: LocalCluster) -> None:
    for one in cluster.layout.controllers:
        described = quorum(one)
        assert (described["term"], described["leader_id"], described["founding_id"]) == (0, None, None)
        assert described["reasons"][0].startswith(WAITS)
        assert register(one, 7, "x").status == allocate(one, 7, 0).status == 421
        assert call(one.http, "GET", "/livez").status == 200
        assert call(one.http, "GET", "/readyz").status == 503


def test_one_command_founds_the_quorum_and_refuses_to_do_it_again(blank: LocalCluster) -> None:
    assert_nobody_hands_out(blank)
    told = pidkeeper("health", "--cluster", blank.directory)
    assert told.returncode == ExitCode.UNHEALTHY
    assert WAITS in told.stdout
    assert WAITS in log_of(blank, blank.layout.controllers[0])
    found = ("quorum", "found", "--cluster", blank.directory, "--voters")

    third = blank.layout.controllers[2]
    blank.kill(third)
    early = pidkeeper(*found, "1,2,3", "--wait", "0.2", "--timeout", "0.5")
    assert early.returncode == ExitCode.UNREACHABLE
    assert "VOTERS_NOT_CONNECTED: member 3 is not connected: start it" in early.stderr
    blank.start(third)
    wait_until_waiting(blank)
    for wrong, code, what in (
        ("1,2", ExitCode.REFUSED, "the file of member 1 names the voters [1, 2, 3], not [1, 2]; nothing was founded"),
        ("1;2", ExitCode.USAGE, "'1;2' is no list of ids like 1,2,3"),
        ("", ExitCode.USAGE, "is no list of ids"),
    ):
        refused = pidkeeper(*found, wrong)
        assert (refused.returncode, what in refused.stderr) == (code, True), refused.stderr
    assert_nobody_hands_out(blank)

    founding_id = str(uuid.uuid4())
    for _ in range(2):
        founded = pidkeeper(*found, "3,1,2", "--founding-id", founding_id)
        assert founded.stdout == f"founded quorum {founding_id} of the voters 1, 2, 3\n", founded.stderr
    again = pidkeeper(*found, "1,2,3")
    assert again.returncode == ExitCode.REFUSED
    assert f"belongs to a quorum already: founding {founding_id}, of the voters [1, 2, 3]" in again.stderr
    blank.layout.to_found = None
    bring_back(blank)
    leader = blank.leader()
    epoch = register(leader, 7, "x").json()["broker_epoch"]
    assert allocate(leader, 7, epoch).json()["producer_id_start"] == 0
    assert founding_id in pidkeeper("quorum", "describe", "--cluster", blank.directory).stdout


def test_members_whose_disks_were_all_lost_hand_out_nothing_until_operators_have_decided(tmp_path: Path) -> None:
    """They were a new cluster at ID 0, healthy, and the agents that knew better said nothing."""
    with running_cluster(tmp_path, agents=2, controller_options={"founding_hearing_ms": 2_000}) as cluster:
        given = {agent.id: claim(agent) for agent in cluster.layout.agents}
        # The one that lives on holds the highest: nobody knows what dies with the other.
        second, first = sorted(cluster.layout.agents, key=lambda agent: given[agent.id])
        wait_until(lambda: "the quorum is of founding" in log_of(cluster, first), "an agent that knows the founding")
        before = ledger(cluster)
        controllers = cluster.layout.controllers
        old = wait_until(lambda: quorum(cluster.leader())["founding_id"], "a founding")
        cluster.kill(second)
        lose_all_disks(cluster)
        cluster.start(*controllers)
        wait_until_waiting(cluster)
        wait_until(lambda: all(len(quorum(one)["reasons"]) == 1 for one in controllers), "blank members")
        assert_nobody_hands_out(cluster)
        more = claim(first)
        assert given[first.id] < more <= before[-1]["last"], "what the agent holds it goes on to hand out"

        # An agent is started again, knows nothing, and asks for a block all the time. An operator founds the quorum
        # anew, and has forgotten the floor.
        cluster.start(second)
        assert pidkeeper("quorum", "found", "--voters", "1,2,3", "--cluster", cluster.directory).returncode == 0
        leader = cluster.leader()
        evidence = wait_until(lambda: quorum(leader)["evidence"], "the evidence of the agent")
        assert [(one["broker_id"], one["founding_id"], one["open"]) for one in evidence] == [(first.id, old, True)]
        highest = evidence[0]["highest_producer_id"]
        assert highest >= max(more, *given.values())
        assert ledger(cluster) == [], "nobody has a block of the new quorum"
        told = pidkeeper("health", "--cluster", cluster.directory)
        assert told.returncode == ExitCode.UNHEALTHY
        assert f"broker {first.id} holds IDs up to {highest} of founding {old}" in told.stdout
        wait_until(lambda: "this agent was of" in log_of(cluster, first), "an agent that lets go of its IDs")
        for agent in (first, second):
            wait_until(lambda agent=agent: answers(agent) == 503, "an agent without IDs")  # type: ignore[misc]

        # It outlives the leader.
        cluster.kill(leader)
        successor = new_leader(cluster, leader)
        assert [one["open"] for one in quorum(successor)["evidence"]] == [True]
        cluster.start(leader)
        raised = pidkeeper("ids", "raise-floor", str(highest + 1), "--yes", "--cluster", cluster.directory)
        assert raised.returncode == 0, raised.stderr
        for agent in (first, second):
            wait_until(lambda agent=agent: cluster.ready(agent), "an agent with IDs")  # type: ignore[misc]
            assert claim(agent) > highest
        cluster.wait_ready()
        assert_healthy(cluster)


def test_a_quorum_restored_from_an_old_copy_learns_of_it_from_an_idle_agent(tmp_path: Path) -> None:
    options = {"block_size": 50}
    with running_cluster(tmp_path, agents=1, controller_options=options, agent_options=SMALL) as cluster:
        agent = cluster.layout.agents[0]
        wait_until(lambda: "the quorum is of founding" in log_of(cluster, agent), "an agent that knows the founding")
        cluster.kill(*cluster.layout.controllers)
        data = cluster.directory / "data"
        shutil.copytree(data, cluster.directory / "backup")
        cluster.start(*cluster.layout.controllers)
        cluster.wait_ready()
        last = max(block["last"] for block in ledger(cluster))
        assert any(claim(agent) > last for _ in range(last + 2)), "these are in blocks that the copy does not know"
        lose_all_disks(cluster)
        data.rmdir()
        (cluster.directory / "backup").rename(data)
        cluster.start(*cluster.layout.controllers)
        evidence = wait_until(lambda: quorum(cluster.leader())["evidence"], "the evidence of the agent")
        assert evidence[0]["broker_id"] == agent.id
        assert evidence[0]["founding_id"] == quorum(cluster.leader())["founding_id"]
        assert evidence[0]["highest_producer_id"] > last


def test_agents_go_on_through_the_loss_of_all_disks_under_a_quorum_that_names_the_lost_one(tmp_path: Path) -> None:
    options = {"block_size": 50, "founding_hearing_ms": 2_000}
    with running_cluster(tmp_path, agents=2, controller_options=options, agent_options=SMALL) as cluster:
        first, second = cluster.layout.agents
        lost = wait_until(lambda: quorum(cluster.leader())["founding_id"], "a founding")
        for agent in (first, second):
            wait_until(lambda agent=agent: status(agent)["founding_id"] == lost, "an agent of that")  # type: ignore[misc]
        given = [claim(first), claim(second)]
        lose_all_disks(cluster)
        floor = max(status(agent)["highest_held"] for agent in (first, second)) + 1
        cluster.start(*cluster.layout.controllers)
        wait_until_waiting(cluster)
        order = ("storage", "recover", "--voters", "1,2,3", "--cluster", cluster.directory)
        recovered = pidkeeper(*order, "--predecessor", lost, "--at-least", str(floor))
        assert recovered.returncode == 0, recovered.stderr
        assert_goes_on_from(cluster, lost, floor, given)


def test_a_quorum_restored_from_an_old_copy_by_the_command_hands_out_above_its_floor_alone(tmp_path: Path) -> None:
    """It handed out again what it had handed out after the copy was made, until an agent spoke."""
    options = {"block_size": 50, "founding_hearing_ms": 2_000}
    with running_cluster(tmp_path, agents=2, controller_options=options, agent_options=SMALL) as cluster:
        agents = first, second = cluster.layout.agents
        lost = wait_until(lambda: quorum(cluster.leader())["founding_id"], "a founding")
        init_transactional(first, "before")
        cluster.kill(*cluster.layout.controllers)
        data = cluster.directory / "data"
        shutil.copytree(data, cluster.directory / "backup")
        cluster.start(*cluster.layout.controllers)
        cluster.wait_ready()
        last = max(block["last"] for block in ledger(cluster))
        given = [
            *(claim(agent) for _ in range(last + 2) for agent in agents),
            *(init_transactional(first, f"after-{number}") for number in range(10)),
        ]
        assert max(given) > last, "the copy does not know of these"
        lose_all_disks(cluster)
        floor = max(*given, *(status(agent)["highest_held"] for agent in agents)) + 1
        data.rmdir()
        (cluster.directory / "backup").rename(data)
        # Member 3 has the only copy that is left. The others come back with blank disks, and join it.
        *blank, copied = cluster.layout.controllers
        for one in blank:
            shutil.rmtree(one.data_dir)
            formatted = ("--dir", one.data_dir, "--cluster-id", cluster.layout.cluster_id, "--node-id", str(one.id))
            assert pidkeeper("storage", "format", *formatted).returncode == 0
        restored = pidkeeper("storage", "recover", "--dir", copied.data_dir, "--at-least", str(floor))
        assert restored.returncode == 0, restored.stderr
        assert lost in restored.stdout
        cluster.start(*cluster.layout.controllers)
        assert_goes_on_from(cluster, lost, floor, given)
        fresh = [init_transactional(second, f"fresh-{number}") for number in range(3)]
        assert min(fresh) >= floor
        assert len({*given, *fresh}) == len(given) + len(fresh)


def test_a_quorum_is_restored_from_a_backup_that_was_taken_while_it_ran(tmp_path: Path) -> None:
    options = {"founding_hearing_ms": 2_000, "snapshot_allocations": 20, "block_size": 50}
    with running_cluster(tmp_path, agents=1, controller_options=options, agent_options=SMALL) as cluster:
        (agent,) = cluster.layout.agents
        lost = wait_until(lambda: quorum(cluster.leader())["founding_id"], "a founding")
        given = [claim(agent) for _ in range(2000)]
        source, copy = cluster.leader().data_dir, tmp_path / "copy"

        def backed_up() -> bool:
            return pidkeeper("storage", "backup", "--dir", source, "--to", copy).returncode == 0

        wait_until(backed_up, "a snapshot to copy")
        given += [claim(agent) for _ in range(500)]
        lose_all_disks(cluster)
        floor = max(*given, status(agent)["highest_held"]) + 1
        node_id = json.loads((copy / "meta.json").read_text())["node_id"]
        blank = [one for one in cluster.layout.controllers if one.id != node_id]
        (restored,) = (one for one in cluster.layout.controllers if one.id == node_id)
        shutil.copytree(copy, restored.data_dir)
        assert pidkeeper("storage", "recover", "--dir", restored.data_dir, "--at-least", str(floor)).returncode == 0
        for one in blank:
            formatted = ("--dir", one.data_dir, "--cluster-id", cluster.layout.cluster_id, "--node-id", str(one.id))
            assert pidkeeper("storage", "format", *formatted).returncode == 0
        cluster.start(*cluster.layout.controllers)
        assert_goes_on_from(cluster, lost, floor, given)
        listed = pidkeeper("ids", "owner", "0", "--cluster", str(cluster.directory))
        assert re.search(r"BrokerId +1\b", listed.stdout), "the history came along"


def assert_goes_on_from(cluster: LocalCluster, lost: str, floor: int, given: list[int]) -> None:
    """The quorum took the place of `lost`, no agent let go of anything, and blocks begin at `floor`."""
    agents = cluster.layout.agents
    leader = cluster.leader()
    wait_until(lambda: not quorum(leader)["reasons"], "a quorum that hands out")
    assert quorum(leader)["succession"] == {"predecessor": lost, "floor": floor}
    assert quorum(leader)["evidence"] == []
    before = len(ledger(cluster))
    for agent in agents:
        wait_until(lambda agent=agent: status(agent)["founding_id"] != lost, "an agent that knows of it")  # type: ignore[misc]
        more = claim(agent)
        assert more not in given
        assert more < floor, "what it holds it goes on to hand out"
        given.append(more)
        assert "letting go" not in log_of(cluster, agent)
    for agent in agents:
        while (one := claim(agent)) < floor:
            assert one not in given
            given.append(one)
        given.append(one)
    assert len(set(given)) == len(given)
    assert min(block["first"] for block in ledger(cluster)[before:]) >= floor
    described = pidkeeper("quorum", "describe", "--cluster", cluster.directory)
    assert lost in described.stdout


def test_a_broker_that_lies_is_dismissed_and_refused_alone(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        leader = cluster.leader()
        founding_id = wait_until(lambda: quorum(leader)["founding_id"], "a founding")
        cluster_id = cluster.layout.cluster_id
        honest = register(leader, 7, "honest").json()["broker_epoch"]

        def lie(highest: int, name: str, cluster_id: str | None = cluster_id) -> Answer:
            held = {"founding_id": founding_id, "highest_producer_id": highest}
            body = {"incarnation_id": name, "cluster_id": cluster_id, "held": held}
            return call(leader.http, "POST", "/v1/brokers/9/register", body)

        assert allocate(leader, 7, honest).status == 200
        for refused, code in (
            (lie(2**62, "a"), "EVIDENCE_REFUSED"),
            (lie(5000, "a", "elsewhere"), "INCONSISTENT_CLUSTER_ID"),
            (lie(5000, "a", None), "INVALID_REQUEST"),
        ):
            assert refused.json()["code"] == code
            assert allocate(leader, 7, honest).status == 200, "nobody else is kept from anything"
        assert lie(50_000, "a").status == 200
        stopped = allocate(leader, 7, honest).json()
        assert stopped["code"] == "EVIDENCE_OPEN"
        assert "`pidkeeper quorum dismiss-evidence 9 --highest 50000`" in stopped["detail"]
        assert metrics(leader)["pidkeeper_evidence_open"] == 1.0
        other = pidkeeper("quorum", "dismiss-evidence", "9", "--highest", "49999", "--cluster", cluster.directory)
        assert (other.returncode, "not dismissed: you named 49999" in other.stderr) == (ExitCode.REFUSED, True)
        dismissed = pidkeeper("quorum", "dismiss-evidence", "9", "--highest", "50000", "--cluster", cluster.directory)
        assert dismissed.returncode == 0, dismissed.stderr
        again = pidkeeper("quorum", "dismiss-evidence", "9", "--cluster", cluster.directory)
        assert (again.returncode, "broker 9 has left no evidence" in again.stderr) == (ExitCode.REFUSED, True)
        for highest in (50_000, 50_001, 60_000):
            assert lie(highest, "a").json()["code"] == "EVIDENCE_REFUSED", "it stops nobody again"
        assert allocate(leader, 7, honest).status == 200
        assert_healthy(cluster)


def answers(agent: Agent) -> int:
    return call(agent.http, "POST", "/v1/init-producer-id", {}).status


def status(agent: Agent) -> dict[str, Any]:
    return call(agent.http, "GET", "/v1/status").json()  # type: ignore[no-any-return]


def init_transactional(agent: Agent, name: str) -> int:
    """The producer ID of a transactional id."""
    body = {"transactional_id": name, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}

    def given() -> list[int]:
        answer = call(agent.http, "POST", "/v1/init-producer-id", body)
        return [int(answer.json()["producer_id"])] if answer.status == 200 else []

    return wait_until(given, "a producer ID for a transactional id")[0]


def claim(agent: Agent) -> int:
    """One producer ID. An agent that used up all that it holds says 503 until its next block is there."""

    def given() -> list[int]:
        answer = call(agent.http, "POST", "/v1/init-producer-id", {})
        if answer.status == 503:
            assert answer.json()["retryable"], answer.body
            return []
        assert answer.status == 200, answer.body
        return [int(answer.json()["producer_id"])]

    return wait_until(given, "a producer ID")[0]


def lose_all_disks(cluster: LocalCluster) -> None:
    cluster.kill(*cluster.layout.controllers)
    for one in cluster.layout.controllers:
        shutil.rmtree(one.data_dir)
