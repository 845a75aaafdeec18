"""The same calls to a group of a real Kafka broker and to one of ours, and what both say to them.

Where Kafka leaves to chance who leads, ours is told to follow it. Nothing here lasts as long as any timeout does.
"""

from __future__ import annotations

import random
import select
import socket
import struct
from typing import Any, Final

from pidkeeper.broker_agent.groups.classic_group import State
from pidkeeper.broker_agent.groups.members import Member
from pidkeeper.broker_agent.groups.settings import GroupSettings
from pidkeeper.broker_agent.kafka.wire.groups.join_group import JoinGroupResponse
from pidkeeper.protocol.addresses import HostPort
from pidkeeper.protocol.errors import ErrorCode
from tests.support.group_rig import GroupRig, join_request
from tests.support.plain_messages import Plain, requests, response

TIMEOUT_MS: Final = 300_000
PROTOCOL_TYPE: Final = "witness"
"""Not `consumer`: Kafka reads the subscriptions of these, and never answers a group in which one is malformed."""

SECONDS: Final = 10.0
"""How long an answer may take; never how fast it must be."""

SETTLE_SECONDS: Final = 0.03
"""Until a request without an answer has surely been looked at. Were it not, the next answers would differ."""

PROTOCOLS: Final = [("range",), (("range", b"other topics"),), ("range", "sticky"), ("sticky",)]


class KafkaGroup:
    """One group of a broker. Each call has a connection of its own: an answer may be long in coming."""

    def __init__(self, bootstrap: str, group_id: str) -> None:
        self._address = HostPort.parse(bootstrap, "bootstrap")
        self.group_id = group_id
        self._open: dict[int, tuple[socket.socket, str, int]] = {}

    def ask(self, call: int, api: str, version: int, message: Plain) -> None:
        connection = socket.create_connection((self._address.host, self._address.port), SECONDS)
        frame = requests(api, version, {"group_id": self.group_id, **message})[0]
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        self._open[call] = connection, api, version

    def answer(self, call: int) -> Plain:
        """Wait for it."""
        connection, api, version = self._open.pop(call)
        with connection, connection.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            return response(api, version, stream.read(size))

    def said_more(self) -> list[int]:
        """Calls that have an answer which nobody waits for."""
        readable, _, _ = select.select([one for one, _, _ in self._open.values()], [], [], SETTLE_SECONDS)
        return [call for call, (one, _, _) in self._open.items() if one in readable]

    def close(self) -> None:
        for connection, _, _ in self._open.values():
            connection.close()
        self._open.clear()


