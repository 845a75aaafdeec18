"""The members of a classic group, as its coordinator holds them: what they are, can do, and wait for. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator
from typing import Final, NamedTuple

from pidkeeper.broker_agent.kafka.wire.groups.join_group import JoinGroupRequest, JoinProtocol
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.groups import MAX_CLIENT_LENGTH, GroupMember

MEMBER_BYTES: Final = 1024
PROTOCOL_BYTES: Final = 128
"""What a member takes in memory beside its metadata and its assignment, and one of its protocols beside its own."""

Call = Hashable
"""What an answer is for: whoever asks knows it again."""


class Client(NamedTuple):
    """Whoever sends a member's requests: the id that it gives itself, and its address."""

    client_id: str
    host: str


class Member:
    """One member; of one that is `new`, its first JoinGroup is not answered yet.

    `joining`, `syncing`: its JoinGroup and its SyncGroup that wait for an answer. `synced`: whether it has asked for
    its assignment of this generation. `expires`: when it is given up on, if it waits for nothing. `record_bytes`: its
    share of the group's record, at most. One without `protocols` is known from the quorum alone: it has not come back
    to this coordinator.
    """

    __slots__ = (
        "assignment",
        "client",
        "expires",
        "instance_id",
        "joining",
        "member_id",
        "new",
        "protocols",
        "rebalance_ms",
        "record_bytes",
        "session_ms",
        "synced",
        "syncing",
    )

    def __init__(self, member_id: str, instance_id: str | None, client: Client) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client = Client(client.client_id[:MAX_CLIENT_LENGTH], client.host[:MAX_CLIENT_LENGTH])
        self.protocols: tuple[JoinProtocol, ...] = ()
        self.session_ms = self.rebalance_ms = 0
        self.assignment = b""
        self.joining: Call | None = None
        self.syncing: Call | None = None
        self.synced = True
        self.new = False
        self.expires = 0
        self.record_bytes = self.described.encoded_bytes

    def take(self, request: JoinGroupRequest, call: Call) -> None:
        """It joins, and waits for `call` to be answered."""
        self.protocols = tuple(request.protocols)
        self.session_ms, self.rebalance_ms = request.session_timeout_ms, max(0, request.rebalance_timeout_ms)
        self.joining = call

    def matches(self, request: JoinGroupRequest) -> bool:
        """Whether it asks for nothing else than before (`ClassicGroupMember.matches`)."""
        return self.protocols == tuple(request.protocols)

    def metadata(self, protocol: str) -> bytes:
        """Its metadata of a protocol, which it has to know."""
        return next(one.metadata for one in self.protocols if one.name == protocol)

    @property
    def keeps_waiting(self) -> bool:
        """Whether it need not show signs of life (`hasSatisfiedHeartbeat`): a new one may have gone unheard."""
        return not self.new and (self.joining is not None or self.syncing is not None)

    @property
    def described(self) -> GroupMember:
        """As the quorum keeps it."""
        return GroupMember(self.member_id, self.instance_id, *self.client, self.session_ms)

    @property
    def held_bytes(self) -> int:
        """What it takes in memory."""
        return held_bytes(self.protocols, self.assignment)


def held_bytes(protocols: Collection[JoinProtocol], assignment: bytes = b"") -> int:
    """What a member with these takes in memory."""
    known = sum(PROTOCOL_BYTES + len(one.name.encode()) + len(one.metadata) for one in protocols)
    return MEMBER_BYTES + known + len(assignment)


class Members:
    """Those of one group, in the order in which they came. `leader`: the first one, until it goes."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._instances: dict[str, str] = {}
        self.leader: str | None = None

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def of_instance(self, instance_id: str | None) -> Member | None:
        """The member that has an instance id, if there is one."""
        return None if instance_id not in self._instances else self._members[self._instances[instance_id]]

    def refused(self, member_id: str, instance_id: str | None) -> ErrorCode | None:
        """Why a request of a member is not taken, if it is not (`ClassicGroup.validateMember`)."""
        if instance_id is not None:
            owner = self.of_instance(instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner.member_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return None if member_id in self._members else ErrorCode.UNKNOWN_MEMBER_ID

    def add(self, member: Member) -> None:
        """Neither its id nor its instance id may be there."""
        assert member.member_id not in self._members, f"{member.member_id!r} is a member"
        assert member.instance_id not in self._instances, f"{member.instance_id!r} is a member's"
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id
        self.leader = self.leader or member.member_id

    def remove(self, member: Member) -> None:
        """If it leads, the next one does."""
        del self._members[member.member_id]
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self._members), None)

    def replace(self, old: Member, new: Member) -> None:
        """A static member comes back with another member id, and is what it was (KIP-345)."""
        led = self.leader == old.member_id
        self.remove(old)
        self.add(new)
        if led:
            self.leader = new.member_id

    def elect(self) -> bool:
        """Have one that joins lead, the leader if it does (`maybeElectNewJoinedLeader`); False if none does."""
        joining = [one.member_id for one in self if one.joining is not None]
        if joining and self.leader not in joining:
            self.leader = joining[0]
        return bool(joining)

    def have_all_joined(self) -> bool:
        """Whether every member waits for the next generation."""
        return all(one.joining is not None for one in self)

    def rebalance_ms(self) -> int:
        """How long members wait for each other: as long as the one that wants the longest."""
        return max((one.rebalance_ms for one in self), default=0)

    def support(self, protocols: Collection[JoinProtocol]) -> bool:
        """Whether all members know one of these."""
        return not {one.name for one in protocols}.isdisjoint(self._candidates()) or not self._deciding()

    def choose(self) -> str:
        """The protocol for which most members vote, each for the first of its own that all know. Of as many votes, the
        one that was voted for first (`ClassicGroup.selectProtocol`)."""
        candidates = self._candidates()
        votes = Counter(next(one.name for one in member.protocols if one.name in candidates) for member in self)
        return votes.most_common(1)[0][0]

    def _deciding(self) -> list[Member]:
        return [one for one in self if one.protocols]

    def _candidates(self) -> set[str]:
        deciding = self._deciding()
        names = [{each.name for each in one.protocols} for one in deciding]
        return set.intersection(*names) if names else set()
