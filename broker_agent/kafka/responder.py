"""From the bytes that a Kafka client sent to the bytes that it gets back. No I/O: the listener owns the sockets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pidkeeper.broker_agent.coordinator.caller import ANYBODY, Caller
from pidkeeper.broker_agent.coordinator.checks import check_init
from pidkeeper.broker_agent.coordinator.directory import Directory
from pidkeeper.broker_agent.ids.reserve import NO_ID, BlockReserve
from pidkeeper.broker_agent.kafka.answers import LocalAnswers
from pidkeeper.broker_agent.kafka.claim_run import MAX_RUN, ClaimRun
from pidkeeper.broker_agent.kafka.dispatch import IDS_ALONE, Apis, Call, ProduceCall
from pidkeeper.broker_agent.kafka.frame_limits import check_length
from pidkeeper.broker_agent.kafka.wire.data.frames import RecordsReader
from pidkeeper.broker_agent.kafka.wire.data.known_produces import KnownProduces
from pidkeeper.broker_agent.kafka.wire.data.produce import ProduceRequest, read_produce_request
from pidkeeper.broker_agent.kafka.wire.init_producer_id import (
    CLASSIC_FRAME,
    FLEXIBLE_FRAME,
    VERSIONS,
    init_producer_id_frame,
)
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import InitProducerIdRequest, InitProducerIdResponse
from pidkeeper.service.kafka.wire.api_versions import Features, no_features
from pidkeeper.service.kafka.wire.headers import RequestHeader, frame_response, read_request_header
from pidkeeper.service.kafka.wire.primitives import MAX_FRAME_BYTES, Reader, WireError
from pidkeeper.service.kafka.wire.versions import PRODUCE

MAX_RESPONSE_BYTES: Final = 64 * 1024
"""Bytes of decoded requests' responses after which `respond` stops, so that a client that does not read cannot make
one chunk of requests into megabytes. Remembered frames do not count: 20 bytes are answered by 24."""

MAX_MEMO_KEYS: Final = 1024
"""Frames remembered: one for each client id and version in use. Emptied when full: that costs one decode each."""

MAX_MEMO_FRAME_BYTES: Final = 512
"""Longest frame remembered (a client id of 249 characters takes 272), so the memo stays under 1 MiB."""

MAX_RUNS: Final = 256
"""Runs remembered: four client ids at every length. One takes up to 80 KiB (64 frames of 512 bytes, twice, and how to
read and write them), so the memory of all stays under 21 MiB. Emptied when full: that costs some microseconds each."""

_FLEXIBLE_LENGTH: Final = FLEXIBLE_FRAME.size - 4
_CLASSIC_LENGTH: Final = CLASSIC_FRAME.size - 4
_PRODUCE: Final = PRODUCE.to_bytes(2, "big")
_IN_ORDER: Final = frozenset(
    {0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.kafka_code, ErrorCode.PRODUCER_IDS_EXHAUSTED.kafka_code}
)
"""What a request in order is answered with, whether an ID was at hand or not."""


class KafkaResponder:
    """Answers from a reserve and a directory what these can answer, and decodes what the controllers must.

    `cluster_id()` is None until the first registration. `apis`: what is served; `features()`: what the cluster has
    agreed on.
    """

    def __init__(
        self,
        reserve: BlockReserve,
        directory: Directory,
        cluster_id: Callable[[], str | None],
        *,
        apis: Apis = IDS_ALONE,
        features: Callable[[], Features | None] = no_features,
    ) -> None:
        self._reserve = reserve
        self._claim = reserve.claim
        self._claim_run = reserve.claim_run
        self._local = LocalAnswers(directory, cluster_id, apis.advertised, features)
        self.features: Final = features
        self._apis = apis
        # Frame without its correlation id -> whether the answer is flexible. It holds only frames that were decoded
        # to the end as InitProducerId with a null transactional id, so an equal frame needs no second decoding.
        self._memo: dict[bytes, bool] = {}
        self._produces = KnownProduces()
        self._runs: dict[tuple[bytes, int], ClaimRun] = {}

    def respond(self, data: bytes, caller: Caller = ANYBODY) -> tuple[bytes | Call, int]:
        """Answer the complete frames at the front of `data`: the response bytes, and how many bytes were used.

        Stops before a frame that is incomplete or malformed, and after MAX_RESPONSE_BYTES: call it again until it uses
        nothing. Raises WireError when the very first frame is malformed. If that one has to be put to the controllers,
        the call comes in place of bytes; nothing behind it may be answered before it is. `caller`: whose bytes
        they are.
        """
        if data[4:6] == _PRODUCE:
            # Where they come, most are these.
            end = 4 + int.from_bytes(data[:4], "big")
            if end <= len(data):
                return self._produce(data, 0, end, caller), end
        if len(data) <= MAX_MEMO_FRAME_BYTES:
            # The key begins with the length of its frame, so what equals one is one frame, and whole.
            flexible = self._memo.get(data[:8] + data[12:])
            if flexible is not None:
                return self._claim_again(data[8:12], flexible=flexible), len(data)
        answers, used = self._respond_to_run(data)
        return (answers, used) if used else self._respond_to_each(data, caller)

    def _respond_to_each(self, data: bytes, caller: Caller) -> tuple[bytes | Call, int]:
        """As `respond`, frame by frame."""
        memo = self._memo
        position, end_of_data = 0, len(data)
        decoded_bytes = 0
        responses: list[bytes] = []
        while end_of_data - position >= 4:
            end = position + 4 + int.from_bytes(data[position : position + 4], "big")
            if end > end_of_data:
                if end - position - 4 > MAX_FRAME_BYTES and not responses:
                    check_length(data, self._apis.longer)
                break
            short = end - position <= MAX_MEMO_FRAME_BYTES
            flexible = memo.get(data[position : position + 8] + data[position + 12 : end]) if short else None
            if flexible is None:
                try:
                    response = self._respond_to_frame(data, position, end, caller)
                except WireError:
                    if not responses:
                        raise
                    break
                if not isinstance(response, bytes):
                    return (b"".join(responses), position) if responses else (response, end)
                responses.append(response)
                decoded_bytes += len(response)
                if decoded_bytes > MAX_RESPONSE_BYTES:
                    position = end
                    break
            else:
                responses.append(self._claim_again(data[position + 8 : position + 12], flexible=flexible))
            position = end
        return b"".join(responses), position

    def _respond_to_run(self, data: bytes) -> tuple[bytes, int]:
        """Answer two or more frames at the front of `data` that differ in their correlation ids alone, if it can."""
        length = 4 + int.from_bytes(data[:4], "big")
        count = min(len(data) // length, MAX_RUN)
        if count < 2 or length > MAX_MEMO_FRAME_BYTES:
            return b"", 0
        key = data[:8] + data[12:length]
        flexible = self._memo.get(key)
        if flexible is None:
            return b"", 0
        run = self._runs.get((key, count))
        if run is None:
            if len(self._runs) >= MAX_RUNS:
                self._runs.clear()
            run = self._runs[key, count] = ClaimRun(data[:length], count, flexible=flexible)
        requests = data[: count * length]
        if not run.matches(requests) or (first := self._claim_run(count)) == NO_ID:
            return b"", 0
        return run.answer(requests, first), len(requests)

    def _claim_again(self, correlation_id: bytes, *, flexible: bool) -> bytes:
        """The answer to a remembered frame."""
        claimed = self._claim()
        error, epoch = (0, 0) if claimed >= 0 else (self._reserve.refusal.kafka_code, -1)
        if flexible:
            return FLEXIBLE_FRAME.pack(_FLEXIBLE_LENGTH, correlation_id, 0, 0, error, claimed, epoch, 0)
        return CLASSIC_FRAME.pack(_CLASSIC_LENGTH, correlation_id, 0, error, claimed, epoch)

    def _respond_to_frame(self, data: bytes, start: int, end: int, caller: Caller) -> bytes | Call:
        """Decode and answer one whole frame, length field included. Raises WireError; then nothing was claimed."""
        key = int.from_bytes(data[start + 4 : start + 6], "big")
        if key == PRODUCE:
            return self._produce(data, start, end, caller)
        reader = Reader(data, self._apis.longer.get(key, MAX_FRAME_BYTES), start + 4, end)
        header = read_request_header(reader, self._apis.served)
        api = self._apis.dispatch[header.api_key]
        request = api.read(reader, header.api_version)
        if isinstance(request, InitProducerIdRequest) and request.transactional_id is None:
            return self._claim_for(data[start:end], header, request)
        answer = api.serve(self._local, header, request, caller)
        return frame_response(header, api.versions, answer) if isinstance(answer, bytes) else answer

    def _produce(self, data: bytes, start: int, end: int, caller: Caller) -> ProduceCall:
        """The call of a whole frame that holds a Produce request. Raises WireError."""
        header, request = self._produces.read(data, start, end) or self._read_produce(data, start, end)
        return ProduceCall(header, request, caller)

    def _read_produce(self, data: bytes, start: int, end: int) -> tuple[RequestHeader, ProduceRequest]:
        """Decode a Produce request, and remember what it begins with. Raises WireError."""
        reader = RecordsReader(data, start=start + 4, end=end)
        header = read_request_header(reader, self._apis.served)
        request = read_produce_request(reader, header.api_version)
        self._produces.learn(data, start, reader.records_at, header, request)
        return header, request

    def _claim_for(self, frame: bytes, header: RequestHeader, request: InitProducerIdRequest) -> bytes:
        """The answer to `request`, which `frame` holds; from then on an equal frame is answered from memory."""
        response = self._claimed(request)
        if response.error_code in _IN_ORDER:
            self._remember(frame, header)
        return init_producer_id_frame(header.api_version, frame[8:12], response)

    def _remember(self, frame: bytes, header: RequestHeader) -> None:
        if len(frame) > MAX_MEMO_FRAME_BYTES:
            return
        if len(self._memo) >= MAX_MEMO_KEYS:
            self._memo.clear()
        self._memo[frame[:8] + frame[12:]] = VERSIONS.is_flexible(header.api_version)

    def _claimed(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        """The answer to a request without a transactional id."""
        try:
            check_init(request)
        except RequestError as error:
            return InitProducerIdResponse(error.code.kafka_code, -1, -1)
        claimed = self._claim()
        if claimed == NO_ID:
            return InitProducerIdResponse(self._reserve.refusal.kafka_code, -1, -1)
        return InitProducerIdResponse(0, claimed, 0)
