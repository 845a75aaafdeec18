"""What a controller answers in Kafka's protocol: calls of its HTTP interface, in other words."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from pidkeeper.controller.api.operations import Operations
from pidkeeper.controller.kafka.broker_apis import BROKER_APIS, BrokerApi, KafkaCaller
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.service.access import Principal
from pidkeeper.service.complaints import Complaints
from pidkeeper.service.kafka.wire import api_versions, own_call, sasl
from pidkeeper.service.kafka.wire.headers import RequestHeader, frame_response, read_request_header
from pidkeeper.service.kafka.wire.own_call import OwnAnswer, OwnCall
from pidkeeper.service.kafka.wire.own_field import MAX_DETAIL_CHARACTERS, Answered, read_asked, tagged
from pidkeeper.service.kafka.wire.primitives import MAX_FRAME_BYTES, Reader, WireError, tags
from pidkeeper.service.kafka.wire.versions import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE, Versions
from pidkeeper.service.metrics import SUCCESS
from pidkeeper.service.problems import quoted

SERVED: Final[Mapping[int, Versions]] = {
    SASL_HANDSHAKE: sasl.HANDSHAKE_VERSIONS,
    API_VERSIONS: api_versions.VERSIONS,
    SASL_AUTHENTICATE: sasl.AUTHENTICATE_VERSIONS,
    **{key: api.versions for key, api in BROKER_APIS.items()},
    own_call.KEY: own_call.VERSIONS,
}
"""The versions of each API."""

MAX_MEMO_FRAMES: Final = 1024
"""Frames remembered: one for each broker and what it asks. Emptied when full: that costs one decode each."""

MAX_MEMO_FRAME_BYTES: Final = 512
"""Longest frame remembered, so the memo stays under 1 MiB; one of an agent takes 200."""

Forward = Callable[[OwnCall, KafkaCaller], Awaitable[tuple[OwnAnswer, str | None]]]
"""Has a call of ours answered as over HTTP; and why it is refused to a caller who may not ask, if it is."""


class KafkaCall(NamedTuple):
    """A request that takes the quorum, or may."""

    header: RequestHeader
    request: Any
    caller: KafkaCaller


class ControllerApplication:
    """`service.kafka.application.Application`, in front of the operations of the HTTP interface.

    `leader()`: who leads, as kafka://host:port, as far as it is known. `outcomes`: requests by API and outcome. Who
    may not ask what it asks is told of in the log.
    """

    served: Final = SERVED
    features: Final = staticmethod(api_versions.no_features)

    def __init__(self, operations: Operations, forward: Forward, leader: Callable[[], str | None]) -> None:
        self.outcomes: Final[Counter[tuple[str, str]]] = Counter()
        self._operations = operations
        self._forward = forward
        self._leader = leader
        self._complaints = Complaints()
        # What a frame asks, by the frame without its correlation id: a broker asks for the same again and again.
        self._memo: dict[bytes, tuple[int, int, Any]] = {}

    def caller(
        self, principal: Principal, host: str, has_hung_up: Callable[[], bool], _: Callable[[float], None]
    ) -> KafkaCaller:
        """Whoever asks."""
        return KafkaCaller(principal, has_hung_up, host)

    def respond(self, data: bytes, caller: KafkaCaller) -> tuple[bytes | KafkaCall, int]:
        """Answer the frame at the front of `data`, if it is complete. Raises WireError."""
        # The key begins with the length of its frame, so what equals one is one frame, and whole.
        if (known := self._memo.get(data[:8] + data[12:])) is not None:
            key, version, request = known
            header = RequestHeader(key, version, int.from_bytes(data[8:12], "big", signed=True), None)
            return KafkaCall(header, request, caller), len(data)
        return self._decode(data, caller)

    def _decode(self, data: bytes, caller: KafkaCaller) -> tuple[bytes | KafkaCall, int]:
        """As `respond`."""
        end = 4 + int.from_bytes(data[:4], "big")
        if end > 4 + MAX_FRAME_BYTES:
            raise WireError(f"a frame of {end - 4} bytes is larger than {MAX_FRAME_BYTES}")
        if len(data) < end:
            return b"", 0
        reader = Reader(data[4:end])
        header = read_request_header(reader, SERVED)
        if (api := BROKER_APIS.get(header.api_key)) is not None:
            request = api.read(reader, header.api_version)
            if end == len(data) <= MAX_MEMO_FRAME_BYTES:
                self._remember(data, header, request)
            return KafkaCall(header, request, caller), end
        if header.api_key == own_call.KEY:
            return KafkaCall(header, own_call.read_request(reader, header.api_version), caller), end
        return frame_response(header, SERVED[header.api_key], _answer_at_once(header, reader)), end

    def _remember(self, frame: bytes, header: RequestHeader, request: Any) -> None:
        if len(self._memo) >= MAX_MEMO_FRAMES:
            self._memo.clear()
        self._memo[frame[:8] + frame[12:]] = header.api_key, header.api_version, request

    async def answer(self, call: KafkaCall) -> bytes:
        """The whole response frame, length field included."""
        if isinstance(call.request, OwnCall):
            answer, denied = await self._forward(call.request, call.caller)
            if denied is not None:
                self._complaints.about(call.caller.host, f"{quoted(call.request.path)} is refused: {denied}")
            return frame_response(call.header, own_call.VERSIONS, own_call.write_response(answer))
        return await self._answer_broker(call)

    def answer_soon(self, call: KafkaCall, done: Callable[[bytes | None], None]) -> bool:
        """As `answer`, without a task, for a request of a block: brokers ask for little else, and a task for each was a
        tenth of its time. False, and nothing is done, if it takes one."""
        api = BROKER_APIS.get(call.header.api_key)
        if api is None or api.ask_soon is None:
            return False

        def answered(outcome: Any) -> None:
            frame = None
            try:
                frame = self._frame(call, api, outcome)
            finally:
                done(frame)

        try:
            return api.ask_soon(self._operations, call.caller, call.request, read_asked(call.request.own), answered)
        except RequestError as error:
            asyncio.get_running_loop().call_soon(answered, error)
            return True

    async def _answer_broker(self, call: KafkaCall) -> bytes:
        api = BROKER_APIS[call.header.api_key]
        try:
            outcome = await api.ask(self._operations, call.caller, call.request, read_asked(call.request.own))
        except RequestError as error:
            outcome = error
        return self._frame(call, api, outcome)

    def _frame(self, call: KafkaCall, api: BrokerApi, outcome: Any) -> bytes:
        """The whole response, by the answer or the RequestError."""
        own, none = call.request.own, tags(flexible=True)
        if isinstance(outcome, RequestError):
            code = outcome.code
            if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                self._complaints.about(call.caller.host, f"{api.name} is refused: {outcome.detail}")
            body = api.refuse(outcome, none if own is None else tagged(self._tell_refusal(outcome)))
            self.outcomes[api.name, code.name] += 1
        else:
            body = api.grant(outcome, none if own is None else tagged(api.tell(outcome)))
            self.outcomes[api.name, SUCCESS] += 1
        return frame_response(call.header, api.versions, body)

    def _tell_refusal(self, error: RequestError) -> Answered:
        leader = self._leader() if error.code is ErrorCode.NOT_CONTROLLER else None
        return Answered(error.code.name, error.detail[:MAX_DETAIL_CHARACTERS], leader)


def _answer_at_once(header: RequestHeader, reader: Reader) -> bytes:
    """The body for whoever asks what is served, or wants to authenticate where it need not, or has done so."""
    version = header.api_version
    if header.api_key == API_VERSIONS:
        api_versions.read_api_versions_request(reader, version)
        return api_versions.api_versions_response(version, SERVED)
    if header.api_key == SASL_HANDSHAKE:
        sasl.read_handshake_request(reader, version)
        return sasl.handshake_response(ErrorCode.ILLEGAL_SASL_STATE, ())
    sasl.read_authenticate_request(reader, version)
    detail = "this connection needs no authentication, or has it"
    return sasl.authenticate_response(version, ErrorCode.ILLEGAL_SASL_STATE, detail)
