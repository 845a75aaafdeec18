"""A process that claims IDs over the Kafka wire: `python -m bench.claim_load` with a spec on stdin."""

from __future__ import annotations

import asyncio
import time

import msgspec

from bench.figures import repeats
from bench.load_process import DRAIN_POLL_SECONDS, DRAIN_POLLS, serve
from pidkeeper.cli.kafka_load import ClaimTally, connect
from pidkeeper.service.tls import client_context
from pidkeeper.service.tls_files import TlsFiles


class ClaimSpec(msgspec.Struct, frozen=True):
    """What to do: `connections` to `address`, each with `in_flight` requests, for `warmup` plus `seconds` seconds.

    `tls`: over TLS, with these files.
    """

    address: str
    connections: int
    in_flight: int
    seconds: float
    warmup: float
    tls: TlsFiles | None = None


class ClaimResult(msgspec.Struct, frozen=True):
    """`rate` (IDs a second) and `client_cpu` (a share of a core) are of the time after the warm-up.

    The other figures cover the whole run.
    """

    rate: float
    claims: int
    first: int
    last: int
    repeated: int
    errors: dict[int, int]
    failures: list[str]
    longest_gap_ms: float
    client_cpu: float


async def run(spec: ClaimSpec) -> ClaimResult:
    """Run the load. Raises OSError if a connection is refused."""
    tally = ClaimTally()
    context = None if spec.tls is None else client_context(spec.tls)
    connections = [await connect(spec.address, tally, repeat=True, context=context) for _ in range(spec.connections)]
    for connection in connections:
        connection.send(spec.in_flight)
    await asyncio.sleep(spec.warmup)
    started, before, cpu = time.perf_counter(), tally.claims, time.process_time()
    await asyncio.sleep(spec.seconds)
    elapsed, claims, cpu = time.perf_counter() - started, tally.claims - before, time.process_time() - cpu
    for connection in connections:
        connection.repeat = False
    for _ in range(DRAIN_POLLS):
        if not any(one.outstanding and not one.closed.done() for one in connections):
            break
        await asyncio.sleep(DRAIN_POLL_SECONDS)
    failures = [one.failure for one in connections if one.failure is not None]
    if unanswered := sum(one.outstanding for one in connections):
        failures.append(f"{unanswered} requests were not answered")
    for connection in connections:
        connection.close()
    return ClaimResult(
        rate=claims / elapsed,
        claims=tally.claims,
        first=min(tally.ids, default=-1),
        last=max(tally.ids, default=-1),
        repeated=repeats(tally.ids),
        errors=dict(tally.errors),
        failures=failures,
        longest_gap_ms=tally.longest_gap * 1000.0,
        client_cpu=cpu / elapsed,
    )


if __name__ == "__main__":
    serve(ClaimSpec, run)
