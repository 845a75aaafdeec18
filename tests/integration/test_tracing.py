"""Requests as traces: one from the client to the commit, by way of two services and a collector."""

from __future__ import annotations

import secrets
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pidkeeper.broker_agent.kafka.wire.init_producer_id import FLEXIBLE_FRAME
from pidkeeper.cli.local_cluster import Agent, LocalCluster
from tests.support.cluster import REPOSITORY, metrics, running_cluster, wait_until
from tests.support.http_calls import address_of, call, exchange
from tests.support.kafka_oracles import kafka_python_request, kafka_python_response
from tests.support.otlp_collector import CLIENT, INTERNAL, SERVER, Collector, ReceivedSpan, running_collector

TRACED = {"tracing": "otlp"}
INIT = "/v1/init-producer-id"
AGENT, CONTROLLER = "pidkeeper-agent", "pidkeeper-controller"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with running_collector() as running, pytest.MonkeyPatch.context() as environment:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.url)
        environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield running


@pytest.fixture(scope="module")
def cluster(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running_cluster(
        tmp_path_factory.mktemp("traced"), controllers=1, agents=1, controller_options=TRACED, agent_options=TRACED
    ) as running:
        yield running


@pytest.fixture
def agent(cluster: LocalCluster) -> Agent:
    (agent,) = cluster.layout.agents
    return agent


def shape(spans: list[ReceivedSpan]) -> list[tuple[str, str, int]]:
    return [(span.service, span.name, span.kind) for span in spans]


def check_chain(spans: list[ReceivedSpan], above: str) -> None:
    """Each is the parent of the next, and lasts longer."""
    for span in spans:
        assert span.parent_id == above, span
        above = span.span_id
    assert len({span.span_id for span in spans}) == len(spans)


def init(agent: Agent, name: str | None, traceparent: str | None = None) -> dict[str, Any]:
    body = {} if name is None else {"transactional_id": name, "transaction_timeout_ms": 60_000}
    answer = call(agent.http, "POST", INIT, body, traceparent=traceparent)
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json()
    return found


def test_a_transactional_request_is_one_trace_from_its_client_to_the_commit(collector: Collector, agent: Agent) -> None:
    trace_id, span_id = secrets.token_hex(16), secrets.token_hex(8)
    init(agent, "traced", f"00-{trace_id}-{span_id}-01")
    wait_until(lambda: len(collector.trace(trace_id)) >= 4, "the spans of one request")
    spans = collector.trace(trace_id)
    assert shape(spans) == [
        (AGENT, f"POST {INIT}", SERVER),
        (AGENT, "POST", CLIENT),
        (CONTROLLER, "POST /v1/transactions/init-producer-id", SERVER),
        (CONTROLLER, "commit", INTERNAL),
    ]
    check_chain(spans, span_id)
    served, asked, decided, commit = spans
    assert served.attributes == {
        "http.request.method": "POST",
        "http.route": INIT,
        "url.path": INIT,
        "http.response.status_code": 200,
    }
    assert asked.attributes["url.full"].endswith("/v1/transactions/init-producer-id")
    assert asked.attributes["server.port"] == address_of(asked.attributes["url.full"])[1]
    assert decided.began_ns <= commit.began_ns <= commit.ended_ns <= decided.ended_ns
    assert commit.attributes["pidkeeper.term"] >= 1
    assert commit.attributes["pidkeeper.index"] >= 1
    assert commit.attributes["pidkeeper.batch.requests"] >= 1
    assert commit.attributes["pidkeeper.batch.records"] >= 1


def test_who_is_not_recorded_is_not_recorded_further_on_either(collector: Collector, agent: Agent) -> None:
    unrecorded, recorded = secrets.token_hex(16), secrets.token_hex(16)
    init(agent, "quiet", f"00-{unrecorded}-{secrets.token_hex(8)}-00")
    init(agent, "loud", f"00-{recorded}-{secrets.token_hex(8)}-01")
    wait_until(lambda: len(collector.trace(recorded)) >= 4, "the spans of the request behind it")
    assert collector.trace(unrecorded) == []
    # Nor as traces that begin at the controller, which would be two then.
    inits = [span for span in collector.spans if span.name == "POST /v1/transactions/init-producer-id"]
    assert all(span.parent_id for span in inits)


def test_a_request_of_kafkas_protocol_begins_a_trace_if_it_waits_for_the_quorum(
    collector: Collector, agent: Agent
) -> None:
    before = metrics(agent)["pidkeeper_agent_claims_total"]
    for name in (None, "by-kafka"):
        fields = {"transactional_id": name, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
        frame = kafka_python_request("init_producer_id", 4, 1, "c", **fields)
        answer = exchange(agent.kafka, struct.pack(">i", len(frame)) + frame, wanted=FLEXIBLE_FRAME.size)
        assert kafka_python_response("init_producer_id", 4, answer[4:]).error_code == 0
    assert metrics(agent)["pidkeeper_agent_claims_total"] > before
    (served,) = wait_until(
        lambda: [span for span in collector.spans if span.name == "InitProducerId"], "the span of a Kafka request"
    )
    assert (served.service, served.kind, served.parent_id) == (AGENT, SERVER, "")
    assert served.attributes == {"rpc.system.name": "kafka", "rpc.method": "InitProducerId"}
    wait_until(lambda: len(collector.trace(served.trace_id)) >= 4, "the spans below it")
    spans = collector.trace(served.trace_id)
    assert [span.name for span in spans[1:]] == ["POST", "POST /v1/transactions/init-producer-id", "commit"]
    check_chain(spans, "")


def test_a_prefetch_round_is_a_trace_with_its_allocations(collector: Collector, agent: Agent) -> None:
    rounds = wait_until(
        lambda: [span for span in collector.spans if span.name == "prefetch"], "the span of the first fill"
    )
    blocks = rounds[0].attributes["pidkeeper.blocks"]
    assert (rounds[0].kind, rounds[0].parent_id) == (INTERNAL, "")
    wait_until(lambda: len(collector.trace(rounds[0].trace_id)) >= 3 + blocks, "the spans of its allocations")
    spans = collector.trace(rounds[0].trace_id)
    asked = [span for span in spans if span.kind == CLIENT]
    assert [span.parent_id for span in asked] == [rounds[0].span_id], "a round is one request"
    served = [span for span in spans if span.name == "POST /v1/producer-ids/allocate"]
    assert {span.parent_id for span in served} == {span.span_id for span in asked}
    commits = [span for span in spans if span.name == "commit"]
    assert {span.parent_id for span in commits} == {span.span_id for span in served}
    assert sum(1 for _ in commits) == blocks


def test_services_say_who_they_are(collector: Collector, agent: Agent) -> None:
    init(agent, "named")
    wait_until(lambda: {one["service.name"] for one in collector.resources} == {AGENT, CONTROLLER}, "both services")
    assert {(one["service.name"], one["service.instance.id"]) for one in collector.resources} == {
        (AGENT, str(agent.id)),
        (CONTROLLER, "1"),
    }


def test_a_collector_that_stalls_is_nothing_to_clients_and_keeps_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_collector() as stalled:
        stalled.stalls = True
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", stalled.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "16")
        monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "16")
        with running_cluster(
            tmp_path, controllers=1, agents=1, controller_options=TRACED, agent_options=TRACED
        ) as cluster:
            (agent,) = cluster.layout.agents
            assert stalled.asked.wait(60)
            given = [init(agent, f"name-{number}")["producer_id"] for number in range(40)]
            assert len(set(given)) == 40, "more spans than the queue holds"
            # The controller leaves with 1 if it takes longer than it says; an agent that takes longer is killed.
            assert cluster.stop() == {"controller-1": 0, f"agent-{agent.id}": 0}
        assert stalled.spans == []


@pytest.mark.parametrize("service", ["controller", "broker_agent"])
def test_without_the_packages_a_service_says_what_to_install(
    service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(CONFIGS[service].format(directory=tmp_path))
    program = (
        "import sys; sys.modules['opentelemetry'] = None; sys.argv = ['x', sys.argv[1]]\n"
        f"import runpy; runpy.run_module('pidkeeper.{service}', run_name='__main__')"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(config)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2, ended
    assert ended.stderr.startswith('tracing: "otlp" needs the packages of the extra `otel`: install pidkeeper[otel]')


CONFIGS = {
    "controller": """
node_id = 1
cluster_id = "c"
data_dir = "{directory}"
http_listen = "127.0.0.1:0"
peer_listen = "127.0.0.1:0"
tracing = "otlp"
voters = [{{ id = 1, peer = "127.0.0.1:1", http = "http://127.0.0.1:1" }}]
""",
    "broker_agent": """
broker_id = 1
controllers = ["http://127.0.0.1:1"]
http_listen = "127.0.0.1:0"
kafka_listen = "127.0.0.1:0"
tracing = "otlp"
""",
}


def test_what_is_off_is_not_even_imported() -> None:
    program = """
import sys
import pidkeeper.broker_agent.server, pidkeeper.controller.server
from pidkeeper.service.tracing_setting import load_tracer
assert load_tracer("off", "x", 1) is None
print([name for name in sys.modules if name.startswith(("opentelemetry", "requests"))])
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "[]\n"
