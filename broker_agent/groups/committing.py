"""Commits of offsets, by themselves or within a transaction (KIP-98, KIP-447).

The quorum decides. What a client commits at once may be more than one request to it: then it is cut, and where one part
is refused those behind it are not asked for, and refused alike. Rules are Kafka's (`KafkaApis`): READ of the group and
of each topic, and within a transaction the transactional id besides. Any agent may take a commit within a transaction;
whether a member may commit by itself in the midst of a rebalance only the coordinator knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pidkeeper.broker_agent.coordinator.caller import Caller
from pidkeeper.broker_agent.coordinator.late_requests import LateRequests
from pidkeeper.broker_agent.data.calls import Registration
from pidkeeper.broker_agent.data.codes import (
    INVALID_REQUEST,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from pidkeeper.broker_agent.groups.calls import GroupCalls
from pidkeeper.broker_agent.groups.coordination import Coordination
from pidkeeper.broker_agent.groups.counters import CommitCounters
from pidkeeper.broker_agent.groups.cutting import Commit, cut_commits
from pidkeeper.broker_agent.groups.permitting import is_partition, no_group, no_member
from pidkeeper.broker_agent.groups.refusals import COME_AGAIN, told_code
from pidkeeper.broker_agent.kafka.wire.groups.offset_commit import OffsetCommitRequest
from pidkeeper.broker_agent.kafka.wire.groups.partitions import (
    PartitionCode,
    PartitionCommit,
    TopicCodes,
    TopicCommits,
)
from pidkeeper.broker_agent.kafka.wire.groups.txn_offset_commit import TxnOffsetCommitRequest
from pidkeeper.broker_agent.security.resources import GROUP_READ, TOPIC_READ
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.group_messages import CommitOffsetsRequest, OffsetsTransaction
from pidkeeper.protocol.groups import (
    MAX_OFFSET_METADATA_BYTES,
    NO_GENERATION,
    NO_LEADER_EPOCH,
    PartitionOffset,
    TopicOffsets,
)
from pidkeeper.protocol.metadata_version import TRANSACTION_EPOCHS
from pidkeeper.protocol.transactions import MAX_TRANSACTIONAL_ID_LENGTH

KNOWS_LOADING: Final = 2
"""The first version of TxnOffsetCommit whose clients survive COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""

KNOWS_ABORTABLE: Final = 4
"""The first version of it whose clients know TRANSACTION_ABORTABLE (KIP-890)."""

_METADATA_TOO_LARGE: Final = ErrorCode.OFFSET_METADATA_TOO_LARGE.kafka_code
_NOT_AVAILABLE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE.kafka_code
_NO_TRANSACTION: Final = ErrorCode.INVALID_TXN_STATE.kafka_code
_ABORTABLE: Final = ErrorCode.TRANSACTION_ABORTABLE.kafka_code
_UNKNOWN_PAIR: Final = ErrorCode.INVALID_PRODUCER_ID_MAPPING.kafka_code

_Make = Callable[[int, list[TopicOffsets]], CommitOffsetsRequest]
"""The request under a broker epoch."""


