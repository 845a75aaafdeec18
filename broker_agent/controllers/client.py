"""Client of the controllers: finds the leader, follows it, and gives up at a deadline. The transport is a port."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec

from pidkeeper.broker_agent.backoff import Random, backoff_seconds
from pidkeeper.broker_agent.controllers.transport import Transport
from pidkeeper.protocol.addresses import KAFKA, KAFKA_SSL
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.group_messages import (
    CommitGroupRequest,
    CommitGroupResponse,
    CommitOffsetsRequest,
    CommitOffsetsResponse,
    DeleteGroupRequest,
    DeleteGroupResponse,
    DeleteOffsetsRequest,
    DeleteOffsetsResponse,
    FetchOffsetsRequest,
    FindGroupRequest,
    FindGroupResponse,
    GroupsPage,
    OffsetsPage,
)
from pidkeeper.protocol.log_messages import (
    CommitObjectRequest,
    CommitObjectResponse,
    CreateTopicRequest,
    DeleteTopicRequest,
    DeleteTopicResponse,
    FindOffsetsRequest,
    FindOffsetsResponse,
    FindTopicsRequest,
    ReadLogsRequest,
    ReadLogsResponse,
    TopicDescription,
    TopicsPage,
    WatchLogsRequest,
    WatchLogsResponse,
)
from pidkeeper.protocol.messages import (
    AddPartitionsToTxnRequest,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokersResponse,
    EndTxnRequest,
    InitProducerIdResponse,
    Problem,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    TransactionalInitRequest,
    TransactionResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.protocol.segment_messages import (
    CheckObjectsRequest,
    CheckObjectsResponse,
    CommitSegmentRequest,
    CommitSegmentResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    FindGarbageRequest,
    FindGarbageResponse,
    FindRollsRequest,
    FindRollsResponse,
    KeptObjectsPage,
    ObjectsDeletedRequest,
    ObjectsDeletedResponse,
)

ATTEMPT_SECONDS: Final = 0.3
"""Deadline of one attempt at one member: a hundred times a commit on a healthy quorum, and the time after which a
member that hangs (rather than refuses) is passed over. It doubles with each attempt of a call that times out: were the
quorum merely slow, attempts of one length would all be given up on, and each would leak a block."""

CALL_SECONDS: Final = 3.0
"""Deadline of one call over all attempts: longer than a leader election (< 0.9 s) and one round over the members."""

SUSPECT_SECONDS: Final = 0.6
"""How long a member that let a request time out is not asked again on the word of another one: the longest election
timeout, after which its followers have either missed it or vouch for it."""

BACKOFF_BASE_SECONDS: Final = 0.02
BACKOFF_MAX_SECONDS: Final = 0.2
"""Back-off between attempts, jittered over its upper half: a new leader is found within 0.2 s of its election."""

MAX_TRANSACTIONAL_CALLS: Final = 64
"""Requests of transactions at a time, each with a connection of its own. Of 5 ms each they make 12,800 a second, more
than a quorum commits; the next one is told to come again."""

MAX_DATA_CALLS: Final = 32
"""Calls about topics and partition logs at a time: one commit, some watches, and the reads, which are bounded where
they are made."""

MAX_GROUP_CALLS: Final = 32
"""Calls about consumer groups at a time. Of 5 ms each they make 6,400 a second, and 32,000 consumers that commit
every 5 s, Kafka's default, are as many; the next one is told to come again."""

MAX_URL_CHARACTERS: Final = 512
"""Longest leader address that is followed: a DNS name takes 253 characters, scheme and port a dozen."""

_RETRIED_ELSEWHERE: Final = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)

_UNKNOWN_OUTCOMES: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR})
"""Errors that do not say whether the request took effect."""

_SCHEMES: Final = {"http": ("http://", "https://"), "kafka": (KAFKA, KAFKA_SSL)}
"""How addresses begin, by what carries the requests: without TLS, and with it."""

_log = logging.getLogger(__name__)
_Response = TypeVar("_Response")


class InitOutcome(msgspec.Struct, frozen=True):
    """How InitProducerId for a transactional id went.

    `certain`: `answer` is that of the first and only attempt, so no other attempt can take effect later.
    """

    answer: InitProducerIdResponse | RequestError
    certain: bool


