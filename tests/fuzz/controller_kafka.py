"""Kafka's protocol at a controller: every whole frame has one answer, and blocks leave the quorum for answers alone.

What is remembered of inputs before must be what is read of this one.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Any, Final

import msgspec

from pidkeeper.controller.api.app import build_app
from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.controller.kafka.application import ControllerApplication, KafkaCall
from pidkeeper.controller.kafka.broker_apis import KafkaCaller
from pidkeeper.controller.kafka.forwarding import Forwarding
from pidkeeper.protocol.messages import HeldIds
from pidkeeper.service.access import EVERY_ROLE, Principal
from pidkeeper.service.exchange import never
from pidkeeper.service.kafka.wire import (
    allocate_producer_ids,
    broker_heartbeat,
    broker_registration,
    own_call,
    sasl,
)
from pidkeeper.service.kafka.wire.own_call import OwnCall
from pidkeeper.service.kafka.wire.own_field import Asked, read_answered, tagged
from pidkeeper.service.kafka.wire.primitives import Reader, WireError, array, int16, int32, int64, string, tags
from pidkeeper.service.kafka.wire.versions import (
    ALLOCATE_PRODUCER_IDS,
    API_VERSIONS,
    BROKER_HEARTBEAT,
    BROKER_REGISTRATION,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from pidkeeper.service.throttle import Rate
from tests.fuzz.mutator import Parts
from tests.fuzz.target import Target, Violation
from tests.support.memory_member import CLUSTER_ID, MemoryMember
from tests.support.sharing import sharing

_EPOCH: Final = 5
_BLOCK: Final = 1000
_EVERY_RATE: Final = Rate(1e6, 1_000_000)
_INCARNATION: Final = uuid.UUID(int=3)
_ASKED: Final = tagged(Asked("h:1", HeldIds(_INCARNATION, 9), 7, CLUSTER_ID, 3))


class ControllerKafkaTarget(Target):
    """`ControllerApplication`, in front of a member in memory that serves HTTP too."""

    name = "controller_kafka"
    refusals = (WireError,)
    steps = 4000
    steps_per_byte = 150

    def __init__(self) -> None:
        logging.getLogger("pidkeeper").setLevel(logging.CRITICAL)
        self._loop = asyncio.new_event_loop()
        self._member = MemoryMember()
        rates: Any = {name: _EVERY_RATE for name in ApiLimits.__struct_fields__ if name[:2] in {"br", "cl"}}
        app = build_app(self._member, limits=ApiLimits(**rates), shared=sharing(None, None))
        self._application = ControllerApplication(app.operations, Forwarding(app.dispatch, _nobody), _nobody)
        self._caller = KafkaCaller(Principal("fuzz", EVERY_ROLE), never)
        frames = list(_requests())
        self.corpus: list[Parts] = [(frame,) for frame in frames]
        self.corpus += [tuple(frames[at : at + 3]) for at in range(len(frames))]

    def assemble(self, parts: Parts) -> bytes:
        """Every frame with its length in front."""
        return b"".join([len(part).to_bytes(4, "big") + part for part in parts])

    def feed(self, data: bytes) -> None:
        member = self._member
        member.epochs = {7: _EPOCH}
        member.submitted.clear()
        member.history.clear()
        while data:
            before = member.next_id
            answer, used = self._application.respond(data, self._caller)
            if not used:
                return
            if isinstance(answer, KafkaCall):
                call = answer
                self._check_memory(data, call)
                answer = self._loop.run_until_complete(self._application.answer(call))
                self._check(call, answer, member.next_id - before)
            if answer[4:8] != data[8:12] or int.from_bytes(answer[:4], "big") != len(answer) - 4:
                raise Violation(f"{answer!r} is no answer to {data[:used]!r}")
            data = data[used:]

    def close(self) -> None:
        self._loop.close()

    def _check_memory(self, data: bytes, call: KafkaCall) -> None:
        fresh, _ = self._application._decode(data, self._caller)
        assert isinstance(fresh, KafkaCall)
        asked = [(*msgspec.structs.astuple(one.header)[:3], one.request) for one in (call, fresh)]
        if asked[0] != asked[1]:
            raise Violation(f"{asked[0]} from memory, but {asked[1]} afresh")

    def _check(self, call: KafkaCall, answer: bytes, given: int) -> None:
        """IDs that the quorum gave must be those that are answered, but where a call of ours may have asked."""
        if call.header.api_key == own_call.KEY:
            return
        granted = 0
        if call.header.api_key == ALLOCATE_PRODUCER_IDS:
            told = allocate_producer_ids.read_response(Reader(answer[9:]))
            granted = told.producer_id_len + sum(one.producer_id_len for one in read_answered(told.own).more)
        if granted != given:
            raise Violation(f"{given} IDs were given, {granted} answered")


def _nobody() -> None:
    return None


def _frame(key: int, version: int, body: bytes, *, flexible: bool = True) -> bytes:
    return (
        int16(key) + int16(version) + int32(1000 + key) + string("c", flexible=False) + tags(flexible=flexible) + body
    )


def _requests() -> Any:
    """Valid requests of every API and version."""
    for own in (b"\x00", _ASKED):
        yield _frame(ALLOCATE_PRODUCER_IDS, 0, allocate_producer_ids.write_request(7, _EPOCH, own))
        for version in range(broker_heartbeat.VERSIONS.highest + 1):
            yield _frame(BROKER_HEARTBEAT, version, broker_heartbeat.write_request(7, _EPOCH, own))
        for version in range(broker_registration.VERSIONS.highest + 1):
            yield _frame(BROKER_REGISTRATION, version, _registration(version) + own)
    yield _frame(BROKER_HEARTBEAT, 1, broker_heartbeat.write_request(7, _EPOCH, b"\x00", want_shut_down=True))
    body = msgspec.json.encode({"broker_id": 7, "broker_epoch": _EPOCH})
    for method, path in (("GET", "/v1/brokers"), ("POST", "/v1/producer-ids/allocate?blocks=2"), ("GET", "/v1/events")):
        yield _frame(own_call.KEY, 0, own_call.write_request(OwnCall(method, path, body)))
    yield _frame(API_VERSIONS, 0, b"", flexible=False)
    yield _frame(SASL_HANDSHAKE, 1, sasl.write_handshake_request("PLAIN"), flexible=False)
    yield _frame(SASL_AUTHENTICATE, 2, sasl.write_authenticate_request(b"\0a\0b"))


def _registration(version: int) -> bytes:
    listener = string("A", flexible=True) + string("h", flexible=True) + bytes(4) + b"\x00"
    feature = string("f", flexible=True) + bytes(4) + b"\x00"
    body = int32(7) + string(CLUSTER_ID, flexible=True) + _INCARNATION.bytes
    body += array([listener, listener], flexible=True) + array([feature], flexible=True) + string("r", flexible=True)
    body += b"\x00" * (version >= 1)
    body += array([bytes(16)], flexible=True) if version >= 2 else b""
    return body + (int64(-1) if version >= 3 else b"")
