"""Every request about groups in every version: read by the responder, answered, and the answer read by other codecs."""

from __future__ import annotations

from typing import Any

import pytest

from pidkeeper.broker_agent.coordinator.caller import ANYBODY, Caller
from pidkeeper.broker_agent.coordinator.directory import Directory, Node
from pidkeeper.broker_agent.groups.answering import GroupAnswers, asking_groups
from pidkeeper.broker_agent.groups.classic_group import State
from pidkeeper.broker_agent.groups.members import Client
from pidkeeper.broker_agent.ids.reserve import BlockReserve
from pidkeeper.broker_agent.kafka.dispatch import WITH_DATA, GroupCall
from pidkeeper.broker_agent.kafka.responder import KafkaResponder
from pidkeeper.broker_agent.kafka.wire.groups.describe_groups import DescribedGroup, DescribedMember
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.group_messages import GroupDescription
from tests.support.data_codecs import APIS
from tests.support.data_frames import valid_frames
from tests.support.group_calls import MemoryCalls, Registered, ToldCoordination, punctual
from tests.support.plain_messages import Plain, response

GROUP_KEYS = {8, 9, *range(11, 17), 28, 42, 47}
FRAMES = {(api, version): frame for (api, version), frame in valid_frames().items() if APIS[api] in GROUP_KEYS}


class Rig:
    """What answers a client of agent 7, over calls that are answered in memory."""

    def __init__(self) -> None:
        self.calls, self.coordination = MemoryCalls(), ToldCoordination()
        directory = Directory(Node(7, "own", 9092))
        self._responder = KafkaResponder(BlockReserve(), directory, lambda: "c", apis=WITH_DATA)
        self._answers = GroupAnswers(self.calls, Registered(), directory, self.coordination, punctual())

    async def ask(self, api: str, version: int, caller: Caller = ANYBODY) -> Plain:
        frame = FRAMES[api, version]
        call, used = self._responder.respond(len(frame).to_bytes(4, "big") + frame, caller)
        assert isinstance(call, GroupCall) and used == len(frame) + 4
        answer = await asking_groups(self._answers, _nobody)(call)
        assert int.from_bytes(answer[:4], "big") == len(answer) - 4
        return response(api, version, answer[4:])


async def _nobody(call: Any) -> bytes:
    raise AssertionError(f"{call} is not about groups")


def of(plain: Any, name: str) -> list[Any]:
    """Every value that a field of this name has, anywhere in an answer."""
    if isinstance(plain, list):
        return [found for one in plain for found in of(one, name)]
    if not isinstance(plain, dict):
        return []
    own = [plain[name]] if name in plain else []
    return own + [found for value in plain.values() for found in of(value, name)]


@pytest.mark.parametrize(("api", "version"), FRAMES)
async def test_every_request_has_an_answer(api: str, version: int) -> None:
    rig = Rig()
    member = DescribedMember("m", None, "c", "h", b"a", b"b")
    for group_id in "gh":
        rig.coordination.described[group_id] = DescribedGroup(group_id, 0, "Empty", "", "", [])
        rig.calls.listed.append(GroupDescription(group_id, 5, 1, "", [], 7, 70, 1, 0, 0))
    rig.coordination.states["g"] = State.STABLE
    rig.coordination.described["g"] = DescribedGroup("g", 0, "Stable", "consumer", "range", [member])
    answer = await rig.ask(api, version)
    assert {*of(answer, "error_code")} == ({0, 86} if api == "offset_delete" else {0})
    told = {
        "join_group": ("generation_id", [3]),
        "sync_group": ("assignment", [b"assigned"]),
        "describe_groups": ("group_state", ["Stable", "Empty"]),
        "delete_groups": ("group_id", ["g", "h"]),
        "list_groups": ("group_id", ["g", "h"] if version < 4 else ["g"]),
    }
    if api in told:
        name, values = told[api]
        assert of(answer, name) == values


@pytest.mark.parametrize(("api", "version"), FRAMES)
async def test_whoever_may_nothing_is_told_nothing(api: str, version: int) -> None:
    rig = Rig()
    rig.calls.listed.append(GroupDescription("g", 5, 1, "", [], 7, 70, 1, 0, 0))
    answer = await rig.ask(api, version, Caller(lambda _: False, may=lambda _, __: False))
    if api == "list_groups":
        assert (answer["error_code"], answer["groups"]) == (0, [])
        return
    assert {*of(answer, "error_code")} - {0} == {53 if api == "txn_offset_commit" else 30}
    assert rig.calls.requests == rig.coordination.asked == []


async def test_the_coordinator_is_told_who_asks() -> None:
    rig = Rig()
    await rig.ask("join_group", 9, Caller(host="10.0.0.1"))
    ((request, client),) = rig.coordination.asked
    assert (request.member_id, client) == ("m", Client("client", "/10.0.0.1"))


@pytest.mark.parametrize("api", ["join_group", "sync_group", "heartbeat", "leave_group"])
async def test_what_the_coordinator_says_is_told(api: str) -> None:
    rig = Rig()
    rig.coordination.code = ErrorCode.UNKNOWN_MEMBER_ID
    assert 25 in of(await rig.ask(api, 4), "error_code")
