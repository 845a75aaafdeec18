"""The setting `tracing`: whether a service exports traces, and the packages that this takes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Literal

from pidkeeper.service.settings import SettingsError
from pidkeeper.service.tracing import Exporter, Tracer

Tracing = Literal["off", "otlp"]

FLUSH_SECONDS: Final = 1.0
"""How long a stop waits for the last spans to be taken by the collector."""


def load_tracer(setting: Tracing, service: str, instance: int) -> Exporter | None:
    """What exports the spans of this process; None, and no import, for "off".

    `service`, `instance`: its name and the number that it has among those of this name, unless OpenTelemetry's own
    variables say otherwise. Raises SettingsError if the packages are missing, and for variables that cannot be used.
    """
    if setting == "off":
        return None
    try:
        from pidkeeper.service.otlp import OtlpTracer
    except ImportError as error:
        raise SettingsError(
            f'tracing: "otlp" needs the packages of the extra `otel`: install pidkeeper[otel] ({error})'
        ) from error
    return OtlpTracer(service, instance)


@asynccontextmanager
async def exporting(tracer: Exporter | None) -> AsyncIterator[Tracer | None]:
    """Export meanwhile. At the end, what is left, for FLUSH_SECONDS at most."""
    if tracer is None:
        yield None
        return
    tracer.mark_log_lines()
    try:
        yield tracer
    finally:
        await tracer.flush(FLUSH_SECONDS)
