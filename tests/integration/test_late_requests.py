"""A process that stood still finds old requests in its sockets: they must not undo what their callers did since.

An agent is stopped by SIGSTOP, its caller goes to the other one and works on there, and the first agent goes on. A
controller is stopped, its caller hangs up, and the controller goes on.
"""

from __future__ import annotations

import http.client
import json
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any, Final, Self

import pytest

from pidkeeper.broker_agent.coordinator.late_requests import AGENT_STOOD_STILL, CALLER_HUNG_UP
from pidkeeper.cli.local_cluster import Agent, LocalCluster
from pidkeeper.service.pulse import STILL_SECONDS
from tests.support.cluster import labelled, log_of, pause, register, resume, running_cluster, wait_until
from tests.support.http_calls import CALL_SECONDS, Answer, address_of, call
from tests.support.kafka_oracles import kafka_python_request, kafka_python_response
from tests.support.transactional_client import COME_AGAIN, code

LOADING: Final = 14
INIT_PATH: Final = "/v1/transactions/init-producer-id"
CLAIM: Final = {"transactional_id": None, "transaction_timeout_ms": -1, "producer_id": -1, "producer_epoch": -1}

Pair = dict[str, int]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("late"), controllers=1, agents=2) as running:
        yield running


class Stopped:
    """An agent that is stopped, until its end at the latest. A caller asks it, and works on with the other agent."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self.agent, self.other = cluster.layout.agents
        wait_until(lambda: self.ask("/v1/init-producer-id", {}).status == 200, "claims")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        resume(self._cluster, self.agent)

    def stop(self) -> None:
        pause(self._cluster, self.agent)
        self._stopped = time.monotonic()

    def go_on(self, *, after: float = 0.0) -> None:
        """Once it has been stopped for `after` seconds."""
        wait_until(lambda: time.monotonic() - self._stopped > after, "an age")
        resume(self._cluster, self.agent)

    def ask(self, path: str, body: Any) -> Answer:
        """The answer of the other agent, once nothing is in the way that passes."""

        def attempt() -> Answer | None:
            answer = call(self.other.http, "POST", path, body)
            return None if code(answer) in COME_AGAIN else answer

        answer = wait_until(attempt, f"an answer to {path}")
        assert answer is not None
        return answer

    def pair(self, name: str) -> Pair:
        answer = self.ask("/v1/init-producer-id", {"transactional_id": name, "transaction_timeout_ms": 600_000})
        assert answer.status == 200, answer
        return {field: answer.json()[field] for field in ("producer_id", "producer_epoch")}

    def add(self, name: str, pair: Pair) -> None:
        """Add a partition to its transaction, which the other agent grants to nobody but the newest producer."""
        topics = [{"topic": "orders", "partitions": [0]}]
        answer = self.ask("/v1/transactions/add-partitions", {"transactional_id": name, **pair, "topics": topics})
        assert answer.status == 200, answer

    def end(self, name: str, pair: Pair) -> None:
        assert self.ask("/v1/transactions/end", {"transactional_id": name, **pair, "committed": True}).status == 200

    def state(self, name: str) -> str:
        controller = self._cluster.layout.controllers[0]
        found = call(controller.http, "GET", f"/v1/transactions/describe?transactional_id={name}").json()
        return str(found["state"])

    def counts(self, kind: str) -> dict[str, float]:
        """The requests of one kind that the agent has dealt with, by outcome."""
        found = labelled(self.agent, "pidkeeper_agent_transactional_requests_total")
        return {outcome: count for (of_kind, outcome), count in found.items() if of_kind == kind}


@pytest.fixture
def stopped(cluster: LocalCluster) -> Iterator[Stopped]:
    with Stopped(cluster) as stopped:
        yield stopped


def frame(api: str, version: int, **fields: Any) -> bytes:
    request = kafka_python_request(api, version, 1, "c", **fields)
    return struct.pack(">i", len(request)) + request


def init_frame(name: str) -> bytes:
    fields = {"transactional_id": name, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    return frame("init_producer_id", 4, **fields)


def connected(agent: Agent) -> socket.socket:
    """A connection that has asked and been answered, so that the agent has it open."""
    line = socket.create_connection(address_of(agent.kafka), CALL_SECONDS)
    line.sendall(frame("init_producer_id", 4, **CLAIM))
    assert kafka_python_response("init_producer_id", 4, answer_of(line)).error_code == 0
    return line


def answer_of(line: socket.socket) -> bytes:
    with line.makefile("rb") as stream:
        (length,) = struct.unpack(">i", stream.read(4))
        return stream.read(length)


def test_whoever_still_waits_when_the_agent_goes_on_is_told_to_come_again(
    stopped: Stopped, cluster: LocalCluster
) -> None:
    with connected(stopped.agent) as line:
        stopped.stop()
        line.sendall(init_frame("waits"))
        pair = stopped.pair("waits")
        stopped.go_on(after=STILL_SECONDS)
        answer = kafka_python_response("init_producer_id", 4, answer_of(line))
    assert (answer.error_code, answer.producer_id) == (LOADING, -1)
    stopped.add("waits", pair)
    assert stopped.counts("init_producer_id")[AGENT_STOOD_STILL] == 1
    assert "this agent stood still for " in log_of(cluster, stopped.agent)


def test_the_request_of_a_caller_that_has_gone_is_dropped(stopped: Stopped) -> None:
    before = stopped.counts("init_producer_id")
    with connected(stopped.agent) as line:
        stopped.stop()
        line.sendall(init_frame("gone"))
    pair = stopped.pair("gone")
    stopped.go_on()
    after = wait_until(lambda: _more(stopped.counts("init_producer_id"), before), "the end of the request")
    assert after == {CALLER_HUNG_UP: 1}
    stopped.add("gone", pair)


def test_an_old_end_does_not_end_the_next_transaction(stopped: Stopped) -> None:
    pair = stopped.pair("ends")
    stopped.add("ends", pair)
    with connected(stopped.agent) as line:
        stopped.stop()
        line.sendall(frame("end_txn", 1, transactional_id="ends", **pair, committed=True))
        stopped.end("ends", pair)
        stopped.add("ends", pair)
        stopped.go_on(after=STILL_SECONDS)
        assert kafka_python_response("end_txn", 1, answer_of(line)).error_code == LOADING
    assert stopped.state("ends") == "Ongoing"


def test_over_http_it_is_the_same(stopped: Stopped) -> None:
    connection = http.client.HTTPConnection(*address_of(stopped.agent.http), timeout=CALL_SECONDS)
    connection.request("GET", "/livez")
    assert connection.getresponse().read() == b"ok\n"
    stopped.stop()
    body = json.dumps({"transactional_id": "posts", "transaction_timeout_ms": 60_000})
    connection.request("POST", "/v1/init-producer-id", body, {"Content-Type": "application/json"})
    pair = stopped.pair("posts")
    stopped.go_on(after=STILL_SECONDS)
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["code"]) == (503, "COORDINATOR_LOAD_IN_PROGRESS")
    stopped.add("posts", pair)
    connection.close()


def test_a_controller_drops_the_attempt_of_a_broker_that_has_gone(cluster: LocalCluster) -> None:
    controller = cluster.layout.controllers[0]
    broker = {"broker_id": 77, "broker_epoch": register(controller, 77, "gone").json()["broker_epoch"]}
    producer = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1, "candidate": -1}
    connection = http.client.HTTPConnection(*address_of(controller.http), timeout=CALL_SECONDS)
    connection.request("GET", "/v1/quorum")
    assert connection.getresponse().read()
    pause(cluster, controller)
    try:
        body = json.dumps({**broker, "transactional_id": "left", **producer})
        connection.request("POST", INIT_PATH, body, {"Content-Type": "application/json"})
        connection.close()
    finally:
        resume(cluster, controller)
    describe = "/v1/transactions/describe?transactional_id="
    answer = call(controller.http, "POST", INIT_PATH, {**broker, "transactional_id": "stayed", **producer})
    assert answer.status == 200, answer
    assert call(controller.http, "GET", f"{describe}left").status == 404
    outcomes = labelled(controller, "pidkeeper_api_requests_total")
    assert outcomes["REQUEST_TIMED_OUT", "init_producer_id"] == 1, "it was read"


def _more(now: dict[str, float], before: dict[str, float]) -> dict[str, float]:
    """What was counted since."""
    return {outcome: count - before.get(outcome, 0) for outcome, count in now.items() if count > before.get(outcome, 0)}
