"""`pidkeeper migrate zookeeper` against the real HTTP interface of a member in memory."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from pidkeeper.cli import migrate as module
from pidkeeper.cli import migration_plan
from pidkeeper.cli.controllers import ATTEMPT_SECONDS
from pidkeeper.cli.failures import ExitCode
from pidkeeper.cli.local_cluster import free_ports
from pidkeeper.cli.main import cli
from pidkeeper.controller.api.app import build_app
from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.controller.migration.znode import ZnodeBlock, encode, seal
from pidkeeper.controller.migration.zookeeper import Cause, Failure, LiveBrokers
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.migration import MigrationPhase, MigrationRecord
from pidkeeper.service.server import HttpServer
from tests.support.memory_member import QUORUM_NAME, MemoryMember
from tests.support.sharing import sharing

P = MigrationPhase
COMMANDS = ("plan", "status", "start", "finalize", "rollback")
TOKEN = "a token of some length"
AWAY = Failure(Cause.UNAVAILABLE, "no session with ZooKeeper at z:2181: the connection was lost")


def broker_block(first: int, broker_id: int = 7) -> bytes:
    return encode(ZnodeBlock(broker_id, first, first + 999))


class Served:
    """A member whose interface is served by a thread of its own; `set` changes it there."""

    def __init__(self, token: str | None = None, operator_token: str | None = None) -> None:
        self.member = MemoryMember()
        self._token = token
        self._operator_token = operator_token
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._started.wait(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        shared = sharing(self._token, self._operator_token)
        server = HttpServer(build_app(self.member, limits=ApiLimits(), shared=shared))
        host, port = await server.start("127.0.0.1", 0)
        self.url = f"http://{host}:{port}"
        self._started.set()
        await self._end.wait()
        await server.stop(1.0)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    def enter(self, *phases: MigrationPhase) -> None:
        """Take the member through these phases."""
        self.member.machine.replay([MigrationRecord(phase, QUORUM_NAME, 0, 0) for phase in phases])

    def run(self, *arguments: str, answers: str | None = None) -> Result:
        return CliRunner().invoke(
            cli, ["migrate", "zookeeper", *arguments, "-c", self.url, "--timeout", "5"], input=answers
        )

    def json(self, *arguments: str, code: int = 0) -> Any:
        result = self.run(*arguments, "--output", "json")
        assert result.exit_code == code, result.output
        return json.loads(result.stdout)

    @property
    def phase(self) -> MigrationPhase:
        return self.member.machine.migration.phase


@pytest.fixture
def served() -> Iterator[Served]:
    """A quorum that claims in ZooKeeper, where broker 7 has taken the blocks up to 56999."""
    one = Served()
    one.enter(P.BRIDGE)
    one.member.znode.put(broker_block(56_000))
    yield one
    one.close()


@pytest.fixture
def dual(served: Served) -> Served:
    """The migration was started."""
    assert served.run("start").exit_code == 0
    assert served.phase is P.DUAL_WRITE
    return served


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given as input was typed."""
    monkeypatch.setattr(module, "at_terminal", lambda: True)


def test_the_plan_of_a_start(served: Served) -> None:
    result = served.run("plan")
    assert result.exit_code == 0
    assert [line.rstrip() for line in result.output.splitlines()] == [
        "Phase           bridge: blocks are claimed in ZooKeeper first; not started yet",
        "NextProducerId  0",
        "Znode           /latest_producer_id_block, version 1, written by broker 7",
        "ZnodeNextId     57000",
        "Brokers         none in /brokers/ids",
        '{"version":1,"broker":7,"block_start":"56000","block_end":"56999"}',
        "",
        "start would do this:",
        "  1. The quorum's next producer ID goes from 0 to 57000: ZooKeeper has handed out all IDs below.",
        "  2. Every block is then claimed in ZooKeeper first, and committed by the quorum after. Brokers that",
        "     use ZooKeeper continue beside it. No block is handed out while ZooKeeper is away.",
        "  3. Nothing is final: rollback undoes this, finalize ends the migration.",
    ]
    assert served.phase is P.BRIDGE
    assert served.member.znode.now.version == 1


def test_a_plan_says_what_stays_as_it_is(served: Served) -> None:
    served.member.next_id = 57_000
    assert "The quorum's next producer ID stays 57000:" in served.run("plan").output


