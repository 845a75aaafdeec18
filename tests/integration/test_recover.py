"""A quorum of real processes goes on after its disks are lost: from the directory of one member, or from none."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any, Final

from pidkeeper.cli.failures import ExitCode
from pidkeeper.cli.local_cluster import Controller
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from tests.integration.test_founding import (
    SMALL,
    assert_goes_on_from,
    claim,
    init_transactional,
    lose_all_disks,
    status,
    wait_until_waiting,
)
from tests.integration.test_membership import add_voter
from tests.support.cluster import (
    allocate,
    config_of,
    ledger,
    log_of,
    pidkeeper,
    quorum,
    register,
    running_cluster,
    wait_until,
)

OPTIONS: Final = {"block_size": 50, "founding_hearing_ms": 2_000}


def test_one_member_is_left_of_three_and_the_quorum_goes_on_from_its_directory(tmp_path: Path) -> None:
    with running_cluster(tmp_path, agents=2, controller_options=OPTIONS, agent_options=SMALL) as cluster:
        agents = first, second = cluster.layout.agents
        *lost, left = cluster.layout.controllers
        founding = wait_until(lambda: quorum(cluster.leader())["founding_id"], "a founding")
        wait_until(lambda: all(status(agent)["founding_id"] == founding for agent in agents), "agents that know it")
        given = [*(claim(agent) for agent in agents for _ in range(100)), init_transactional(first, "before")]
        before = ledger(cluster)
        cluster.kill(*lost)
        for one in lost:
            shutil.rmtree(one.data_dir)
        recover = ("storage", "recover", "--config", config_of(cluster, left), "--at-least")
        running = pidkeeper(*recover, "10000")
        assert (running.returncode, "is in use by another process: stop that" in running.stderr) == (5, True)
        cluster.kill(left)

        files = everything_in(left.data_dir)
        known = int(told(*recover, "10000", "--dry-run")["known_next_id"])
        assert known >= before[-1]["last"] + 1
        floor = max(known, *(status(agent)["highest_held"] + 1 for agent in agents))
        for at_least, options, reason in (
            (
                known - 1,
                (),
                f"knows that IDs up to {known - 1} were handed out: {known - 1} is too low, {known} is the",
            ),
            (MAX_PRODUCER_ID, ("--force",), "would leave no block of 50 below"),
            (known + 10**12 + 1, (), "would skip more than 1000000000000 IDs"),
        ):
            refused = pidkeeper(*recover, str(at_least), *options)
            assert (refused.returncode, reason in refused.stderr) == (ExitCode.REFUSED, True), refused.stderr
        of_another = tmp_path / "another.toml"
        of_another.write_text(
            config_of(cluster, left).read_text().replace(cluster.layout.cluster_id, "another-cluster"), encoding="utf-8"
        )
        refused = pidkeeper("storage", "recover", "--config", of_another, "--at-least", str(floor))
        assert refused.returncode == ExitCode.REFUSED
        assert f"belongs to cluster {cluster.layout.cluster_id}, but cluster another-cluster was" in refused.stderr
        assert everything_in(left.data_dir) == files, "a plan and a refusal change nothing"

        done = told(*recover, str(floor))
        assert (done["predecessor"], done["first_id"], done["voters"], done["changed"]) == (
            founding,
            floor,
            [1, 2, 3],
            True,
        )
        again = told(*recover, str(floor))
        assert (again["changed"], again["founding_id"]) == (False, done["founding_id"])
        cluster.start(*cluster.layout.controllers)
        assert_goes_on_from(cluster, founding, floor, given)
        fresh = [init_transactional(second, f"fresh-{number}") for number in range(3)]
        assert min(fresh) >= floor
        assert len({*given, *fresh}) == len(given) + len(fresh)
        assert ledger(cluster)[: len(before)] == before, "the history came along"


def test_none_is_left_and_nobody_knows_the_founding_so_the_agents_let_go_and_it_goes_on_above(tmp_path: Path) -> None:
    with running_cluster(tmp_path, agents=1, controller_options=OPTIONS, agent_options=SMALL) as cluster:
        (agent,) = cluster.layout.agents
        founding = wait_until(lambda: status(agent)["founding_id"], "an agent that knows the founding")
        given = [claim(agent) for _ in range(300)]
        survivor = cluster.layout.controllers[0]
        recover = ("storage", "recover", "--voters", "1,2,3", "--cluster", cluster.directory, "--at-least")
        refused = pidkeeper(*recover, "10000")
        assert refused.returncode == ExitCode.REFUSED
        assert f"is not blank, it is of founding {founding}: members with blank disks join it" in refused.stderr

        lose_all_disks(cluster)
        floor = status(agent)["highest_held"] + 1
        cluster.start(survivor)
        wait_until(lambda: quorum(survivor)["reasons"], "an answer")
        early = pidkeeper(*recover, str(floor), "--wait", "0.2")
        assert (early.returncode, "no answer from voters 2, 3 at any of" in early.stderr) == (
            ExitCode.UNREACHABLE,
            True,
        )
        cluster.start(*cluster.layout.controllers)
        wait_until_waiting(cluster)
        exhausting = pidkeeper(*recover, str(MAX_PRODUCER_ID), "--force")
        assert (exhausting.returncode, "would leave no block of 50" in exhausting.stderr) == (ExitCode.REFUSED, True)
        plan = told(*recover, str(floor), "--dry-run")
        assert (plan["changed"], plan["founding_id"], plan["first_id"]) == (False, None, floor)
        assert quorum(survivor)["founding_id"] is None, "a plan founds nothing"
        done = told(*recover, str(floor))
        assert (done["changed"], done["predecessor"]) == (True, str(uuid.UUID(int=0)))
        again = told(*recover, str(floor))
        assert (again["changed"], again["founding_id"]) == (False, done["founding_id"])

        wait_until(lambda: "letting go of all IDs" in log_of(cluster, agent), "an agent that lets go")
        wait_until(lambda: cluster.ready(agent), "an agent with IDs")
        after = [claim(agent) for _ in range(100)]
        assert min(after) >= floor
        assert len({*given, *after}) == 400
        assert min(block["first"] for block in ledger(cluster)) >= floor
        assert "Predecessor       unknown" in pidkeeper("quorum", "describe", "--cluster", cluster.directory).stdout


def test_the_member_that_is_left_may_have_become_a_voter_later(tmp_path: Path) -> None:
    with running_cluster(tmp_path, controllers=1, controller_options=OPTIONS) as cluster:
        joined = [cluster.add_controller() for _ in range(2)]
        for one in joined:
            cluster.start(one)
            wait_until(lambda one=one: quorum(one)["reasons"], "an answer")  # type: ignore[misc]
            add_voter(cluster, one)
        epoch = wait_until(lambda: register(cluster.leader(), 1, "before").json().get("broker_epoch"), "a registration")
        # The leader may fall while the newest voter begins.
        given = [wait_until(lambda: _block(cluster.leader(), epoch), "a block")["producer_id_start"] for _ in range(10)]
        left = joined[-1]
        wait_until(lambda: quorum(left)["next_producer_id"] >= given[-1] + 50, "a member that has caught up")
        cluster.kill(*cluster.layout.controllers)
        for one in cluster.layout.controllers:
            one.learner = False
            if one is not left:
                shutil.rmtree(one.data_dir)
        assert told("storage", "recover", "--dir", left.data_dir, "--at-least", "5000")["voters"] == [1, 2, 3]
        cluster.start(*cluster.layout.controllers)
        leader = cluster.leader()
        wait_until(lambda: not quorum(leader)["reasons"], "a quorum that hands out")
        epoch = register(leader, 1, "after").json()["broker_epoch"]
        assert allocate(leader, 1, epoch).json()["producer_id_start"] == 5000
        firsts = [block["first"] for block in ledger(cluster)]
        assert {*given, 5000} <= set(firsts)
        assert firsts[-1] == 5000


def _block(member: Controller, epoch: int) -> dict[str, Any]:
    """The answer of a member that gives one, else nothing."""
    answer = allocate(member, 1, epoch)
    given: dict[str, Any] = answer.json() if answer.status == 200 else {}
    return given


def told(*arguments: str | Path) -> dict[str, Any]:
    """The document of a command that comes to a good end."""
    done = pidkeeper(*arguments, "--output", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def everything_in(directory: str) -> dict[Path, bytes]:
    """All files below a directory, with their content."""
    return {path: path.read_bytes() for path in sorted(Path(directory).rglob("*")) if path.is_file()}