class SideBySide:
    """`told`: how often each thing was said, by kind and code."""

    def __init__(self, kafka: KafkaGroup, rng: random.Random) -> None:
        self.kafka = kafka
        self.rig = GroupRig(GroupSettings(initial_rebalance_delay_ms=0))
        self.rng = rng
        self.told: set[tuple[str, int]] = set()
        self.course: list[str] = []
        # Kafka's names of our members, and those that were given out and not joined with yet.
        self.names: dict[str, str] = {}
        self.given: list[str] = []
        self.compared: set[int] = set()

    def step(self) -> None:
        """One call, by chance, and all that is said by then."""
        actions = [self.comes, self.comes, self.comes_again, self.comes_again, self.syncs, self.syncs, self.syncs]
        self.rng.choice([*actions, self.lives, self.leaves])()
        self.rig.wait(0)
        self.compare()

    # Calls.

    def comes(self) -> None:
        """A new member, one with the id that it was given, or a static one."""
        kind = self.rng.randrange(4)
        if kind == 0 and self.given:
            self._join(self.given.pop(), None, 9)
        elif kind == 1:
            self._join("", self.rng.choice(["static-1", "static-2"]), self.rng.choice([5, 9]))
        else:
            self._join("", None, self.rng.choice([3, 9]))

    def comes_again(self) -> None:
        member_id, instance_id = self._somebody()
        self._join(member_id, instance_id, 9)

    def syncs(self) -> None:
        member_id, instance_id = self._somebody()
        generation = self.rig.group.generation - (self.rng.random() < 0.1)
        assignments = {}
        if member_id == self.rig.group.members.leader:
            assignments = {
                one.member_id: f"{generation} {one.instance_id or one.member_id}".encode()
                for one in self.rig.group.members
            }
        name = self.rng.choice([self.rig.group.protocol, self.rig.group.protocol, "other"]) or "none"
        self.course.append(f"sync {member_id} {generation} {name}")
        call = self.rig.sync(
            member_id,
            generation,
            instance_id=instance_id,
            assignments=assignments,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=name,
            tells_protocol=True,
        )
        told = [{"member_id": self._name(to), "assignment": what} for to, what in assignments.items()]
        message = {"protocol_type": PROTOCOL_TYPE, "protocol_name": name, "assignments": told}
        self._ask(call, "sync_group", 5, member_id, instance_id, generation_id=generation, **message)

    def lives(self) -> None:
        member_id, instance_id = self._somebody(joining=True)
        self.course.append(f"heartbeat {member_id}")
        code = self.rig.heartbeat(member_id, instance_id=instance_id)
        generation = self.rig.group.generation
        self._ask(-1, "heartbeat", 4, member_id, instance_id, generation_id=generation)
        theirs = self.kafka.answer(-1)["error_code"]
        assert theirs == code.kafka_code, self._differs("heartbeat", code, theirs)
        self.told.add(("heartbeat", theirs))

    def leaves(self) -> None:
        member_id, instance_id = self._somebody(joining=True)
        # In a stable group Kafka begins a rebalance when one leaves that is no member yet. Ours does not.
        if self.given and self.rig.is_in(State.PREPARING_REBALANCE) and self.rng.random() < 0.3:
            member_id, instance_id = self.given.pop(), None
        if instance_id is not None and self.rng.random() < 0.5:
            member_id = ""
        self.course.append(f"leave {member_id} {instance_id}")
        call = self.rig.leave((member_id, instance_id))
        leaving = {"member_id": self._name(member_id), "group_instance_id": instance_id, "reason": None}
        self.kafka.ask(call, "leave_group", 5, {"members": [leaving]})

    def _join(self, member_id: str, instance_id: str | None, version: int) -> None:
        request = join_request(protocols=self.rng.choice(PROTOCOLS))
        self.course.append(f"join v{version} {member_id} {instance_id} {[one.name for one in request.protocols]}")
        call = self.rig.join(
            member_id,
            instance_id=instance_id,
            protocols=[(one.name, one.metadata) for one in request.protocols],
            session_timeout_ms=TIMEOUT_MS,
            rebalance_timeout_ms=TIMEOUT_MS,
            protocol_type=PROTOCOL_TYPE,
            takes_member_id=version >= 4,
            skips_assignment=version >= 9,
        )
        protocols = [{"name": one.name, "metadata": one.metadata} for one in request.protocols]
        times = {"session_timeout_ms": TIMEOUT_MS, "rebalance_timeout_ms": TIMEOUT_MS}
        message = {**times, "protocol_type": PROTOCOL_TYPE, "protocols": protocols, "reason": None}
        self._ask(call, "join_group", version, member_id, instance_id, **message)

    def _ask(self, call: int, api: str, version: int, member_id: str, instance_id: str | None, **message: Any) -> None:
        named = {"member_id": self._name(member_id), "group_instance_id": instance_id}
        self.kafka.ask(call, api, version, {**named, **message})

    def _somebody(self, *, joining: bool = False) -> tuple[str, str | None]:
        """A member that waits for nothing, since Kafka forgets a call in whose place a later one comes, or for others
        to join as well; or nobody. Of a new one that waits nobody knows the id."""
        free = [
            one
            for one in self.rig.group.members
            if one.syncing is None and (one.joining is None or (joining and one.member_id in self.names))
        ]
        if free and self.rng.random() < 0.95:
            one: Member = self.rng.choice(free)
            return one.member_id, one.instance_id
        return self.rng.choice([("nobody", None), ("nobody", "static-1"), ("", "static-3")])

    def _name(self, member_id: str) -> str:
        return self.names.get(member_id, member_id)

    # Answers.

    def compare(self) -> None:
        """Take the answers that ours has, and see that there is no other one."""
        answered = [call for call in self.rig.answers if call not in self.compared]
        theirs = {}
        for call in answered:
            try:
                theirs[call] = self.kafka.answer(call)
            except TimeoutError:
                raise AssertionError(self._differs("call", (call, self.rig.answers[call]), None)) from None
        self.compared.update(answered)
        for call in answered:
            self._learn(self.rig.answers[call], theirs[call])
        for call in answered:
            self._compare(call, theirs[call])
        more = self.kafka.said_more()
        assert not more, self._differs("unasked", None, [self.kafka.answer(one) for one in more])

    def _learn(self, ours: Any, theirs: Plain) -> None:
        """Who is who, and whom Kafka has lead."""
        if not isinstance(ours, JoinGroupResponse):
            return
        self.names[ours.member_id] = theirs["member_id"]
        if theirs["error_code"] == ErrorCode.MEMBER_ID_REQUIRED.kafka_code:
            self.given.append(ours.member_id)

    def _compare(self, call: int, theirs: Plain) -> None:
        answer = self.rig.answers[call]
        code = answer.kafka_code if isinstance(answer, ErrorCode) else answer.error_code
        kind = "leave" if "members" in theirs and "leader" not in theirs else "join" if "leader" in theirs else "sync"
        assert theirs["error_code"] == code, self._differs(kind, answer, theirs)
        if isinstance(answer, JoinGroupResponse) and not code:
            self._compare_joined(answer, theirs, call)
        elif kind == "sync" and not isinstance(answer, ErrorCode):
            ours = self.rig.synced(call)
            assert theirs["assignment"] == ours.assignment, self._differs(kind, answer, theirs)
            assert theirs["protocol_name"] == ours.protocol_name, self._differs(kind, answer, theirs)
        elif kind == "leave":
            codes = [one["error_code"] for one in theirs["members"]]
            assert codes == self.rig.left(call), self._differs(kind, answer, theirs)
            code = codes[0]
        self.told.add((kind, code))

    def _compare_joined(self, ours: JoinGroupResponse, theirs: Plain, call: int) -> None:
        pairs: list[tuple[Any, Any]] = [
            (ours.generation, theirs["generation_id"]),
            (ours.protocol_name, theirs["protocol_name"]),
            (ours.skip_assignment, theirs.get("skip_assignment", False)),
        ]
        if self._name(ours.leader) == theirs["leader"]:
            pairs.append(
                (
                    {(self._name(one.member_id), one.metadata) for one in ours.members},
                    {(one["member_id"], one["metadata"]) for one in theirs["members"]},
                )
            )
        else:
            self._follow(theirs["leader"], call)
        assert all(own == other for own, other in pairs), self._differs("join", ours, theirs)

    def _follow(self, leader: str, call: int) -> None:
        """The leader left, or did not come: Kafka takes any in its place."""
        found = [one.member_id for one in self.rig.group.members if self._name(one.member_id) == leader]
        assert found, f"{leader} leads after call {call}, and is no member here\n" + "\n".join(self.course)
        self.rig.group.members.leader = found[0]

    def _differs(self, what: str, ours: Any, theirs: Any) -> str:
        return f"{what}: ours {ours}, Kafka's {theirs}, after\n" + "\n".join(self.course)

    def end(self) -> None:
        self.kafka.close()