def test_a_plan_counts_from_what_this_quorum_claimed_and_never_gave_away(dual: Served) -> None:
    dual.member.znode.put(encode(ZnodeBlock(-1, 57_000, 61_999, QUORUM_NAME)))
    output = dual.run("plan").output
    assert "hands out blocks by itself from 57000 on" in output
    assert "ends at 56999 then, not at 61999: ZooKeeper continues from 57000." in output


def test_the_plan_of_what_comes_after_the_start(dual: Served) -> None:
    result = dual.run("plan")
    assert result.exit_code == 0
    assert "the last block was taken by broker 7: make sure that it no longer uses ZooKeeper" in result.output
    assert f"sealed with a block that ends at {MAX_PRODUCER_ID}." in result.output
    assert "'Have exhausted all producerIds'" in result.output
    assert "The znode is rewritten unchanged: ZooKeeper continues from 57000." in result.output
    dual.member.znode.put(encode(ZnodeBlock(9, 57_000, 57_000)))
    planned = dual.json("plan")
    assert [step["order"] for step in planned["steps"]] == ["finalize", "rollback"]
    assert planned["warnings"] == [
        "broker 9 took the block 57000 to 57000 after the quorum's last claim: it still uses ZooKeeper"
    ]
    assert "from 57001 on" in planned["steps"][0]["would"][2]


def test_a_plan_that_would_be_refused(served: Served) -> None:
    served.member.znode.put(b"oops")
    result = served.run("plan")
    assert result.exit_code == ExitCode.REFUSED
    assert "start would be refused:\n  the znode cannot be used: bad JSON" in result.output
    assert "\noops\n" in result.output


def test_a_plan_without_zookeeper(dual: Served) -> None:
    dual.member.znode.failure = AWAY
    planned = dual.json("plan", code=ExitCode.REFUSED)
    assert planned["in_the_way"] == [AWAY.detail]
    assert planned["steps"] == [
        {"order": "finalize", "refusal": f"not now: {AWAY.detail}", "would": []},
        {"order": "rollback", "refusal": None, "would": []},
    ]
    output = dual.run("plan").output
    assert "Znode           cannot be read" in output
    assert "The leader would begin as soon as the znode can be read again." in output


def test_a_plan_of_what_goes_on_by_itself(served: Served) -> None:
    served.member.steps_wait = True
    served.enter(P.IMPORT)
    result = served.run("plan")
    assert (result.exit_code, result.output.splitlines()[-1]) == (0, "the leader continues to dual_write by itself")
    served.enter(P.ROLLING_BACK)
    assert served.run("plan").output.endswith("\nthe leader continues to rolled_back by itself\n")


def test_nothing_is_left_to_plan_at_the_end(dual: Served) -> None:
    assert dual.run("finalize", "--yes").exit_code == 0
    result = dual.run("plan")
    assert (result.exit_code, result.output.splitlines()[-1]) == (0, "nothing is left to do")
    dual.member.znode.failure = AWAY
    result = dual.run("plan")
    assert (result.exit_code, f"not read: {AWAY.detail}" in result.output) == (0, True)


def test_a_start_shows_what_was_and_what_is(served: Served) -> None:
    result = served.run("start")
    assert result.exit_code == 0
    before, _, after = result.stdout.partition("after:")
    assert "Phase           bridge" in before
    assert "NextProducerId  0 " in before
    assert "Phase           dual_write" in after
    assert "NextProducerId  57000" in after
    assert after.splitlines()[-1].startswith("started: every block is claimed in ZooKeeper first")
    again = served.run("start")
    assert again.exit_code == 0
    assert again.output.endswith("nothing had to be done for start: the migration is in the phase dual_write already\n")


def test_orders_for_programs(served: Served) -> None:
    started = served.json("start")
    assert (started["order"], started["done"]) == ("start", True)
    assert (started["before"]["phase"], started["after"]["phase"]) == ("bridge", "dual_write")
    assert started["after"]["next_producer_id"] == 57_000
    assert served.json("rollback")["after"]["phase"] == "rolled_back"
    assert served.json("start")["before"]["phase"] == "rolled_back"
    finalised = served.json("finalize", "--yes")
    assert finalised["after"]["znode"]["data"] == encode(seal(QUORUM_NAME)).decode()
    assert served.json("status")["migration"]["phase"] == "finalized"


