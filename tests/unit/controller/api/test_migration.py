"""The migration over HTTP: what is shown, what is ordered, what is refused."""

from __future__ import annotations

import msgspec
import pytest

from pidkeeper.controller.migration.znode import ZnodeBlock, encode, seal
from pidkeeper.controller.migration.zookeeper import Cause, Failure, LiveBrokers
from pidkeeper.controller.state.migration import MigrationState
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.messages import AllocatedBlock, MigrationDescription, ZookeeperBrokers
from pidkeeper.protocol.migration import MigrationPhase, MigrationRecord
from tests.support.memory_member import QUORUM_NAME, MemoryMember
from tests.unit.controller.api.conftest import Answer, Api, Serve

ROOT = "/v1/migration/zookeeper"
OPERATORS = "the operators' secret, of some length"
BLOCK = encode(ZnodeBlock(7, 56_000, 56_999))


@pytest.fixture
def member(member: MemoryMember) -> MemoryMember:
    """A quorum that claims in ZooKeeper, where broker 7 has taken a block."""
    member.machine.replay([MigrationRecord(MigrationPhase.BRIDGE, QUORUM_NAME, -1, 0)])
    member.znode.put(BLOCK)
    return member


async def describe(api: Api) -> MigrationDescription:
    answer = await api.call("GET", ROOT)
    assert answer.status == 200, answer.text
    return msgspec.json.decode(answer.body, type=MigrationDescription)


async def order(api: Api, name: str, phase: str, body: dict[str, object] | None = None) -> None:
    answer = await api.call("POST", f"{ROOT}/{name}", json=body or {})
    assert (answer.status, answer.json()) == (200, {"phase": phase}), answer.text


def refused(answer: Answer, code: ErrorCode, detail: str) -> None:
    assert (answer.status, answer.json()["code"]) == (code.http_status, code.name), answer.text
    assert detail in answer.json()["detail"]


async def test_the_znode_is_shown_as_it_is(api: Api, member: MemoryMember) -> None:
    shown = await describe(api)
    assert (shown.phase, shown.claimed_by, shown.next_producer_id) == ("bridge", QUORUM_NAME, 0)
    assert (shown.zookeeper, shown.trouble) == (None, None)
    assert shown.znode is not None
    assert (shown.znode.path, shown.znode.version) == ("/latest_producer_id_block", 1)
    assert (shown.znode.data, shown.znode.next_producer_id) == (BLOCK.decode(), 57_000)
    assert (shown.znode.written_by, shown.znode.problem) == ("broker 7", None)
    assert shown.refusals["start"] is None
    assert "finalize is possible in dual_write only" in (shown.refusals["finalize"] or "")
    assert "the phase is bridge" in (shown.refusals["rollback"] or "")
    member.znode.put(None)
    empty = (await describe(api)).znode
    assert empty is not None
    assert (empty.data, empty.next_producer_id, empty.written_by) == (None, 0, None)
    member.znode.put(b"\xff{")
    broken = await describe(api)
    assert broken.znode is not None
    assert (broken.znode.data, broken.znode.next_producer_id) == ("\ufffd{", None)
    assert broken.refusals["start"] == broken.znode.problem is not None


async def test_from_the_start_to_the_end(api: Api, member: MemoryMember) -> None:
    await order(api, "start", "import")
    await order(api, "start", "import")
    await describe(api)
    shown = await describe(api)
    assert (shown.phase, shown.next_producer_id) == ("dual_write", 57_000)
    await order(api, "start", "dual_write")
    await order(api, "finalize", "finalizing", {"agreed": True})
    await describe(api)
    shown = await describe(api)
    assert (shown.phase, shown.next_producer_id) == ("finalized", 57_000)
    assert member.znode.now.data == encode(seal(QUORUM_NAME))
    await order(api, "finalize", "finalized", {"agreed": True})
    refused(
        await api.call("POST", f"{ROOT}/rollback", json={}),
        ErrorCode.MIGRATION_REFUSED,
        "the phase is finalized",
    )


async def test_back_to_zookeeper(api: Api, member: MemoryMember) -> None:
    await order(api, "start", "import")
    await order(api, "rollback", "rolling_back")
    await describe(api)
    assert (await describe(api)).phase == "rolled_back"
    await order(api, "rollback", "rolled_back")
    assert (member.znode.now.data, member.znode.now.version) == (BLOCK, 3)
    await order(api, "start", "import")


@pytest.mark.parametrize("body", [{}, {"agreed": False}])
async def test_nothing_is_finalised_unless_somebody_agreed(
    api: Api, member: MemoryMember, body: dict[str, object]
) -> None:
    await order(api, "start", "import")
    await describe(api)
    refused(await api.call("POST", f"{ROOT}/finalize", json=body), ErrorCode.MIGRATION_REFUSED, "send agreed = true")
    assert (await describe(api)).phase == "dual_write"
    assert member.znode.now.data == BLOCK


