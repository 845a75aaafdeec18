"""What an acknowledged batch needs at least: one put on the local store, and one commit through the leader's HTTP.

Each is measured alone, one after the other, without an agent: `python -m bench.data_floor` with a spec on stdin.
"""

from __future__ import annotations

import http.client
import time
import uuid
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from bench.cluster import LOAD_BROKER_ID
from bench.figures import quantile_ms
from bench.load_process import serve
from pidkeeper.broker_agent.data.store.identity import store_uuid
from pidkeeper.broker_agent.data.store.opening import open_store
from pidkeeper.broker_agent.data.store.port import ObjectStore
from pidkeeper.protocol.log_messages import (
    CommitObjectRequest,
    CommitObjectResponse,
    CreateTopicRequest,
    OfferedBatch,
    TopicDescription,
)
from pidkeeper.protocol.messages import RegisterBrokerRequest, RegisterBrokerResponse

CALL_SECONDS: Final = 10.0
NO_PRODUCER: Final = (-1, -1, -1)
"""Producer id, epoch and sequence of a batch without idempotence."""

TIMESTAMP_MS: Final = 1_700_000_000_000

_Answer = TypeVar("_Answer")


class DataFloorSpec(msgspec.Struct, frozen=True):
    """Put and commit `objects` of `object_bytes`; `host` and `port` are the leader's, `store` is a directory."""

    host: str
    port: int
    store: str
    objects: int
    object_bytes: int


class DataFloorResult(msgspec.Struct, frozen=True):
    """Of one after the other."""

    put_p50_ms: float
    put_p99_ms: float
    commit_p50_ms: float
    commit_p99_ms: float


class LeaderCalls:
    """One connection to the leader."""

    def __init__(self, host: str, port: int) -> None:
        self._connection = http.client.HTTPConnection(host, port, timeout=CALL_SECONDS)

    def ask(self, path: str, request: msgspec.Struct, answer: type[_Answer]) -> _Answer:
        """One POST. Raises OSError, RuntimeError for a refusal."""
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", path, msgspec.json.encode(request), headers=headers)
        response = self._connection.getresponse()
        body = response.read()
        if response.status != http.client.OK:
            raise RuntimeError(f"{path} was refused: {body[:500].decode(errors='replace')}")
        return msgspec.json.decode(body, type=answer)

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


async def run(spec: DataFloorSpec) -> DataFloorResult:
    """Raises OSError, RuntimeError, StoreError."""
    store = open_store(spec.store, {})
    calls = LeaderCalls(spec.host, spec.port)
    try:
        puts = await _puts(store, spec)
        commits = _commits(calls, await store_uuid(store), spec)
    finally:
        calls.close()
        await store.close()
    return DataFloorResult(*(quantile_ms(took, share) for took in (puts, commits) for share in (0.5, 0.99)))


async def _puts(store: ObjectStore, spec: DataFloorSpec) -> list[float]:
    data, took, name = bytes(spec.object_bytes), [], Path("floor") / uuid.uuid4().hex
    for number in range(spec.objects):
        begun = time.perf_counter()
        await store.put(f"{name}/{number:020}", [data])
        took.append(time.perf_counter() - begun)
    return took


def _commits(calls: LeaderCalls, store_id: uuid.UUID, spec: DataFloorSpec) -> list[float]:
    register = RegisterBrokerRequest(str(uuid.uuid4()), store_id=store_id)
    broker = calls.ask(f"/v1/brokers/{LOAD_BROKER_ID}/register", register, RegisterBrokerResponse)
    assert broker.founding_id is not None, "a quorum that serves has a founding"
    wanted = CreateTopicRequest(
        uuid.uuid4(),
        f"floor-{uuid.uuid4().hex}",
        1,
        broker_id=LOAD_BROKER_ID,
        broker_epoch=broker.broker_epoch,
    )
    topic = calls.ask("/v1/topics/create", wanted, TopicDescription)
    batch = OfferedBatch(topic.first_log, 1, 0, spec.object_bytes, *NO_PRODUCER, TIMESTAMP_MS, False)
    took = []
    for number in range(spec.objects):
        request = CommitObjectRequest(
            LOAD_BROKER_ID, broker.broker_epoch, broker.founding_id, number, spec.object_bytes, (batch,)
        )
        begun = time.perf_counter()
        answer = calls.ask("/v1/objects/commit", request, CommitObjectResponse)
        took.append(time.perf_counter() - begun)
        if answer.outcomes != [number]:
            raise RuntimeError(f"batch {number} was given {answer.outcomes}")
    return took


if __name__ == "__main__":
    serve(DataFloorSpec, run)