def test_a_rollback_and_its_repetition(dual: Served) -> None:
    result = dual.run("rollback")
    assert result.exit_code == 0
    assert result.stdout.endswith("\nrolled back: ZooKeeper continues from 57000; start begins the migration again\n")
    assert (dual.phase, dual.member.znode.now.data) == (P.ROLLED_BACK, broker_block(56_000))
    again = dual.run("rollback")
    assert (again.exit_code, "nothing had to be done for rollback" in again.output) == (0, True)


def test_what_is_final_is_done_once(dual: Served) -> None:
    result = dual.run("finalize", "--yes")
    assert result.exit_code == 0
    assert result.stdout.endswith(
        "\nfinalised: the quorum hands out IDs by itself, from 57000 on; ZooKeeper is sealed\n"
    )
    assert "ZnodeNextId     none: the znode is sealed" in result.stdout
    assert dual.member.znode.now.data == encode(seal(QUORUM_NAME))
    # Nobody is asked for what is done, and there is nothing to agree to.
    again = dual.run("finalize")
    assert (again.exit_code, "nothing had to be done for finalize" in again.output) == (0, True)
    assert dual.run("start").exit_code == 0
    back = dual.run("rollback")
    assert (back.exit_code, "the phase is finalized" in back.output) == (ExitCode.REFUSED, True)


@pytest.mark.parametrize("answers", [None, "y\n"])
def test_without_a_terminal_nobody_can_agree(dual: Served, answers: str | None) -> None:
    result = dual.run("finalize", answers=answers)
    assert result.exit_code == ExitCode.REFUSED
    assert "not confirmed" in result.stderr
    assert "add --yes once no such broker is left" in result.stderr
    assert dual.phase is P.DUAL_WRITE


@pytest.mark.parametrize("answers", ["n\n", "\n", "maybe\nno\n"])
def test_whoever_does_not_agree_changes_nothing(dual: Served, terminal: None, answers: str) -> None:
    result = dual.run("finalize", answers=answers)
    assert result.exit_code == ExitCode.REFUSED
    assert "There is no way back." in result.stderr
    assert "not confirmed: nothing was changed" in result.stderr
    assert dual.phase is P.DUAL_WRITE


def test_whoever_agrees_is_obeyed(dual: Served, terminal: None) -> None:
    assert dual.run("finalize", answers="y\n").exit_code == 0
    assert dual.phase is P.FINALIZED


def test_nothing_is_finalised_unseen(dual: Served) -> None:
    dual.member.znode.failure = AWAY
    result = dual.run("finalize", "--yes")
    assert (result.exit_code, f"not now: {AWAY.detail}" in result.stderr) == (ExitCode.REFUSED, True)
    assert dual.phase is P.DUAL_WRITE
    dual.member.znode.failure = None
    dual.member.znode.put(encode(seal("pidkeeper/another/1")))
    result = dual.run("finalize", "--yes")
    assert (result.exit_code, "sealed by pidkeeper/another/1" in result.stderr) == (ExitCode.REFUSED, True)


def test_brokers_that_live_are_shown_and_stop_it(dual: Served) -> None:
    dual.member.znode.live = LiveBrokers((7, 9), foreign=2)
    shown = dual.run("status")
    assert shown.exit_code == 0
    assert "Brokers         7, 9 in /brokers/ids; 2 of its children are no broker's id" in shown.output
    planned = dual.run("plan").output
    assert "finalize would be refused:\n  not now: brokers 7, 9 are still in ZooKeeper (/brokers/ids)." in planned
    assert "COORDINATOR_LOAD_IN_PROGRESS" in planned and "UNKNOWN_SERVER_ERROR" in planned
    assert dual.json("status")["migration"]["brokers"]["ids"] == [7, 9]
    result = dual.run("finalize", "--yes")
    assert result.exit_code == ExitCode.REFUSED
    assert "Error: not now: brokers 7, 9 are still in ZooKeeper" in result.stderr
    assert dual.phase is P.DUAL_WRITE
    dual.member.znode.live = LiveBrokers(())
    assert dual.run("finalize", "--yes").exit_code == 0


def test_a_list_of_brokers_that_cannot_be_read_stops_it(dual: Served) -> None:
    dual.member.znode.live = Failure(Cause.DENIED, "")
    result = dual.run("finalize", "--yes")
    assert (result.exit_code, "let this user read /brokers/ids" in result.stderr) == (ExitCode.REFUSED, True)
    assert "Brokers         unknown: ZooKeeper does not permit it" in result.stdout
    dual.member.znode.failure = AWAY
    assert "Brokers         cannot be read" in dual.run("status").output