class ControllerClient:
    """Calls the leader among `members` (base URLs). Every call raises RequestError with the controller's code.

    REQUEST_TIMED_OUT means that no answer came before the deadline; the request may have taken effect nevertheless.
    Calls about groups may be refused with COORDINATOR_LOAD_IN_PROGRESS before anybody is asked.
    """

    def __init__(
        self,
        members: tuple[str, ...],
        transport: Transport,
        rng: Random,
        *,
        attempt_seconds: float = ATTEMPT_SECONDS,
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        if not members:
            raise ValueError("at least one controller address is needed")
        self._members = tuple(member.rstrip("/") for member in members)
        # A token must not be told on the way to a leader that is named without TLS, by whom ever.
        plain, encrypted = _SCHEMES["kafka" if members[0].startswith(_SCHEMES["kafka"]) else "http"]
        self._schemes = (encrypted,) if all(one.startswith(encrypted) for one in members) else (plain, encrypted)
        self._transport = transport
        self._rng = rng
        self._attempt_seconds = attempt_seconds
        self._call_seconds = call_seconds
        self._suspect = ("", 0.0)
        self._group_calls = 0
        self.leader = self._members[0]
        """The member that the next attempt goes to: the leader as far as is known."""

    async def register(self, broker_id: int, request: RegisterBrokerRequest) -> RegisterBrokerResponse:
        """It says which metadata versions this build knows, in the query, which earlier builds do not look at."""
        path = f"/v1/brokers/{broker_id}/register?metadata_version={LATEST}"
        return await self._call(path, request, RegisterBrokerResponse)

    async def heartbeat(
        self, broker_id: int, request: BrokerHeartbeatRequest, reserve_ids: int | None = None
    ) -> BrokerHeartbeatResponse:
        """`reserve_ids`: how many IDs are at hand. It goes along in the query, which earlier builds do not look at."""
        query = "" if reserve_ids is None else f"?reserve_ids={reserve_ids}"
        return await self._call(f"/v1/brokers/{broker_id}/heartbeat{query}", request, BrokerHeartbeatResponse)

    async def unregister(self, broker_id: int, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
        return await self._call(f"/v1/brokers/{broker_id}/unregister", request, UnregisterBrokerResponse)

    async def allocate(self, request: AllocateProducerIdsRequest, blocks: int = 1) -> AllocateProducerIdsResponse:
        """`blocks`: how many are asked for, at most MAX_BLOCKS_AT_ONCE. In the query, so earlier builds give one.

        Once an attempt was given up on, one is asked for: a late answer's blocks are lost, and a quorum that is slow
        would give as many to each attempt, and so be slower still.
        """
        path = "/v1/producer-ids/allocate"
        query = "" if blocks == 1 else f"?blocks={blocks}"
        return await self._call(path + query, request, AllocateProducerIdsResponse, once_late=path)

    async def brokers(self) -> BrokersResponse:
        return await self._call("/v1/brokers", None, BrokersResponse)

    async def init_producer_id(self, attempt: Callable[[], TransactionalInitRequest]) -> InitOutcome:
        """Likewise, but a refusal is returned, not raised."""
        answer, attempts = await self._ask(
            "/v1/transactions/init-producer-id", lambda: msgspec.json.encode(attempt()), InitProducerIdResponse
        )
        refused = isinstance(answer, RequestError) and answer.code in _UNKNOWN_OUTCOMES
        return InitOutcome(answer, certain=attempts == 1 and not refused)

    async def add_partitions_to_txn(self, attempt: Callable[[], AddPartitionsToTxnRequest]) -> TransactionResponse:
        """`attempt` makes the request of each attempt, or raises RequestError to end the call."""
        return await self._call_anew("/v1/transactions/add-partitions", attempt, TransactionResponse)

    async def end_txn(self, attempt: Callable[[], EndTxnRequest]) -> TransactionResponse:
        """Likewise."""
        return await self._call_anew("/v1/transactions/end", attempt, TransactionResponse)

    async def commit_object(self, request: CommitObjectRequest) -> CommitObjectResponse:
        return await self._call("/v1/objects/commit", request, CommitObjectResponse)

    async def read_logs(self, request: ReadLogsRequest) -> ReadLogsResponse:
        return await self._call("/v1/logs/read", request, ReadLogsResponse)

    async def watch_logs(self, request: WatchLogsRequest) -> WatchLogsResponse:
        """An attempt has the time that is waited beside its own, and so has the call."""
        wait_seconds = request.wait_ms / 1000
        return await self._call("/v1/logs/watch", request, WatchLogsResponse, wait_seconds=wait_seconds)

    async def find_offsets(self, request: FindOffsetsRequest) -> FindOffsetsResponse:
        return await self._call("/v1/logs/offsets", request, FindOffsetsResponse)

    async def create_topic(self, request: CreateTopicRequest) -> TopicDescription:
        return await self._call("/v1/topics/create", request, TopicDescription)

    async def delete_topic(self, request: DeleteTopicRequest) -> DeleteTopicResponse:
        return await self._call("/v1/topics/delete", request, DeleteTopicResponse)

    async def find_topics(self, request: FindTopicsRequest) -> TopicsPage:
        return await self._call("/v1/topics/find", request, TopicsPage)

    async def topics(self, after: str, limit: int) -> TopicsPage:
        """Those above the name `after`; the empty one is below all."""
        # A topic's name needs no quoting: letters, digits, dots, underlines and hyphens.
        return await self._call(f"/v1/topics?after={after}&limit={limit}", None, TopicsPage)

    async def find_rolls(self, request: FindRollsRequest) -> FindRollsResponse:
        return await self._call("/v1/logs/rolls", request, FindRollsResponse)

    async def commit_segment(self, request: CommitSegmentRequest) -> CommitSegmentResponse:
        return await self._call("/v1/segments/commit", request, CommitSegmentResponse)

    async def delete_records(self, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        return await self._call("/v1/logs/delete-records", request, DeleteRecordsResponse)

    async def find_garbage(self, request: FindGarbageRequest) -> FindGarbageResponse:
        return await self._call("/v1/objects/garbage", request, FindGarbageResponse)

    async def objects_deleted(self, request: ObjectsDeletedRequest) -> ObjectsDeletedResponse:
        return await self._call("/v1/objects/deleted", request, ObjectsDeletedResponse)

    async def check_objects(self, request: CheckObjectsRequest) -> CheckObjectsResponse:
        return await self._call("/v1/objects/check", request, CheckObjectsResponse)

    async def kept_objects(self, after: int, limit: int) -> KeptObjectsPage:
        """Those whose keys are above `after`; -1 is below all."""
        return await self._call(f"/v1/objects?after={after}&limit={limit}", None, KeptObjectsPage)

    async def find_group(self, request: FindGroupRequest) -> FindGroupResponse:
        with self._group_call():
            return await self._call("/v1/groups/find", request, FindGroupResponse)

    async def commit_group(self, request: CommitGroupRequest) -> CommitGroupResponse:
        with self._group_call():
            return await self._call("/v1/groups/commit", request, CommitGroupResponse)

    async def commit_offsets(self, attempt: Callable[[], CommitOffsetsRequest]) -> CommitOffsetsResponse:
        """`attempt` makes the request of each attempt, or raises RequestError to end the call."""
        with self._group_call():
            return await self._call_anew("/v1/groups/offsets/commit", attempt, CommitOffsetsResponse)

    async def fetch_offsets(self, request: FetchOffsetsRequest) -> OffsetsPage:
        with self._group_call():
            return await self._call("/v1/groups/offsets/fetch", request, OffsetsPage)

    async def delete_group(self, request: DeleteGroupRequest) -> DeleteGroupResponse:
        with self._group_call():
            return await self._call("/v1/groups/delete", request, DeleteGroupResponse)

    async def delete_offsets(self, request: DeleteOffsetsRequest) -> DeleteOffsetsResponse:
        with self._group_call():
            return await self._call("/v1/groups/offsets/delete", request, DeleteOffsetsResponse)

    async def groups(self, after: str | None, limit: int) -> GroupsPage:
        """Those whose ids are above `after`; None is below all."""
        # Unlike a topic's name, a group's id may be any text.
        above = "" if after is None else f"after={quote(after, safe='')}&"
        with self._group_call():
            return await self._call(f"/v1/groups?{above}limit={limit}", None, GroupsPage)

    @contextlib.contextmanager
    def _group_call(self) -> Iterator[None]:
        """One of MAX_GROUP_CALLS. Raises RequestError."""
        if self._group_calls >= MAX_GROUP_CALLS:
            detail = f"{MAX_GROUP_CALLS} calls about consumer groups are under way here already"
            raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, detail)
        self._group_calls += 1
        try:
            yield
        finally:
            self._group_calls -= 1

    async def _call(
        self,
        path: str,
        request: msgspec.Struct | None,
        response_type: type[_Response],
        once_late: str | None = None,
        wait_seconds: float = 0.0,
    ) -> _Response:
        body = None if request is None else msgspec.json.encode(request)
        return _unless_refused(await self._ask(path, lambda: body, response_type, once_late, wait_seconds))

    async def _call_anew(
        self, path: str, attempt: Callable[[], msgspec.Struct], response_type: type[_Response]
    ) -> _Response:
        return _unless_refused(await self._ask(path, lambda: msgspec.json.encode(attempt()), response_type))

    async def _ask(
        self,
        path: str,
        body: Callable[[], bytes | None],
        response_type: type[_Response],
        once_late: str | None = None,
        wait_seconds: float = 0.0,
    ) -> tuple[_Response | RequestError, int]:
        """The answer or refusal, and how many attempts were begun. `body` is that of one attempt; without it a GET.

        `once_late`: the path from then on when an attempt has timed out, if it is another one. `wait_seconds`: how
        long the member may wait of its own accord.
        """
        last_failure = "no attempt was answered"
        attempt_seconds = self._attempt_seconds
        attempt = 0
        # Whether a leader that is named may be asked at once: two members that name each other are not asked in a row.
        rested = True
        try:
            async with asyncio.timeout(self._call_seconds + wait_seconds):
                while True:
                    member = self.leader
                    try:
                        seconds = attempt_seconds + wait_seconds
                        return await self._attempt(member, path, body(), response_type, seconds), attempt + 1
                    except RequestError as refusal:
                        return refusal, attempt + 1
                    except _TryNextError as failure:
                        last_failure = f"{member}: {failure}"
                        _log.debug("%s %s", path, last_failure)
                        if failure.timed_out:
                            attempt_seconds *= 2
                            path = once_late or path
                            self._suspect = (member, asyncio.get_running_loop().time() + SUSPECT_SECONDS)
                        rested = not (self._move_on(member, failure.leader) and rested)
                    attempt += 1
                    if rested:
                        await asyncio.sleep(
                            backoff_seconds(attempt, self._rng, base=BACKOFF_BASE_SECONDS, maximum=BACKOFF_MAX_SECONDS)
                        )
        except TimeoutError:
            detail = f"{path}: no leader answered within {self._call_seconds + wait_seconds} s; last: {last_failure}"
            return RequestError(ErrorCode.REQUEST_TIMED_OUT, detail), attempt + 1

    def _move_on(self, failed: str, named_leader: str | None) -> bool:
        """Choose the member to ask after `failed` did not serve; returns whether there is reason to hope for it.

        Calls run side by side: where another one has moved on already, its choice stands.
        """
        if self.leader != failed:
            return True
        if named_leader is not None and named_leader != failed and not self._is_suspect(named_leader):
            self.leader = named_leader
            return True
        known = self._members.index(failed) if failed in self._members else -1
        following = [*self._members[known + 1 :], *self._members[: known + 1]]
        self.leader = next((member for member in following if not self._is_suspect(member)), following[0])
        return False

    def _is_suspect(self, member: str) -> bool:
        """Whether `member` has just let a request time out: its followers name it until they miss it themselves."""
        suspect, until = self._suspect
        return member == suspect and asyncio.get_running_loop().time() < until

    async def _attempt(
        self, member: str, path: str, body: bytes | None, response_type: type[_Response], seconds: float
    ) -> _Response:
        method = "GET" if body is None else "POST"
        try:
            status, content = await self._transport.exchange(method, member, path, body, seconds)
        except TimeoutError:
            raise _TryNextError(f"no answer within {seconds} s", timed_out=True) from None
        except (OSError, ValueError) as error:
            raise _TryNextError(str(error) or type(error).__name__) from None
        if status == ErrorCode.NONE.http_status:
            try:
                return msgspec.json.decode(content, type=response_type)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise _TryNextError(f"unreadable answer: {error}") from None
        raise _problem(status, content, self._schemes)


class _TryNextError(Exception):
    """This member did not serve the request; another one may. `leader`: whom it named, if anyone."""

    def __init__(self, reason: str, leader: str | None = None, *, timed_out: bool = False) -> None:
        super().__init__(reason)
        self.leader = leader
        self.timed_out = timed_out


def _unless_refused(asked: tuple[_Response | RequestError, int]) -> _Response:
    answer, _ = asked
    if isinstance(answer, RequestError):
        raise answer
    return answer


def _problem(status: int, content: bytes, schemes: tuple[str, ...]) -> RequestError | _TryNextError:
    """What to raise for an answer that is not a success."""
    try:
        problem = msgspec.json.decode(content, type=Problem)
        code = ErrorCode[problem.code]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
        return _TryNextError(f"HTTP {status} without a problem document")
    if code in _RETRIED_ELSEWHERE:
        return _TryNextError(f"{code.name}: {problem.detail}", _safe_url(problem.leader, schemes))
    return RequestError(code, problem.detail, throttle_time_ms=max(0, problem.throttle_time_ms))


def _safe_url(url: str | None, schemes: tuple[str, ...]) -> str | None:
    if url is None or len(url) > MAX_URL_CHARACTERS or not url.startswith(schemes):
        return None
    return url.rstrip("/")
