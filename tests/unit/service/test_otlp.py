"""The exporter of spans: what goes into them, and what a collector, a variable or a caller can do to it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress

import pytest
from multidict import CIMultiDict

from pidkeeper.broker_agent.controllers.traced_transport import TracedTransport
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.service.access import Access
from pidkeeper.service.authentication import Authenticator
from pidkeeper.service.logs import EventFormatter
from pidkeeper.service.otlp import COMPLAINT_SECONDS, Measured, OtlpTracer, SpanInLine
from pidkeeper.service.settings import SettingsError
from tests.support.otlp_collector import CLIENT, SERVER, Collector, running_collector
from tests.unit.service.conftest import Arithmetic, build
from tests.unit.service.test_dispatch import request

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
WAIT_SECONDS = 60.0


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with running_collector() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.url)
        yield running


@pytest.fixture
def tracer(collector: Collector) -> OtlpTracer:
    return OtlpTracer("greeter", 3)


class Far:
    """A transport whose member answers with `status`, or not at all."""

    def __init__(self, status: int | None) -> None:
        self.status = status

    async def exchange(
        self, method: str, base_url: str, path: str, body: bytes | None, timeout_seconds: float
    ) -> tuple[int, bytes]:
        if self.status is None:
            raise TimeoutError("the secret of it")
        return self.status, b""


async def test_a_server_span_has_the_route_and_goes_on_with_the_callers_trace(
    collector: Collector, tracer: OtlpTracer, arithmetic: Arithmetic
) -> None:
    app = build(arithmetic, Authenticator(), divide=Access.BROKER, tracer=tracer)
    traceparent = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    assert (await app.dispatch(request("GET", "/divide/17?divisor=5", traceparent))).status == 200
    assert (await app.dispatch(request("GET", "/divide/1?divisor=-1"))).status == 421
    assert (await app.dispatch(request("GET", "/divide/1?divisor=0"))).status == 500
    await tracer.flush(WAIT_SECONDS)
    served, refused, failed = collector.spans
    assert (served.name, served.kind) == ("GET /divide/{number}", SERVER)
    assert (served.trace_id, served.parent_id) == (TRACE, PARENT)
    assert served.attributes == {
        "http.request.method": "GET",
        "http.route": "/divide/{number}",
        "url.path": "/divide/17",
        "http.response.status_code": 200,
    }
    assert [(one.attributes["http.response.status_code"], one.failed) for one in (refused, failed)] == [
        (421, False),
        (500, True),
    ]
    assert refused.parent_id == "" != refused.trace_id != failed.trace_id


async def test_a_client_span_names_the_member_and_no_password(collector: Collector, tracer: OtlpTracer) -> None:
    for status in (200, 421, None):
        transport = TracedTransport(Far(status), tracer)
        with suppress(TimeoutError):
            await transport.exchange("GET", "http://127.0.0.1:1", "/v1/outside-of-any-trace", None, 1.0)
        with tracer.internal_span("above", {}), suppress(TimeoutError):
            await transport.exchange("POST", "http://user:secret@127.0.0.1:7", "/v1/x", b"{}", 1.0)
    await tracer.flush(WAIT_SECONDS)
    assert "secret" not in repr(collector.spans)
    asked = [span for span in collector.spans if span.kind == CLIENT]
    assert [(one.failed, one.attributes.get("error.type")) for one in asked] == [
        (False, None),
        (True, "421"),
        (True, "TimeoutError"),
    ]
    assert asked[0].attributes == {
        "http.request.method": "POST",
        "url.full": "http://127.0.0.1:7/v1/x",
        "server.address": "127.0.0.1",
        "server.port": 7,
        "http.response.status_code": 200,
    }


async def test_a_refusal_is_no_fault_of_the_server(collector: Collector, tracer: OtlpTracer) -> None:
    for code in (ErrorCode.PRODUCER_FENCED, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        with suppress(RequestError), tracer.server_span("InitProducerId", {}):
            raise RequestError(code, "with words of the caller's")
    await tracer.flush(WAIT_SECONDS)
    assert [(one.failed, one.attributes) for one in collector.spans] == [
        (False, {"error.type": "PRODUCER_FENCED"}),
        (True, {"error.type": "COORDINATOR_LOAD_IN_PROGRESS"}),
    ]


async def test_a_line_of_the_log_names_the_span_while_it_lasts(collector: Collector, tracer: OtlpTracer) -> None:
    def line() -> str:
        record = logging.LogRecord("pidkeeper.x", logging.INFO, "x.py", 1, "told", (), None)
        assert SpanInLine().filter(record)
        return EventFormatter("text").format(record)

    headers = CIMultiDict({"Traceparent": f"00-{TRACE}-{PARENT}-01"})
    assert "trace_id" not in line()
    with tracer.server_span("x", {}, headers):
        within = line()
    assert "trace_id" not in line()
    await tracer.flush(WAIT_SECONDS)
    (span,) = collector.spans
    assert within.endswith(f"told trace_id={TRACE} span_id={span.span_id}")


def test_one_trouble_of_the_exporters_is_told_once_a_minute() -> None:
    now = [0.0]
    measured = Measured(lambda: now[0])

    def passes(name: str, number: int = 1) -> bool:
        return measured.filter(logging.LogRecord(name, logging.ERROR, "x.py", number, "away", (), None))

    assert passes("opentelemetry.exporter")
    now[0] = COMPLAINT_SECONDS - 0.1
    assert not passes("opentelemetry.exporter")
    assert passes("opentelemetry.exporter", 2), "another trouble"
    assert passes("pidkeeper.x")
    assert passes("pidkeeper.x")
    now[0] = COMPLAINT_SECONDS
    assert passes("opentelemetry.exporter")


async def test_of_an_answer_nothing_but_its_status_is_read(collector: Collector, tracer: OtlpTracer) -> None:
    collector.long_winded = True
    with tracer.internal_span("x", {}):
        pass
    await tracer.flush(WAIT_SECONDS)
    assert collector.cut.wait(WAIT_SECONDS)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318", "OTEL_EXPORTER_OTLP_ENDPOINT: it is no URL"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "x", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: it is no URL"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' is not spoken here"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon", "Invalid timeout value 'soon'"),
        ("OTEL_TRACES_SAMPLER", "sometimes", "sampler sometimes"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "-1", "max_queue_size must be a positive integer"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "many", "OTEL_BSP_MAX_QUEUE_SIZE"),
    ],
)
def test_a_variable_that_cannot_be_used_is_refused(
    name: str, value: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=reason):
        OtlpTracer("greeter", 3)
