"""One raftos node with a control port: a free one, and it ends when its standard input is closed; or a given one.

The node allocates the way raftos documents a replicated value: read ``next_pid``, then set it to the value read plus
one; the id handed out is the value read. Nothing there keeps two callers from reading the same value, so the node
serves one allocation at a time. Its control port takes one JSON object a line and answers with one:
``{"op": "state"}``, ``{"op": "next"}`` (the id it would hand out) and ``{"op": "allocate"}``.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import logging
import sys
from typing import Any

from bench.peers import raftos_shim
from bench.peers.control_port import serve_control

raftos_shim.install()
# raftos reports each datagram to the killed node; asyncio's own log stays on, so a callback that raises is seen.
logging.getLogger("raftos").setLevel(logging.CRITICAL)

import raftos  # noqa: E402 - the shim has to come first
from raftos.serializers import JSONSerializer  # noqa: E402
from raftos.server import Node  # noqa: E402

COUNTER = "next_pid"
ALLOCATE_SECONDS = 2.0
"""Seven heartbeats. At a given port, where many ask, one that gets no answer must not hold up all others for ever."""

_one_at_a_time = asyncio.Lock()


def describe_state() -> dict[str, Any]:
    """What this node holds: role, term, log length, commit and applied index, and its own view of the counter."""
    state = Node.nodes[0].state
    return {
        "role": type(state.state).__name__,
        "term": state.storage.term if state.storage.exists("term") else 0,
        "log": [entry["command"] for entry in state.log.cache],
        "commit": state.log.commit_index,
        "applied": state.log.last_applied,
    }


async def next_id() -> int:
    """The id that this node would hand out now. A fresh object, so that the answer comes from raftos each time."""
    value: int = await raftos.Replicated(COUNTER, default=0).get()
    return value


async def allocate(seconds: float | None) -> int:
    """Hands out one id; returns when raftos has reported the new value as committed and applied."""
    async with _one_at_a_time, asyncio.timeout(seconds):
        value = await next_id()
        await raftos.Replicated(COUNTER, default=0).set(value + 1)
        return value


async def answer(request: dict[str, Any], seconds: float | None = None) -> dict[str, Any]:
    """`seconds`: when to give up on an allocation; None for never."""
    match request["op"]:
        case "state":
            return describe_state()
        case "next":
            return {"id": await next_id()}
        case "allocate":
            return {"id": await allocate(seconds)}
        case other:
            return {"error": f"unknown op {other!r}: use state, next or allocate"}


async def run(address: str, cluster: list[str], log_path: str, control_port: int) -> None:
    raftos.configure({"log_path": log_path, "serializer": JSONSerializer})
    await raftos.register(address, cluster=cluster, loop=asyncio.get_running_loop())
    bounded = functools.partial(answer, seconds=ALLOCATE_SECONDS if control_port else None)
    server = await serve_control(bounded, control_port)
    print(json.dumps({"control_port": server.sockets[0].getsockname()[1]}), flush=True)
    if control_port:
        await server.serve_forever()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def main() -> None:
    parser = argparse.ArgumentParser(description="one raftos node with a control port")
    parser.add_argument("--address", required=True, help="host:port of this node (UDP)")
    parser.add_argument("--cluster", required=True, help="comma-separated host:port of all nodes")
    parser.add_argument("--log-path", required=True, help="directory for the node's files, ending in a slash")
    parser.add_argument("--control-port", type=int, default=0, help="where it takes requests (default: any free port)")
    args = parser.parse_args()
    asyncio.run(run(args.address, args.cluster.split(","), args.log_path, args.control_port))


if __name__ == "__main__":
    main()
