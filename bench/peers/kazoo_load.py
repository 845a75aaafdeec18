"""A process that takes blocks from KIP-730's znode by kazoo: `python -m bench.peers.kazoo_load` with a spec on stdin.

Each of N callers is a thread with a client of its own, as that library is meant to be used.
"""

from __future__ import annotations

import threading
import time

import msgspec
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException

from bench.closed_loop import SUCCESS, LoadResult, Tally, measure
from bench.load_process import serve
from bench.peers import jute
from bench.peers.nodes import HOST
from bench.peers.zookeeper_load import BLOCK_PATH, block_from, next_start

SESSION_SECONDS = jute.SESSION_MILLISECONDS / 1000.0
CONNECT_SECONDS = 15.0


class KazooLoadSpec(msgspec.Struct, frozen=True):
    """What to do at the server that listens on `port`."""

    port: int
    callers: int
    seconds: float
    warmup: float


def allocate_all(client: KazooClient, tally: Tally) -> None:
    """One block after the other, until the tally says that it is over."""
    begun = time.perf_counter()
    try:
        while tally.repeat:
            start = _attempt(client)
            tally.statuses[SUCCESS if start is not None else str(jute.BAD_VERSION)] += 1
            if start is not None:
                tally.starts.append(start)
                tally.latencies.append(time.perf_counter() - begun)
                begun = time.perf_counter()
    except KazooException as error:
        tally.failures.append(f"{type(error).__name__}: {error}")


def _attempt(client: KazooClient) -> int | None:
    data, stat = client.get(BLOCK_PATH)
    start = next_start(data)
    try:
        client.set(BLOCK_PATH, block_from(start), stat.version)
    except BadVersionError:
        return None
    return start


async def run(spec: KazooLoadSpec) -> LoadResult:
    """Run the load. Raises ValueError if nobody got a block, KazooTimeoutError if there is no session in time."""
    tally = Tally()
    clients = [KazooClient(f"{HOST}:{spec.port}", timeout=SESSION_SECONDS) for _ in range(spec.callers)]
    threads = [threading.Thread(target=allocate_all, args=(client, tally)) for client in clients]
    try:
        for client in clients:
            client.start(CONNECT_SECONDS)
        for thread in threads:
            thread.start()
        return await measure(
            tally, lambda: sum(thread.is_alive() for thread in threads), warmup=spec.warmup, seconds=spec.seconds
        )
    finally:
        tally.repeat = False
        for client in clients:
            client.stop()
            client.close()


if __name__ == "__main__":
    serve(KazooLoadSpec, run)
