"""A collector of traces: OTLP over HTTP, as the specification has it, on a port of its own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SERVER: Final = 2
CLIENT: Final = 3
INTERNAL: Final = 1
"""Kinds of spans."""

LONG_ANSWER: Final = 64 * 1024 * 1024
"""Bytes: more than anybody reads of an answer that has nothing to say."""


class ReceivedSpan(msgspec.Struct, frozen=True):
    """One span, its ids in hexadecimal ("" for no parent); `service`: who made it."""

    service: str
    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    began_ns: int
    ended_ns: int
    failed: bool
    attributes: dict[str, Any]


class Collector:
    """Keeps what comes. `stalls`: it never answers. `long_winded`: its answers are long; `cut`: one was not read."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self.resources: list[dict[str, Any]] = []
        self.asked = threading.Event()
        self.stalls = self.long_winded = False
        self.cut = threading.Event()
        self.closing = threading.Event()
        self.url = ""

    def take(self, body: bytes) -> None:
        """One request's spans."""
        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = {pair.key: _value(pair.value) for pair in of_resource.resource.attributes}
            self.resources.append(resource)
            for of_scope in of_resource.scope_spans:
                self.spans += [_received(resource["service.name"], span) for span in of_scope.spans]

    def trace(self, trace_id: str) -> list[ReceivedSpan]:
        """The spans of one trace, as they began."""
        return sorted((span for span in self.spans if span.trace_id == trace_id), key=lambda span: span.began_ns)


@contextlib.contextmanager
def running_collector() -> Iterator[Collector]:
    """One that listens until the end of the block."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == "/v1/traces", self.path
            collector.asked.set()
            if collector.stalls:
                collector.closing.wait()
                return
            collector.take(body)
            self.send_response(200)
            self.end_headers()
            if collector.long_winded:
                try:
                    self.wfile.write(b" " * LONG_ANSWER)
                except OSError:
                    collector.cut.set()

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    collector.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield collector
    finally:
        collector.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _received(service: str, span: Any) -> ReceivedSpan:
    return ReceivedSpan(
        service,
        span.name,
        span.kind,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.status.code == span.status.STATUS_CODE_ERROR,
        {pair.key: _value(pair.value) for pair in span.attributes},
    )


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))
