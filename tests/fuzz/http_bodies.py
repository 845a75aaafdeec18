"""HTTP calls at the real applications over loopback, made from what their /openapi.json says.

An input is a line `METHOD path content-type` and a body. The length of the body is always told truly: a lie about it
only makes the server wait. The answer must have a status that the document names for the call, and never 500; a call
that was refused must have changed nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import re
import uuid
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import msgspec

from pidkeeper.broker_agent.api.app import build_app as build_agent_app
from pidkeeper.broker_agent.ids.prefetch import PrefetchSettings
from pidkeeper.controller.api.app import build_app
from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.controller.migration.znode import ZnodeBlock, encode
from pidkeeper.controller.migration.zookeeper import Znode
from pidkeeper.controller.node.group_views import find_group
from pidkeeper.controller.state.groups.state import GroupsState
from pidkeeper.controller.state.logs.state import LogsState
from pidkeeper.controller.state.migration import MigrationState
from pidkeeper.controller.state.transactions import TransactionsState
from pidkeeper.controller.state.transitions import TransactionStatus
from pidkeeper.protocol.groups import OffsetsRecord, PartitionOffset, TopicOffsets
from pidkeeper.protocol.ids import ProducerIdBlock
from pidkeeper.protocol.logs import TopicRecord
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.protocol.migration import MigrationPhase, MigrationRecord
from pidkeeper.protocol.records import MAX_MEMBERS
from pidkeeper.protocol.transactions import TopicPartitions, TransactionRecord
from pidkeeper.service.access import Access
from pidkeeper.service.app import App
from pidkeeper.service.kafka.listener import KafkaListener
from pidkeeper.service.server import HttpServer
from pidkeeper.service.throttle import Rate
from tests.fuzz.kafka_requests import Granting
from tests.fuzz.mutator import Parts
from tests.fuzz.quorum_member import LEARNER, ChangingMember
from tests.fuzz.target import Target, Violation
from tests.support.memory_member import FOUNDING_ID, QUORUM_NAME, STORE_ID
from tests.support.whole_agent import make_agent

JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"

_ANSWER_SECONDS: Final = 10.0
"""An answer takes a millisecond; one that does not come at all is a violation."""

_ROUTER_STATUSES: Final = frozenset({400, 404, 405})
"""Answers to what is no call of the document: malformed HTTP, an unknown path, another method."""

_PRODUCER: Final = {
    "broker_id": 7,
    "broker_epoch": 0,
    "transactional_id": "open",
    "producer_id": 8,
    "producer_epoch": 0,
}
_IDLE: Final = TransactionRecord("tx", 7, 0, -1, -1, 1000, TransactionStatus.EMPTY, 0)
_OPEN: Final = TransactionRecord(
    "open", 8, 0, -1, -1, 1000, TransactionStatus.ONGOING, 0, (TopicPartitions("t", (0, 3)),), 0
)
_BROKER: Final = {"broker_id": 7, "broker_epoch": 0}
_NEW_TOPIC: Final = {"topic_id": str(uuid.UUID(int=4)), "name": "new", "partitions": 2, "retention_ms": 1000}
_TOPICS: Final = ((0, "known"), (2, "doomed"))
"""The first log of each topic that there is."""
_VALID: Final[dict[str, dict[str, Any]]] = {
    "/v1/transactions/init-producer-id": {
        **_PRODUCER,
        "transactional_id": "tx",
        "producer_id": 7,
        "transaction_timeout_ms": 1000,
        "candidate": 9,
    },
    "/v1/transactions/add-partitions": {**_PRODUCER, "topics": [{"topic": "t", "partitions": [1, 2**31 - 1]}]},
    "/v1/transactions/end": {**_PRODUCER, "committed": False},
    "/v1/transactions/abort": {"transactional_id": "open"},
    "/v1/migration/zookeeper/finalize": {"agreed": True},
    "/v1/topics": _NEW_TOPIC,
    "/v1/topics/create": {**_NEW_TOPIC, "name": "of-7", "topic_id": str(uuid.UUID(int=5)), **_BROKER},
    "/v1/topics/delete": {"name": "doomed", **_BROKER},
    "/v1/topics/find": {"names": ["known", "unknown"]},
    "/v1/objects/commit": {
        **_BROKER,
        "founding_id": str(FOUNDING_ID),
        "number": 0,
        "size": 161,
        "batches": [[0, 1, 0, 80, -1, -1, -1, 5, False], [1, 3, 81, 80, 8, 0, 0, 5, False]],
    },
    "/v1/logs/read": {"logs": [[0, 0, 1000], [9, 1, 0]], "committed": True, "confirmed": True},
    "/v1/logs/watch": {"logs": [[0, 5, 5]], "wait_ms": 0},
    "/v1/logs/offsets": {"logs": [[0, -1], [0, 5]], "committed": True},
    "/v1/logs/rolls": {"limit": 5},
    "/v1/logs/delete-records": {**_BROKER, "logs": [[0, -1], [9, 0]]},
    "/v1/segments/commit": {
        **_BROKER,
        "founding_id": str(FOUNDING_ID),
        "number": 0,
        "log": 0,
        "name": ["known", 0, 0],
        "end_offset": 1,
        "size": 80,
        "index_size": 10,
        "max_timestamp": 5,
        "replaces": 1,
    },
    "/v1/objects/garbage": {"limit": 5},
    "/v1/objects/deleted": {**_BROKER, "keys": [0, 9]},
    "/v1/objects/check": {"founding_id": str(FOUNDING_ID), "segments": False, "objects": [[7, 0, 0]]},
    "/v1/groups/find": {"group_id": "g"},
    "/v1/groups/commit": {
        **_BROKER,
        "group_id": "g",
        "after": -1,
        "generation": 0,
        "protocol_type": "consumer",
        "members": [["m", None, "c", "h"], ["n", "i", "", ""]],
    },
    "/v1/groups/offsets/commit": {
        **_BROKER,
        "group_id": "simple",
        "topics": [["known", [[0, 5, -1, ""], [7, 0, 3, "meta"]]]],
        "generation": -1,
        "member_id": "",
        "instance_id": None,
        "transaction": None,
    },
    "/v1/groups/offsets/fetch": {
        "group_id": "kept",
        "topics": [["known", [0, 1, 9]]],
        "require_stable": True,
        "after": ["known", 0],
    },
    "/v1/groups/delete": {**_BROKER, "group_id": "kept"},
    "/v1/groups/offsets/delete": {**_BROKER, "group_id": "kept", "topics": [["known", [0, 1]]]},
    "/v1/groups/offsets/reset": {"group_id": "kept", "topics": [["known", [[1, 5, -1, ""]]]]},
    "/v1/groups/offsets/forget": {"group_id": "kept", "topics": [["known", [0]]]},
    "/v1/objects/release": {"foundings": [str(FOUNDING_ID)]},
}
"""A valid body of each call that a transaction, a topic or a group needs, or the end of the migration."""

_QUERIES: Final = {
    "/v1/producer-ids/blocks": "?after=-1&limit=10",
    "/v1/transactions": "?after=&limit=10&state=Empty&producer_id=7",
    "/v1/transactions/describe": "?transactional_id=tx",
    "/v1/topics": "?after=&limit=10",
    "/v1/objects": "?after=-1&limit=10",
    "DELETE /v1/topics": "?name=doomed",
    "/v1/groups": "?after=a&limit=10",
    "DELETE /v1/groups": "?group=kept",
    "/v1/groups/describe": "?group=kept",
    "/v1/groups/offsets": "?group=kept&after_topic=known&after_partition=0&limit=10",
    "/v1/topics/describe": "?name=known&after=-1&limit=10",
}

_MALFORMED: Final = re.compile(rb"[^ -~]|^ |  |^[^ ]*[^A-Z ]")
_MAX_LINE: Final = 4000
"""aiohttp refuses a line with a control character, an empty part or above 8190 bytes before any call is known."""

_EVIL: Final[tuple[Any, ...]] = (
    None,
    True,
    -1,
    2**31,
    2**63,
    2**64,
    10**400,
    -(2**63) - 1,
    1.5,
    1e308,
    "",
    "0",
    "\ud800",
    "\x00" * 65,
    "é" * 250,
    # Host and port, and with brackets around the host longer than an address may be.
    "a:" * 131 + "1",
    [],
    {},
    {"a": {"a": [1]}},
    [[[[]]]],
    [0] * 2000,
)
_RAW: Final = (
    b"",
    b"null",
    b"[]",
    b'"',
    b"{",
    b"\xff\xfe",
    b"\xef\xbb\xbf{}",
    b"1e999",
    b"{" * 5000,
    b"[" * 60_000,
    b"NaN",
)


class Refused(Exception):  # noqa: N818 - the answer of the server
    """A status of 400 or above that the document names."""


class _HttpTarget(Target):
    """Serves one application and sends it one call at a time over one connection."""

    refusals = (Refused,)
    steps = 40_000
    steps_per_byte = 20

    def __init__(self) -> None:
        logging.getLogger("aiohttp").setLevel(logging.CRITICAL)
        logging.getLogger("pidkeeper").setLevel(logging.CRITICAL)
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._note_fault)
        self._faults: list[str] = []
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._port = self._loop.run_until_complete(self._serve())
        _, body = self._loop.run_until_complete(self._exchange("GET", b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"))
        self._document = json.loads(body)
        self._calls = {
            (method.upper(), path): frozenset(int(status) for status in operation["responses"])
            for path, operations in self._document["paths"].items()
            for method, operation in operations.items()
        }
        self._patterns = [
            (re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)).encode()), path) for _, path in self._calls
        ]
        self.corpus: list[Parts] = [
            (f"{method} {_filled(method, path)} {media}".encode(), body)
            for method, path in self._calls
            for media, body in self._bodies(method, path)
        ]

    def assemble(self, parts: Parts) -> bytes:
        """The line of the call, and the body."""
        return parts[0].replace(b"\n", b" ") + b"\n" + b"".join(parts[1:])

    def feed(self, data: bytes) -> None:
        line, _, body = data.partition(b"\n")
        method, path, media = [*line.replace(b"\r", b"").split(b" "), b"", b"", b""][:3]
        head = b"%b %b HTTP/1.1\r\nHost: x\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
        before = self._state()
        request = head % (method, path, media, len(body)) + body
        status, answer = self._loop.run_until_complete(self._exchange(method.decode("latin-1"), request))
        malformed = _MALFORMED.search(line) is not None or len(line) > _MAX_LINE
        if status not in self._allowed(method.decode("latin-1"), path) and not (malformed and status == 400):
            raise Violation(
                f"{line[:200]!r} was answered {status}, which its description does not name: {answer[:300]!r}"
            )
        if self._faults:
            raise Violation(f"{line[:200]!r}: {self._faults.pop()}")
        if status >= 400:
            if self._state() != before:
                raise Violation(f"{line[:200]!r} was refused with {status} and changed {before} to {self._state()}")
            raise Refused(f"{status} {_detail(answer)}")
        self._renew()

    def calls(self) -> set[tuple[str, str]]:
        """Method and path of every call of the document."""
        return set(self._calls)

    def template_of(self, line: bytes) -> tuple[str, str]:
        """The call of the document that a line of the corpus is made from."""
        method, path, _ = line.split(b" ")
        name = path.partition(b"?")[0]
        return method.decode(), next(template for pattern, template in self._patterns if pattern.fullmatch(name))

    def close(self) -> None:
        self._hang_up()
        self._loop.run_until_complete(self._server.stop(0.0))
        self._loop.close()

    @abstractmethod
    def _app(self) -> App:
        """The application; called once."""

    @abstractmethod
    def _state(self) -> Any:
        """What a refused call may not change."""

    def _renew(self) -> None:
        """Make the state small again, so that a long run does not grow it."""

    def _note_fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._faults.append(f"{context['message']}: {context.get('exception')!r}")

    async def _serve(self) -> int:
        self._server = HttpServer(self._app())
        return (await self._server.start("127.0.0.1", 0))[1]

    async def _exchange(self, method: str, request: bytes) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                if self._writer is None:
                    self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
                assert self._reader is not None
                self._writer.write(request)
                return await self._answer(self._reader, method)
        except TimeoutError:
            raise Violation(f"no answer to {request[:200]!r}") from None

    async def _answer(self, reader: asyncio.StreamReader, method: str) -> tuple[int, bytes]:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            status = int(head.split(b" ", 2)[1])
            length = re.search(rb"content-length: (\d+)", head)
            body = await reader.readexactly(int(length[1])) if length and method != "HEAD" else b""
        except (asyncio.IncompleteReadError, ConnectionError):
            # Malformed HTTP may be cut off unanswered.
            self._hang_up()
            return 400, b""
        if b"connection: close" in head or method not in {"GET", "POST"} or status == 400:
            # After malformed HTTP the rest of the bytes may be answered as another call.
            self._hang_up()
        return status, body

    def _hang_up(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None

    def _allowed(self, method: str, path: bytes) -> frozenset[int]:
        name = unquote_to_bytes(path.partition(b"?")[0].partition(b"#")[0])
        for pattern, template in self._patterns:
            if pattern.fullmatch(name) and (method, template) in self._calls:
                # A mutated path may still be malformed HTTP, or name a character that no route takes.
                return (self._calls[method, template] | {404}) - {500}
        return frozenset().union(_ROUTER_STATUSES, *self._calls.values()) - {500}

    def _bodies(self, method: str, path: str) -> Iterator[tuple[str, bytes]]:
        wanted = self._document["paths"][path][method.lower()].get("requestBody")
        if wanted is None:
            yield from [(JSON, b"")] * 20
            return
        schema = self._schema(wanted["content"][JSON]["schema"])
        for value in _values(self, schema):
            yield JSON, json.dumps(value).encode()
            packed = _packed(value)
            if packed is not None:
                yield MSGPACK, packed
        for raw in _RAW:
            yield JSON, raw
            yield MSGPACK, raw
        yield "text/plain", b"{}"

    def _schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        name = schema.get("$ref", "").rpartition("/")[2]
        return dict(self._document["components"]["schemas"][name]) if name else schema


def _values(target: _HttpTarget, schema: dict[str, Any]) -> Iterator[Any]:
    """Valid objects of the schema, often enough to be drawn, then one wrong thing at a time."""
    properties: dict[str, Any] = schema["properties"]
    valid = {name: _example(field) for name, field in properties.items()}
    yield from [valid] * 20
    yield from [{name: valid[name] for name in schema.get("required", ())}] * 20
    yield {**valid, "unknown": 1}
    for name, evil in itertools.product(valid, _EVIL):
        yield {**valid, name: evil}
    for name in valid:
        yield {key: value for key, value in valid.items() if key != name}
    yield from ([valid], valid | {name.upper(): 1 for name in valid}, list(valid.values()))


def _example(field: dict[str, Any]) -> Any:
    kinds = field.get("anyOf", [field])
    kind = next((one for one in kinds if one.get("type") != "null"), kinds[0])
    if "default" in field:
        return field["default"]
    return "memory-cluster" if kind.get("type") == "string" else kind.get("minimum", 1)


def _packed(value: Any) -> bytes | None:
    try:
        return msgspec.msgpack.encode(value)
    except (OverflowError, UnicodeEncodeError):
        return None


def _filled(method: str, path: str) -> str:
    query = _QUERIES.get(f"{method} {path}", _QUERIES.get(path, ""))
    path = path.replace("livez/{check}", "livez/loop").replace("readyz/{check}", "readyz/leader")
    return re.sub(r"\{\w+\}", "7", path) + query


def _detail(answer: bytes) -> str:
    found = re.search(rb'"code":"(\w+)"', answer)
    return found[1].decode() if found else ""


class ControllerHttpTarget(_HttpTarget):
    """The controller's interface in front of a member in memory, with limits out of reach."""

    name = "controller_http"

    def _app(self) -> App:
        self._member = ChangingMember()
        self._begin()
        rate = Rate(1e6, 10_000_000)
        limits = ApiLimits(
            broker_allocations=rate,
            cluster_allocations=rate,
            broker_sessions=rate,
            cluster_sessions=rate,
            broker_transactional_inits=rate,
            cluster_transactional_inits=rate,
            broker_transactions=rate,
            cluster_transactions=rate,
            broker_commits=rate,
            cluster_commits=rate,
            broker_reads=rate,
            cluster_reads=rate,
        )
        return build_app(self._member, limits=limits)

    def _state(self) -> Any:
        member = self._member
        # The one refusal that changes something, the fence of a transaction under way, leaves these as they are.
        transactions = [
            (record.transactional_id, record.producer_id, record.partition_bytes)
            for record in member.machine.transactions.all()
        ]
        return (
            member.next_id,
            len(member.history),
            dict(member.epochs),
            len(member.transfers),
            member.quorum(),
            transactions,
            member.machine.migration.phase,
            member.znode.now,
            [topic.name for topic in member.log_machine.logs.topics.all()],
            member.log_machine.logs.rows,
            [find_group(member.log_machine.groups, one.group_id) for one in member.log_machine.groups.after(None, 100)],
        )

    def _bodies(self, method: str, path: str) -> Iterator[tuple[str, bytes]]:
        yield from super()._bodies(method, path)
        if (valid := _VALID.get(path)) is not None:
            for value in [valid] * 60 + [{**valid, name: evil} for name, evil in itertools.product(valid, _EVIL)]:
                yield JSON, json.dumps(value).encode()
                if (packed := _packed(value)) is not None:
                    yield MSGPACK, packed
        if path == "/v1/quorum/found":
            yield JSON, json.dumps({"founding_id": str(uuid.UUID(int=7)), "voters": [1, 2, 3]}).encode()
            succession = {"predecessor": str(uuid.UUID(int=8)), "floor": 5000}
            wanted = {"founding_id": str(uuid.UUID(int=7)), "voters": [1, 2, 3], "succession": succession}
            yield JSON, json.dumps(wanted).encode()
            yield JSON, json.dumps({**wanted, "force": True}).encode()
        if path == "/v1/quorum/evidence/dismiss":
            yield JSON, json.dumps({"broker_id": 7}).encode()
        if path == "/v1/quorum/voters":
            new = {"id": 9, "peer": "127.0.0.1:9009", "http": "http://127.0.0.1:8009", "directory_id": "directory-9"}
            known = {"id": LEARNER.id, "peer": LEARNER.peer, "http": LEARNER.http}
            for value in [new, known] * 60:
                yield JSON, json.dumps(value).encode()
                yield MSGPACK, msgspec.msgpack.encode(value)
            for name, evil in itertools.product(new, _EVIL * 5):
                yield JSON, json.dumps({**new, name: evil}).encode()

    def _renew(self) -> None:
        member = self._member
        try:
            member.check_quorum()
        except ValueError as error:
            raise Violation(f"a change was taken that stops its members: {error}") from error
        if len(member.core.membership.members) > MAX_MEMBERS:
            raise Violation(f"{len(member.core.membership.members)} members")
        member.renew_quorum()
        self._begin()

    def _begin(self) -> None:
        member = self._member
        for grown in (member.history, member.submitted, member.transfers):
            grown.clear()
        member.history.append(AllocatedBlock(0, 999, 7, 0, 1, 1_700_000_000_000))
        member.next_id = 1000
        member.epochs = {0: 0, 7: 0}
        member.machine.transactions = TransactionsState([_IDLE, _OPEN])
        # Every order can be taken, and nothing goes on by itself.
        member.machine.migration = MigrationState(MigrationRecord(MigrationPhase.DUAL_WRITE, QUORUM_NAME, -1, 0))
        member.znode.now = Znode(encode(ZnodeBlock(-1, 0, 999, QUORUM_NAME)), 0)
        member.steps_wait = True
        member.log_machine.logs = LogsState()
        member.log_machine.logs.pin(STORE_ID, "the target")
        topics = [TopicRecord(uuid.UUID(int=1 + first), name, 2, first, -1, -1, 0) for first, name in _TOPICS]
        member.log_machine.replay(topics)
        member.log_machine.groups = GroupsState()
        kept = TopicOffsets("known", (PartitionOffset(0, 5, -1, ""), PartitionOffset(1, 7, -1, "meta")))
        member.log_machine.replay([OffsetsRecord("kept", -1, -1, (kept,), 0)])


class AgentHttpTarget(_HttpTarget):
    """The agent's interface in front of an agent with a block."""

    name = "agent_http"

    def _app(self) -> App:
        client: Any = Granting()
        self._agent = make_agent(client, settings=PrefetchSettings(min_blocks=1))
        session = self._agent.session
        session.broker_epoch, session.cluster_id = 5, "memory-cluster"
        self._agent.reserve.offer(ProducerIdBlock(0, 2**40))
        return build_agent_app(self._agent, KafkaListener(Access.PRODUCER))

    def _state(self) -> Any:
        return self._agent.reserve.claimed, self._agent.reserve.remaining