class OffsetCommitter:
    """Commits offsets for clients, and counts them. `late_requests` judges each attempt: the outcome of a newer commit
    must not be undone by an older one that a client has given up on."""

    def __init__(
        self, calls: GroupCalls, session: Registration, coordination: Coordination, late_requests: LateRequests
    ) -> None:
        self._calls = calls
        self._session = session
        self._coordination = coordination
        self._late_requests = late_requests
        self.counters = CommitCounters()

    async def commit(self, request: OffsetCommitRequest, caller: Caller) -> list[TopicCodes]:
        """The outcome for each partition of an OffsetCommit."""
        group_id, member_id, instance_id = request.group_id, request.member_id, request.instance_id
        generation = max(NO_GENERATION, request.generation)
        code = no_group(group_id, GROUP_READ, caller) or no_member(member_id, instance_id)
        code = code or self._coordination.before_commit(group_id, member_id, generation, instance_id).kafka_code
        if code:
            return self._told(request.topics, _alike(request.topics, code))

        def make(epoch: int, topics: list[TopicOffsets]) -> CommitOffsetsRequest:
            broker_id = self._session.broker_id
            return CommitOffsetsRequest(broker_id, epoch, group_id, topics, generation, member_id, instance_id)

        return self._told(request.topics, await self._commit(request.topics, caller, make))

    async def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, version: int, caller: Caller
    ) -> list[TopicCodes]:
        """Likewise of a TxnOffsetCommit. All parts of it belong to one transaction, so none takes effect alone."""
        codes = await self._commit_in_transaction(request, caller)
        if version < KNOWS_LOADING:
            codes = [_NOT_AVAILABLE if one == COME_AGAIN else one for one in codes]
        elif version >= KNOWS_ABORTABLE:
            codes = [_ABORTABLE if one == _NO_TRANSACTION else one for one in codes]
        return self._told(request.topics, codes)

    async def _commit_in_transaction(self, request: TxnOffsetCommitRequest, caller: Caller) -> list[int]:
        name = request.transactional_id
        if not caller.may_use(name):
            code = TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        elif not 1 <= len(name) <= MAX_TRANSACTIONAL_ID_LENGTH or min(request.producer_id, request.producer_epoch) < 0:
            code = _UNKNOWN_PAIR
        else:
            code = no_group(request.group_id, GROUP_READ, caller, empty=False)
            code = code or no_member(request.member_id, request.instance_id)
        if not code and request.joining and self._session.metadata_version < TRANSACTION_EPOCHS:
            code = COME_AGAIN
        if code:
            return _alike(request.topics, code)

        def make(epoch: int, topics: list[TopicOffsets]) -> CommitOffsetsRequest:
            return CommitOffsetsRequest(
                self._session.broker_id,
                epoch,
                request.group_id,
                topics,
                max(NO_GENERATION, request.generation),
                request.member_id,
                request.instance_id,
                OffsetsTransaction(name, request.producer_id, request.producer_epoch, request.joining),
            )

        return await self._commit(request.topics, caller, make)

    async def _commit(self, topics: Sequence[TopicCommits], caller: Caller, make: _Make) -> list[int]:
        """Kafka's code for each partition in turn."""
        allowed = {one.topic: caller.may(TOPIC_READ, one.topic) for one in topics}
        asked = [(one.topic, each) for one in topics for each in one.partitions]
        codes = [_own_code(allowed, topic, each) for topic, each in asked]
        commits = [Commit(topic, _offset(each), at) for at, (topic, each) in enumerate(asked) if codes[at] == NONE]
        refused = NONE
        for part, offsets in cut_commits(commits):
            found: Sequence[int] = ()
            if refused == NONE:
                refused, found = await self._ask(offsets, caller, make)
            for at, one in enumerate(part):
                codes[one.place] = refused or found[at]
        return codes

    async def _ask(self, offsets: list[TopicOffsets], caller: Caller, make: _Make) -> tuple[int, Sequence[int]]:
        """What the quorum says to one part: why all of it is refused, if it is, and a code for each partition."""
        epoch = self._session.broker_epoch
        if epoch is None:
            return COME_AGAIN, ()
        request = make(epoch, offsets)

        def attempt() -> CommitOffsetsRequest:
            self._late_requests.refuse(caller)
            return request

        try:
            return NONE, (await self._calls.commit_offsets(attempt)).codes
        except RequestError as error:
            return told_code(error, self._session, epoch), ()

    def _told(self, topics: Sequence[TopicCommits], codes: Sequence[int]) -> list[TopicCodes]:
        """The answer, by the code of each partition in turn."""
        self.counters.count(codes)
        left = iter(codes)
        return [
            TopicCodes(one.topic, [PartitionCode(each.partition, next(left)) for each in one.partitions])
            for one in topics
        ]


def _own_code(allowed: dict[str, bool], topic: str, commit: PartitionCommit) -> int:
    """Why a partition is refused before the quorum is asked."""
    if not allowed[topic]:
        return TOPIC_AUTHORIZATION_FAILED
    if not is_partition(topic, commit.partition):
        return UNKNOWN_TOPIC_OR_PARTITION
    if commit.offset < 0:
        # Kafka keeps such an offset, and tells it as that of a partition which has none.
        return INVALID_REQUEST
    if len((commit.metadata or "").encode()) > MAX_OFFSET_METADATA_BYTES:
        return _METADATA_TOO_LARGE
    return NONE


def _offset(commit: PartitionCommit) -> PartitionOffset:
    epoch = max(NO_LEADER_EPOCH, commit.leader_epoch)
    return PartitionOffset(commit.partition, commit.offset, epoch, commit.metadata or "")


def _alike(topics: Sequence[TopicCommits], code: int) -> list[int]:
    return [code for one in topics for _ in one.partitions]