def test_force_takes_the_operators_token(tmp_path: Path) -> None:
    one = Served(operator_token=TOKEN)
    file = tmp_path / "token"
    file.write_text(TOKEN)
    try:
        one.enter(P.BRIDGE)
        one.member.znode.put(broker_block(56_000))
        assert one.run("start", "--token-file", str(file)).exit_code == 0
        one.member.znode.live = LiveBrokers((7,))
        without = one.run("finalize", "--yes", "--force")
        assert (without.exit_code, one.phase) == (4, P.DUAL_WRITE)
        result = one.run("finalize", "--yes", "--force", "--token-file", str(file))
        assert (result.exit_code, one.phase) == (0, P.FINALIZED), result.output
        left = one.run("status")
        assert "Warning         broker 7 is still in ZooKeeper. Once its last block is used up" in left.output
        assert one.json("status")["warnings"][0].startswith("broker 7 is still in ZooKeeper. ")
    finally:
        one.close()


def test_a_leader_of_an_older_build_is_sent_what_it_knows(dual: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers without the brokers, and refuses a body with a field that it does not know."""
    sent: list[Any] = []
    send: Callable[..., None] = module._send
    describe: Callable[..., Any] = module._describe

    def noted(members: Any, order: str, body: dict[str, bool]) -> None:
        sent.append(body)
        send(members, order, body)

    monkeypatch.setattr(module, "_send", noted)
    monkeypatch.setattr(module, "_describe", lambda members: replace(describe(members), brokers=None))
    result = dual.run("finalize", "--yes")
    assert (result.exit_code, sent) == (0, [{"agreed": True}])
    assert "Brokers         unknown: the leader's build does not look" in result.stdout


def test_an_order_that_takes_longer_is_not_lost(served: Served) -> None:
    served.member.steps_wait = True
    result = served.run("start", "--wait", "0.3")
    assert result.exit_code == ExitCode.FAILED
    assert result.stderr == (
        "import\n"
        "Error: start is not done after 0.3 s: the leader is working on it. "
        "The leader continues by itself; run the command again to wait for it\n"
    )
    served.member.steps_wait = False
    assert (served.run("start").exit_code, served.phase) == (0, P.DUAL_WRITE)


def test_what_an_order_waits_for_is_said_once(dual: Served) -> None:
    dual.member.znode.failure = AWAY
    result = dual.run("rollback", "--wait", "0.5")
    assert result.exit_code == ExitCode.FAILED
    assert result.stderr.count(f"rolling_back: {AWAY.detail}\n") == 1
    assert f"rollback is not done after 0.5 s: {AWAY.detail}. The leader continues by itself" in result.stderr
    assert dual.json("rollback", "--wait", "0", code=ExitCode.FAILED)["done"] is False
    dual.member.znode.failure = None
    assert dual.run("rollback").exit_code == 0


def test_a_seal_that_is_not_committed_yet_is_in_nobodys_way(dual: Served) -> None:
    dual.member.steps_wait = True
    dual.enter(P.FINALIZING)
    dual.member.znode.put(encode(seal(QUORUM_NAME)))
    assert dual.json("status")["in_the_way"] == []


def test_a_seal_under_way_is_waited_for_without_asking(dual: Served) -> None:
    dual.enter(P.FINALIZING)
    result = dual.run("finalize")
    assert (result.exit_code, dual.phase) == (0, P.FINALIZED)
    assert result.stdout.splitlines()[-1].startswith("finalised:")


def test_another_order_meanwhile_is_told(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.member.steps_wait = True
    send: Callable[..., None] = module._send

    def overruled(*arguments: Any) -> None:
        send(*arguments)
        served.enter(P.ROLLING_BACK)

    monkeypatch.setattr(module, "_send", overruled)
    result = served.run("start", "--wait", "0.2")
    assert result.exit_code == ExitCode.FAILED
    assert "the migration is now in the phase rolling_back: run plan" in result.stderr


def test_the_status_of_what_is_well(served: Served) -> None:
    result = served.run("status")
    assert result.exit_code == 0
    assert '\n{"version":1,"broker":7,"block_start":"56000","block_end":"56999"}\n' in result.output
    described = served.json("status")
    assert (described["in_the_way"], described["warnings"]) == ([], [])
    assert described["migration"]["znode"]["version"] == 1


def test_the_status_of_a_znode_that_holds_nothing(served: Served) -> None:
    served.member.znode.put(None)
    result = served.run("status")
    assert (result.exit_code, result.output.splitlines()[-1]) == (0, "(nothing was ever stored in the znode)")
    assert "version 2, written by nobody" in result.output


@pytest.mark.parametrize(
    ("data", "failure", "reason"),
    [
        (None, AWAY, AWAY.detail),
        (None, Failure(Cause.ABSENT, ""), "is the chroot right?"),
        (b"oops", None, "the znode cannot be used: bad JSON"),
        (encode(seal("pidkeeper/another/1")), None, "the znode was sealed by pidkeeper/another/1"),
        (encode(ZnodeBlock(7, 55_000, 55_999)), None, "the znode is behind: the quorum has handed out IDs below 57000"),
    ],
)
def test_the_status_says_what_is_wrong(dual: Served, data: bytes | None, failure: Failure | None, reason: str) -> None:
    if data is not None:
        dual.member.znode.put(data)
    dual.member.znode.failure = failure
    result = dual.run("status")
    assert result.exit_code == ExitCode.UNHEALTHY
    assert reason in result.output
    described = dual.json("status", code=ExitCode.UNHEALTHY)
    assert any(reason in one for one in described["in_the_way"] + described["warnings"])


def test_zookeeper_may_be_away_where_nobody_needs_it() -> None:
    alone = Served()
    try:
        alone.member.next_id = 5000
        assert alone.json("status")["warnings"] == []
        alone.member.next_id = 0
        alone.member.znode.failure = Failure(Cause.UNAVAILABLE, "this member has no [zookeeper] in its configuration")
        result = alone.run("status")
        assert result.exit_code == 0
        assert "Znode           not read: this member has no [zookeeper]" in result.output
        result = alone.run("plan")
        assert result.exit_code == ExitCode.REFUSED
        assert "start would be refused:\n  this member has no [zookeeper]" in result.output
    finally:
        alone.close()


def test_a_znode_cannot_steer_the_terminal(served: Served) -> None:
    served.member.znode.put(b"\x1b]0;title\x07\n" + b"x" * 5000)
    last = served.run("status").output.splitlines()[-1]
    assert last.startswith("\\x1b]0;title\\x07\\nxxx")
    assert last.endswith("... (5011 characters)")


@pytest.mark.parametrize("command", COMMANDS)
def test_whoever_is_not_authorised_is_told_so(command: str) -> None:
    one = Served(TOKEN)
    try:
        result = one.run(command)
        assert (result.exit_code, "a valid bearer token is required" in result.output) == (4, True)
    finally:
        one.close()


@pytest.mark.parametrize("command", COMMANDS)
def test_nobody_answers(command: str) -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    result = CliRunner().invoke(cli, ["migrate", "zookeeper", command, "-c", url, "--timeout", "0.2"])
    assert result.exit_code == ExitCode.UNREACHABLE


def test_a_refused_order_ends_the_command(served: Served) -> None:
    for command in ("finalize", "rollback"):
        result = served.run(command, "--wait", "0")
        assert (result.exit_code, "the phase is bridge" in result.stderr) == (ExitCode.REFUSED, True)
    assert served.phase is P.BRIDGE


def test_an_election_while_it_waits_is_no_failure(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.member.steps_wait = True
    looks = 0
    describe: Callable[..., Any] = module._describe

    def interrupted(members: Any) -> Any:
        nonlocal looks
        looks += 1
        if looks == 2:
            served.member.leader_id = None
            members.timeout = 0.1
        if looks == 4:
            served.member.leader_id, members.timeout = 1, 5.0
            served.member.steps_wait = False
        return describe(members)

    monkeypatch.setattr(module, "_describe", interrupted)
    result = served.run("start")
    assert (result.exit_code, served.phase) == (0, P.DUAL_WRITE)
    assert "no answer within 0.1 s" in result.stderr


def test_every_phase_has_words() -> None:
    assert set(migration_plan.STATES) == set(migration_plan.NEXT_ORDERS) == {phase.name.lower() for phase in P}


def test_zookeeper_may_take_longer_than_other_calls(served: Served) -> None:
    served.member.znode.seconds = ATTEMPT_SECONDS + 0.1
    assert served.run("status").exit_code == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    result = CliRunner().invoke(cli, ["migrate", "zookeeper", command, "--help"])
    assert result.exit_code == 0
    assert "--output" in result.output
