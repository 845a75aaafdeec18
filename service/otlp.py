"""Spans by OpenTelemetry's SDK, to a collector over OTLP/HTTP. Nothing else knows OpenTelemetry.

Its own environment variables say where to, what is sampled, and how much is kept. A thread of its own exports what a
bounded queue holds; what does not fit is dropped. So a collector that stalls, refuses or lies costs its spans alone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import requests
from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from pidkeeper.protocol.errors import RequestError
from pidkeeper.service.build import build_version
from pidkeeper.service.logs import filter_each_line
from pidkeeper.service.settings import SettingsError
from pidkeeper.service.tracing import SERVER_ERROR, Attributes

COMPLAINT_SECONDS: Final = 60.0
"""Between two lines of the log about one trouble of the exporter's: it goes on for as long as the collector is away."""

_PROTOCOL: Final = "http/protobuf"
_PROPAGATOR: Final = TraceContextTextMapPropagator()
_ROOT: Final = Context()


class OtelSpan:
    """A span of the SDK."""

    __slots__ = ("_span",)

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def set(self, name: str, value: str | int) -> None:
        """As `Span.set`."""
        self._span.set_attribute(name, value)

    def fail(self, error_type: str) -> None:
        """As `Span.fail`."""
        self._span.set_attribute("error.type", error_type)
        self._span.set_status(StatusCode.ERROR)


class OtlpTracer:
    """As `Exporter`. Made once in a process; a thread of it runs from then on.

    `service`, `instance`: as in `load_tracer`. Raises SettingsError.
    """

    def __init__(self, service: str, instance: int) -> None:
        _check_variables(os.environ)
        with _without_complaints():
            self._provider = TracerProvider(resource=_resource(service, instance), shutdown_on_exit=False)
            self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(session=_Session())))
        self._tracer = self._provider.get_tracer("pidkeeper", build_version())

    def mark_log_lines(self) -> None:
        """As `Exporter.mark_log_lines`."""
        filter_each_line(SpanInLine())
        filter_each_line(Measured())

    async def flush(self, seconds: float) -> None:
        """As `Exporter.flush`."""
        # Not by a thread of the loop's own, for which the end of the process waits.
        last = threading.Thread(target=self._provider.shutdown, daemon=True)
        last.start()
        await asyncio.to_thread(last.join, seconds)

    @contextmanager
    def server_span(
        self, name: str, attributes: Attributes, headers: Mapping[str, str] | None = None
    ) -> Iterator[OtelSpan]:
        """As `Tracer.server_span`."""
        parent = _ROOT if headers is None else _PROPAGATOR.extract(headers)
        with self._current(name, SpanKind.SERVER, attributes, parent, _is_own_fault) as span:
            yield span

    @contextmanager
    def client_span(self, name: str, attributes: Attributes) -> Iterator[OtelSpan]:
        """As `Tracer.client_span`."""
        with self._current(name, SpanKind.CLIENT, attributes) as span:
            yield span

    @contextmanager
    def internal_span(self, name: str, attributes: Attributes) -> Iterator[OtelSpan]:
        """As `Tracer.internal_span`."""
        with self._current(name, SpanKind.INTERNAL, attributes) as span:
            yield span

    def headers(self) -> Mapping[str, str]:
        """As `Tracer.headers`."""
        found: dict[str, str] = {}
        _PROPAGATOR.inject(found)
        return found

    def recorded(self) -> Context | None:
        """As `Tracer.recorded`."""
        span = trace.get_current_span()
        return trace.set_span_in_context(span, _ROOT) if span.is_recording() else None

    def add(self, name: str, parent: object, took_ns: int, attributes: Attributes) -> None:
        """As `Tracer.add`."""
        assert isinstance(parent, Context), f"{parent!r} is no parent that this tracer gave"
        ended = time.time_ns()
        span = self._tracer.start_span(name, parent, attributes=attributes, start_time=ended - took_ns)
        span.end(ended)

    @contextmanager
    def _current(
        self,
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        parent: Context | None = None,
        is_fault: Callable[[BaseException], bool] = lambda _: True,
    ) -> Iterator[OtelSpan]:
        span = self._tracer.start_span(name, parent, kind, attributes)
        token = attach(trace.set_span_in_context(span))
        made = OtelSpan(span)
        try:
            yield made
        except BaseException as error:
            # The kind alone: what is said of it may hold what a caller sent.
            made.set("error.type", _kind(error))
            if is_fault(error):
                made.fail(_kind(error))
            raise
        finally:
            detach(token)
            span.end()


class SpanInLine(logging.Filter):
    """Adds the current span to a record, as `trace_id` and `span_id`, while it lasts."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always true."""
        span = trace.get_current_span()
        if span.is_recording():
            context = span.get_span_context()
            record.trace_id = trace.format_trace_id(context.trace_id)
            record.span_id = trace.format_span_id(context.span_id)
        return True


class Measured(logging.Filter):
    """Lets through one line of each cause within OpenTelemetry per COMPLAINT_SECONDS. `clock()`: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        # Cause -> when its next line may pass. As many as there are places in OpenTelemetry that log.
        self._next: dict[tuple[str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is logged."""
        if not record.name.startswith("opentelemetry."):
            return True
        cause, now = (record.pathname, record.lineno), self._clock()
        if now < self._next.get(cause, now):
            return False
        self._next[cause] = now + COMPLAINT_SECONDS
        return True


class _Session(requests.Session):
    """Reads the status of an answer and none of its body: whoever answers could send one without an end."""

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        response = super().request(*args, **{**kwargs, "stream": True})
        response.close()
        return response


class _Complaints(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextmanager
def _without_complaints() -> Iterator[None]:
    """Raises SettingsError for what the SDK would log of its variables, and then not heed."""
    logger, complaints = logging.getLogger("opentelemetry"), _Complaints()
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(complaints)
    try:
        yield
    except (ValueError, RuntimeError, ImportError) as error:
        raise SettingsError(f"tracing: OpenTelemetry cannot use its variables: {error}") from error
    finally:
        logger.removeHandler(complaints)
        logger.propagate = propagated
    if complaints.messages:
        raise SettingsError(f"tracing: OpenTelemetry says of its variables: {'; '.join(complaints.messages)}")


def _check_variables(environment: Mapping[str, str]) -> None:
    """Raises SettingsError for what the SDK would find out with the first span, or never."""
    for suffix in ("TRACES_PROTOCOL", "PROTOCOL"):
        name = f"OTEL_EXPORTER_OTLP_{suffix}"
        if (protocol := environment.get(name, "")) not in {"", _PROTOCOL}:
            raise SettingsError(f"{name}: {protocol!r} is not spoken here; leave it out, or say {_PROTOCOL}")
    for suffix in ("TRACES_ENDPOINT", "ENDPOINT"):
        name = f"OTEL_EXPORTER_OTLP_{suffix}"
        if (endpoint := environment.get(name, "")) and not endpoint.startswith(("http://", "https://")):
            raise SettingsError(f"{name}: it is no URL like http://127.0.0.1:4318")


def _resource(service: str, instance: int) -> Resource:
    """Who exports: what the variables say, and what they leave open."""
    said = OTELResourceDetector().detect().attributes
    own = {"service.name": service, "service.instance.id": str(instance), "service.version": build_version()}
    return Resource.create({**own, **said})


def _kind(error: BaseException) -> str:
    return error.code.name if isinstance(error, RequestError) else type(error).__name__


def _is_own_fault(error: BaseException) -> bool:
    """Whether a server has failed, rather than refused what its caller asked for."""
    return not isinstance(error, RequestError) or error.code.http_status >= SERVER_ERROR
