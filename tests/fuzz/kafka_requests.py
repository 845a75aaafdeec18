"""Kafka requests at the agent's responder, twice: at a new one, and at one that remembers frames of inputs before.

Both must give the same bytes, one answer for each frame, with its correlation id. IDs leave the reserve for frames of
InitProducerId alone. Behind the responder are controllers that grant whatever reaches them.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

import msgspec

from pidkeeper.broker_agent.controllers.client import InitOutcome
from pidkeeper.broker_agent.coordinator.directory import Directory, Node
from pidkeeper.broker_agent.coordinator.late_requests import LateRequests
from pidkeeper.broker_agent.coordinator.transactions import Transactions
from pidkeeper.broker_agent.ids.candidates import Candidates
from pidkeeper.broker_agent.ids.reserve import BlockReserve
from pidkeeper.broker_agent.kafka.dispatch import TransactionalCall
from pidkeeper.broker_agent.kafka.responder import KafkaResponder
from pidkeeper.broker_agent.kafka.transaction_responder import TransactionResponder
from pidkeeper.protocol.ids import ProducerIdBlock
from pidkeeper.protocol.messages import (
    AddPartitionsToTxnRequest,
    BrokerDescription,
    EndTxnRequest,
    InitProducerIdResponse,
    TransactionalInitRequest,
    TransactionResponse,
)
from pidkeeper.service.kafka.wire.primitives import WireError, array, int16, int32, int64, string, tags
from pidkeeper.service.kafka.wire.versions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    API_VERSIONS,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    METADATA,
)
from tests.fuzz.mutator import Parts
from tests.fuzz.target import Target, Violation

_FIRST_ID: Final = 5000
_IDS: Final = 100
_MAX_CALLS: Final = 64 * 1024 // 8
"""Every call but the last uses up a frame, and a frame takes 8 bytes at least."""


class Granting:
    """Controllers that grant everything, and give every transactional id the candidate. Raises Violation for a request
    that no controller takes."""

    leader = "http://127.0.0.1:1"

    async def init_producer_id(self, attempt: Callable[[], TransactionalInitRequest]) -> InitOutcome:
        request = attempt()
        _check(request)
        return InitOutcome(InitProducerIdResponse(0, request.candidate, 0), certain=True)

    async def add_partitions_to_txn(self, attempt: Callable[[], AddPartitionsToTxnRequest]) -> TransactionResponse:
        _check(attempt())
        return TransactionResponse(0)

    async def end_txn(self, attempt: Callable[[], EndTxnRequest]) -> TransactionResponse:
        _check(attempt())
        return TransactionResponse(0)


def _check(request: Any) -> None:
    try:
        msgspec.convert(msgspec.to_builtins(request), type(request))
    except msgspec.ValidationError as error:
        raise Violation(f"the controllers would not take {request}: {error}") from None
    if not 1 <= len(request.transactional_id) <= 249:
        raise Violation(f"{len(request.transactional_id)} characters were put to the controllers")


class _Reserve:
    """A block reserve that can be exchanged under a responder."""

    def __init__(self) -> None:
        self.now = _reserve()

    def claim(self) -> int:
        return self.now.claim()

    def claim_run(self, count: int) -> int:
        return self.now.claim_run(count)


class KafkaTarget(Target):
    """`KafkaResponder.respond`, called until it uses nothing more."""

    name = "kafka"
    refusals = (WireError,)
    steps = 4000
    steps_per_byte = 150

    def __init__(self) -> None:
        self._directory = Directory(Node(1, "127.0.0.1", 9092))
        self._directory.update([BrokerDescription(number, 1, False, f"agent-{number}:9092") for number in range(3)])
        self._shared = _Reserve()
        self._remembering = self._responder(self._shared)
        frames = [frame for version in range(14) for frame in _requests(version)]
        self.corpus: list[Parts] = [(frame,) for frame in frames]
        self.corpus += [(frame, frame) for frame in frames] + [tuple(frames[at : at + 5]) for at in range(len(frames))]

    def assemble(self, parts: Parts) -> bytes:
        """Every frame with its length in front."""
        return b"".join([len(part).to_bytes(4, "big") + part for part in parts])

    def feed(self, data: bytes) -> None:
        reserve = self._shared.now = _reserve()
        _, used, _ = remembered = _drain(self._remembering, reserve, data)
        if reserve.claimed != _ids_answered(data[:used], remembered[0], reserve):
            raise Violation(f"{reserve.claimed} IDs were claimed, which is not what was answered")
        fresh_reserve = _reserve()
        fresh = _drain(self._responder(fresh_reserve), fresh_reserve, data)
        if fresh[:2] != remembered[:2] or fresh_reserve.claimed != reserve.claimed:
            raise Violation(f"{remembered} from memory, but {fresh} afresh")
        if fresh[2] is not None:
            raise fresh[2]

    def _responder(self, reserve: Any) -> KafkaResponder:
        return KafkaResponder(reserve, self._directory, lambda: "cluster-a")


def _reserve() -> BlockReserve:
    reserve = BlockReserve()
    reserve.offer(ProducerIdBlock(_FIRST_ID, _IDS))
    return reserve


def _drain(responder: KafkaResponder, reserve: BlockReserve, data: bytes) -> tuple[bytes, int, WireError | None]:
    """All answers, the bytes used, and the refusal that ended it, if one did."""
    answers, used = b"", 0
    session, client = SimpleNamespace(broker_id=1, broker_epoch=5, metadata_version=1), Granting()
    candidates, late_requests = Candidates(reserve.claim), LateRequests(float)
    transactions = TransactionResponder(Transactions(session, client, candidates, late_requests, clock=float))  # type: ignore[arg-type]
    for _ in range(_MAX_CALLS):
        try:
            answer, count = responder.respond(data[used:])
        except WireError as error:
            return answers, used, error
        if count == 0:
            return answers, used, None
        if isinstance(answer, TransactionalCall):
            answer = _at_once(transactions, answer)
        assert isinstance(answer, bytes), "no records are kept here"
        answers, used = answers + answer, used + count
    raise Violation(f"{_MAX_CALLS} calls used {used} of {len(data)} bytes")


def _at_once(transactions: TransactionResponder, call: TransactionalCall) -> bytes:
    """The answer to `call`, which waits for nothing here."""
    running = transactions.answer(call)
    try:
        running.send(None)
    except StopIteration as end:
        return bytes(end.value)
    raise Violation(f"{call} waits")


def _split(data: bytes) -> list[bytes]:
    found = []
    while data:
        length = int.from_bytes(data[:4], "big")
        found.append(data[4 : 4 + length])
        data = data[4 + length :]
    return found


def _ids_answered(requests: bytes, answers: bytes, reserve: BlockReserve) -> int:
    """How many IDs the answers hold, which must rise one by one."""
    asked, answered = _split(requests), _split(answers)
    if [frame[4:8] for frame in asked] != [frame[:4] for frame in answered]:
        raise Violation(f"{len(asked)} requests, {len(answered)} answers or their correlation ids differ")
    expected = _FIRST_ID
    for request, answer in zip(asked, answered, strict=True):
        if int.from_bytes(request[:2], "big") == INIT_PRODUCER_ID:
            at = 9 if request[3] >= 2 else 8
            error, claimed = int.from_bytes(answer[at : at + 2], "big"), int.from_bytes(answer[at + 2 : at + 10], "big")
            if error == 0 and claimed != expected:
                raise Violation(f"ID {claimed} was answered where {expected} was next")
            expected += error == 0
    return expected - _FIRST_ID


def _requests(version: int) -> list[bytes]:
    """Valid requests of every API that has this version."""
    found = [_api_versions(version)] if version <= 5 else []
    found.append(_metadata(version))
    if version <= 6:
        found += [_find_coordinator(version, kind) for kind in (0, 1)]
    if version <= 5:
        found += [_init_producer_id(version, name) for name in (None, "", "transaction")]
    if version <= 3:
        found += [_add_partitions_to_txn(version), _add_offsets_to_txn(version)]
    if version <= 4:
        found.append(_end_txn(version))
    return found


def _header(key: int, version: int, *, flexible: bool) -> bytes:
    client = string("client", flexible=False)
    return int16(key) + int16(version) + int32(1000 + key) + client + tags(flexible=flexible)


def _api_versions(version: int) -> bytes:
    flexible = version >= 3
    body = string("librdkafka", flexible=True) + string("2.0", flexible=True) + b"\x00" if flexible else b""
    return _header(API_VERSIONS, version, flexible=flexible) + body


def _metadata(version: int) -> bytes:
    flexible = version >= 9
    topic = bytes(16) * (version >= 10) + string("topic", flexible=flexible) + tags(flexible=flexible)
    flags = b"\x01" * (version >= 4) + b"\x00" * (8 <= version <= 10) + b"\x00" * (version >= 8)
    topics = array([topic, topic], flexible=flexible)
    return _header(METADATA, version, flexible=flexible) + topics + flags + tags(flexible=flexible)


def _find_coordinator(version: int, kind: int) -> bytes:
    flexible = version >= 3
    key, key_type = string("name", flexible=flexible), bytes((kind,)) * (version >= 1)
    body = key_type + array([key, key], flexible=True) if version >= 4 else key + key_type
    return _header(FIND_COORDINATOR, version, flexible=flexible) + body + tags(flexible=flexible)


def _init_producer_id(version: int, name: str | None) -> bytes:
    flexible = version >= 2
    body = string(name, flexible=flexible) + int32(60_000)
    body += int64(-1) + int16(-1) if version >= 3 else b""
    return _header(INIT_PRODUCER_ID, version, flexible=flexible) + body + tags(flexible=flexible)


def _producer(*, flexible: bool) -> bytes:
    return string("transaction", flexible=flexible) + int64(77) + int16(3)


def _add_partitions_to_txn(version: int) -> bytes:
    flexible = version >= 3
    numbers = array([int32(number) for number in (0, 7)], flexible=flexible)
    topic = string("topic", flexible=flexible) + numbers + tags(flexible=flexible)
    body = _producer(flexible=flexible) + array([topic, topic], flexible=flexible) + tags(flexible=flexible)
    return _header(ADD_PARTITIONS_TO_TXN, version, flexible=flexible) + body


def _add_offsets_to_txn(version: int) -> bytes:
    flexible = version >= 3
    body = _producer(flexible=flexible) + string("group", flexible=flexible) + tags(flexible=flexible)
    return _header(ADD_OFFSETS_TO_TXN, version, flexible=flexible) + body


def _end_txn(version: int) -> bytes:
    flexible = version >= 3
    return (
        _header(END_TXN, version, flexible=flexible) + _producer(flexible=flexible) + b"\x01" + tags(flexible=flexible)
    )
