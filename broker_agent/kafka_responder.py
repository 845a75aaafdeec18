"""From the bytes that a Kafka client sent to the bytes that it gets back. No I/O: the listener owns the sockets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker_agent.claim_run import MAX_RUN, ClaimRun
from broker_agent.reserve import NO_ID, BlockReserve
from broker_agent.wire.api_versions import api_versions_response, read_api_versions_request
from broker_agent.wire.find_coordinator import (
    TRANSACTION,
    Coordinator,
    find_coordinator_response,
    read_find_coordinator_request,
)
from broker_agent.wire.headers import (
    API_VERSIONS,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    METADATA,
    SUPPORTED_VERSIONS,
    RequestHeader,
    frame_response,
    is_flexible,
    read_request_header,
)
from broker_agent.wire.init_producer_id import (
    CLASSIC_FRAME,
    FLEXIBLE_FRAME,
    init_producer_id_frame,
    read_init_producer_id_request,
)
from broker_agent.wire.metadata import Node, metadata_response, read_metadata_request
from broker_agent.wire.primitives import MAX_FRAME_BYTES, Reader, WireError
from protocol.errors import ErrorCode
from protocol.messages import InitProducerIdRequest, InitProducerIdResponse
from protocol.transactions import MAX_TRANSACTIONAL_ID_LENGTH

MAX_RESPONSE_BYTES: Final = 64 * 1024
"""Bytes of decoded requests' responses after which `respond` stops, so that a client that does not read cannot make
one chunk of requests into megabytes. Remembered frames do not count: 20 bytes are answered by 24."""

MAX_MEMO_KEYS: Final = 1024
"""Frames remembered: one for each client id and version in use. Emptied when full: that costs one decode each."""

MAX_MEMO_FRAME_BYTES: Final = 512
"""Longest frame remembered (a client id of 249 characters takes 272), so the memo stays under 1 MiB."""

MAX_RUNS: Final = 256
"""Runs remembered: four client ids at every length. One takes up to 64 KiB (64 frames of 512 bytes, twice), so the
memory of all stays under 16 MiB. Emptied when full: that costs a few microseconds each."""

TRANSACTIONS_NOT_SERVED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
"""The answer to a transactional id: the one code that confluent-kafka, aiokafka and kafka-python all take as fatal at
once, on FindCoordinator and on InitProducerId alike. (On INVALID_REQUEST and UNSUPPORTED_VERSION librdkafka hangs.)"""

GROUP_AUTHORIZATION_FAILED: Final = 30
"""The answer to a consumer group, fatal at once in the same way; no other part of pidkeeper uses this code."""

_FLEXIBLE_LENGTH: Final = FLEXIBLE_FRAME.size - 4
_CLASSIC_LENGTH: Final = CLASSIC_FRAME.size - 4
_LOADING: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.kafka_code


class KafkaResponder:
    """Answers the four APIs from a reserve. `cluster_id()` is None until the first registration."""

    def __init__(self, reserve: BlockReserve, node: Node, cluster_id: Callable[[], str | None]) -> None:
        self._claim = reserve.claim
        self._claim_run = reserve.claim_run
        self._node = node
        self._cluster_id = cluster_id
        # Frame without its correlation id -> whether the answer is flexible. It holds only frames that were decoded
        # to the end as InitProducerId with a null transactional id, so an equal frame needs no second decoding.
        self._memo: dict[bytes, bool] = {}
        self._runs: dict[tuple[bytes, int], ClaimRun] = {}

    def respond(self, data: bytes) -> tuple[bytes, int]:
        """Answer the complete frames at the front of `data`: the response bytes, and how many bytes were used.

        Stops before a frame that is incomplete or malformed, and after MAX_RESPONSE_BYTES: call it again until it uses
        nothing. Raises WireError when the very first frame is malformed.
        """
        answers, position = self._respond_to_run(data)
        if position:
            return answers, position
        memo, claim = self._memo, self._claim
        end_of_data = len(data)
        decoded_bytes = 0
        responses: list[bytes] = []
        while end_of_data - position >= 4:
            end = position + 4 + int.from_bytes(data[position : position + 4], "big")
            if end > end_of_data:
                if end - position - 4 > MAX_FRAME_BYTES and not responses:
                    raise WireError(f"a frame of {end - position - 4} bytes is larger than {MAX_FRAME_BYTES}")
                break
            flexible = memo.get(data[position : position + 8] + data[position + 12 : end])
            if flexible is None:
                try:
                    response = self._respond_to_frame(data[position:end])
                except WireError:
                    if not responses:
                        raise
                    break
                responses.append(response)
                decoded_bytes += len(response)
                if decoded_bytes > MAX_RESPONSE_BYTES:
                    position = end
                    break
            else:
                claimed = claim()
                error, epoch = (0, 0) if claimed >= 0 else (_LOADING, -1)
                correlation_id = data[position + 8 : position + 12]
                responses.append(
                    FLEXIBLE_FRAME.pack(_FLEXIBLE_LENGTH, correlation_id, 0, 0, error, claimed, epoch, 0)
                    if flexible
                    else CLASSIC_FRAME.pack(_CLASSIC_LENGTH, correlation_id, 0, error, claimed, epoch)
                )
            position = end
        return b"".join(responses), position

    def _respond_to_run(self, data: bytes) -> tuple[bytes, int]:
        """Answer two or more frames at the front of `data` that differ in their correlation ids alone, if it can."""
        length = 4 + int.from_bytes(data[:4], "big")
        count = min(len(data) // length, MAX_RUN)
        if count < 2:
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

    def _respond_to_frame(self, frame: bytes) -> bytes:
        """Decode and answer one whole frame, length field included. Raises WireError; then nothing was claimed."""
        reader = Reader(frame[4:])
        header = read_request_header(reader)
        if header.api_key == INIT_PRODUCER_ID:
            request = read_init_producer_id_request(reader, header.api_version)
            if request.transactional_id is None:
                self._remember(frame, header)
            return init_producer_id_frame(header.api_version, frame[8:12], self.init_producer_id(request))
        return frame_response(header, self._body(reader, header))

    def _body(self, reader: Reader, header: RequestHeader) -> bytes:
        version = header.api_version
        if header.api_key == API_VERSIONS:
            if version <= SUPPORTED_VERSIONS[API_VERSIONS][1]:
                read_api_versions_request(reader, version)
            return api_versions_response(version)
        if header.api_key == METADATA:
            return metadata_response(version, read_metadata_request(reader, version), self._node, self._cluster_id())
        assert header.api_key == FIND_COORDINATOR, f"no answer to API key {header.api_key}"
        find = read_find_coordinator_request(reader, version)
        coordinators = [self._coordinator(key, find.key_type, explain=not at) for at, key in enumerate(find.keys)]
        return find_coordinator_response(version, coordinators)

    def _remember(self, frame: bytes, header: RequestHeader) -> None:
        if len(frame) > MAX_MEMO_FRAME_BYTES:
            return
        if len(self._memo) >= MAX_MEMO_KEYS:
            self._memo.clear()
        self._memo[frame[:8] + frame[12:]] = is_flexible(INIT_PRODUCER_ID, header.api_version)

    def init_producer_id(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        """Answer one decoded request; for the codes see `refusal`."""
        error = refusal(request.transactional_id)
        if error is not None:
            return InitProducerIdResponse(error.kafka_code, -1, -1)
        claimed = self._claim()
        if claimed == NO_ID:
            return InitProducerIdResponse(_LOADING, -1, -1)
        return InitProducerIdResponse(0, claimed, 0)

    def _coordinator(self, key: str, key_type: int, *, explain: bool) -> Coordinator:
        """The refusal of one key. One key of a request is explained: a sentence for each would be an amplifier."""
        if key_type == TRANSACTION:
            # INVALID_REQUEST would be apt for an empty key, but librdkafka asks again for ever on any code but this.
            return Coordinator(
                key, -1, "", -1, TRANSACTIONS_NOT_SERVED.kafka_code, refusal_detail(key) if explain else None
            )
        detail = "this address hands out producer ids and serves no consumer groups"
        return Coordinator(key, -1, "", -1, GROUP_AUTHORIZATION_FAILED, detail if explain else None)


def refusal(transactional_id: str | None) -> ErrorCode | None:
    """Why this transactional id is refused; None for a null one, with which every other field is ignored.

    An empty id is INVALID_REQUEST in Kafka too (`TransactionCoordinator.handleInitProducerId`).
    """
    if transactional_id is None:
        return None
    if not 1 <= len(transactional_id) <= MAX_TRANSACTIONAL_ID_LENGTH:
        return ErrorCode.INVALID_REQUEST
    return TRANSACTIONS_NOT_SERVED


def refusal_detail(transactional_id: str) -> str:
    """The sentence that goes with `refusal`."""
    if not 1 <= len(transactional_id) <= MAX_TRANSACTIONAL_ID_LENGTH:
        return f"a transactional id has 1 to {MAX_TRANSACTIONAL_ID_LENGTH} characters, not {len(transactional_id)}"
    return "transactions are not served here: use an idempotent producer without a transactional id"