@pytest.mark.parametrize(
    "body",
    ["[]", "{", '{"agreed": 1}', '{"agreed": "yes"}', '{"agreed": true, "sure": true}', '{"agreed": true, "force": 1}'],
)
async def test_a_malformed_agreement_changes_nothing(api: Api, body: str) -> None:
    await order(api, "start", "import")
    await describe(api)
    headers = {"Content-Type": "application/json"}
    answer = await api.call("POST", f"{ROOT}/finalize", data=body, headers=headers)
    refused(answer, ErrorCode.INVALID_REQUEST, "")
    assert (await describe(api)).phase == "dual_write"


@pytest.mark.parametrize("name", ["start", "rollback"])
async def test_orders_take_no_parameters(api: Api, name: str) -> None:
    refused(await api.call("POST", f"{ROOT}/{name}", json={"force": True}), ErrorCode.INVALID_REQUEST, "force")
    assert (await describe(api)).phase == "bridge"


async def test_a_start_that_cannot_be_is_refused(api: Api, member: MemoryMember) -> None:
    member.znode.failure = Failure(Cause.UNAVAILABLE, "no session with ZooKeeper at z:1")
    refused(await api.call("POST", f"{ROOT}/start", json={}), ErrorCode.MIGRATION_REFUSED, "no session with ZooKeeper")
    shown = await describe(api)
    assert (shown.phase, shown.znode) == ("bridge", None)
    assert shown.zookeeper == shown.refusals["start"] == shown.trouble == "no session with ZooKeeper at z:1"
    member.znode.failure = Failure(Cause.ABSENT, "")
    assert "is the chroot right?" in ((await describe(api)).zookeeper or "")
    member.znode.failure = None
    member.next_id = 57_001
    detail = "the quorum is ahead of ZooKeeper: its next producer ID is 57001, the znode's 57000"
    refused(await api.call("POST", f"{ROOT}/start", json={}), ErrorCode.MIGRATION_REFUSED, detail)


async def test_a_quorum_that_has_handed_out_ids_by_itself_cannot_start(api: Api, member: MemoryMember) -> None:
    member.machine.migration = MigrationState()
    member.history.append(AllocatedBlock(0, 999, 1, 1, 1, 1))
    member.next_id = 1000
    refused(
        await api.call("POST", f"{ROOT}/start", json={}),
        ErrorCode.MIGRATION_REFUSED,
        "this quorum has handed out IDs by itself, 0 to 999 at last",
    )


async def test_nothing_is_finalised_over_brokers_that_live(serve: Serve, member: MemoryMember) -> None:
    api = await serve(operator_token=OPERATORS)
    operator = {"Authorization": f"Bearer {OPERATORS}"}
    assert (await api.call("POST", f"{ROOT}/start", json={}, headers=operator)).status == 200
    await describe(api)
    member.znode.live = LiveBrokers((7, 9), foreign=1)
    assert (await describe(api)).brokers == ZookeeperBrokers("/brokers/ids", [7, 9], 1, None)
    for body in ({"agreed": True}, {"agreed": True, "force": False}):
        answer = await api.call("POST", f"{ROOT}/finalize", json=body, headers=operator)
        refused(answer, ErrorCode.MIGRATION_REFUSED, "not now: brokers 7, 9 are still in ZooKeeper")
    unconfirmed = await api.call("POST", f"{ROOT}/finalize", json={"force": True}, headers=operator)
    refused(unconfirmed, ErrorCode.MIGRATION_REFUSED, "send agreed = true")
    forced = await api.call("POST", f"{ROOT}/finalize", json={"agreed": True, "force": True}, headers=operator)
    assert (forced.status, forced.json()) == (200, {"phase": "finalizing"}), forced.text


@pytest.mark.parametrize("token", [None, "a secret of some length"])
async def test_force_takes_an_operator_who_has_proven_to_be_one(
    serve: Serve, member: MemoryMember, token: str | None
) -> None:
    """Also where it would not be needed: who may not force it is told so before anything is looked at."""
    api = await serve(token=token)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    assert (await api.call("POST", f"{ROOT}/start", json={}, headers=headers)).status == 200
    assert (await api.call("GET", ROOT, headers=headers)).status == 200
    answer = await api.call("POST", f"{ROOT}/finalize", json={"agreed": True, "force": True}, headers=headers)
    refused(answer, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "operator_token_file")
    assert member.machine.migration.phase is MigrationPhase.DUAL_WRITE


@pytest.mark.parametrize("leader_id", [None, 2])
async def test_only_the_leader_answers(api: Api, member: MemoryMember, leader_id: int | None) -> None:
    member.leader_id = leader_id
    refused(await api.call("GET", ROOT), ErrorCode.NOT_CONTROLLER, "")
    for name in ("start", "rollback"):
        refused(await api.call("POST", f"{ROOT}/{name}", json={}), ErrorCode.NOT_CONTROLLER, "")
    refused(await api.call("POST", f"{ROOT}/finalize", json={"agreed": True}), ErrorCode.NOT_CONTROLLER, "")
    assert member.machine.migration.phase is MigrationPhase.BRIDGE


async def test_a_token_is_asked_for(serve: Serve) -> None:
    api = await serve(token="a secret of some length")
    for method, path in (("GET", ROOT), ("POST", f"{ROOT}/start"), ("POST", f"{ROOT}/finalize")):
        answer = await api.call(method, path, json={})
        assert (answer.status, answer.json()["code"]) == (401, "CLUSTER_AUTHORIZATION_FAILED")
