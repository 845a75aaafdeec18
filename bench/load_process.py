"""Loads run in processes of their own: a spec goes in over stdin, a result comes out on stdout, both as JSON."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec
import uvloop

from pidkeeper.cli.local_cluster import import_root

DRAIN_POLLS: Final = 500
DRAIN_POLL_SECONDS: Final = 0.01
"""Requests that are unanswered this long after the run (5 s) are reported as such."""

LOAD_START_SECONDS: Final = 30.0
"""What a load's process may take on top of its run: starting, draining, and checking a few million ids."""

_Spec = TypeVar("_Spec")
_Result = TypeVar("_Result")


def serve(spec_type: type[_Spec], run: Callable[[_Spec], Awaitable[_Result]]) -> None:
    """The child's side: read the spec, run the load, print the result."""
    spec = msgspec.json.decode(sys.stdin.buffer.read(), type=spec_type)

    async def main() -> _Result:
        return await run(spec)

    result = msgspec.json.encode(uvloop.run(main()))
    # Not sys.stdout.buffer: under PYTHONUNBUFFERED it is a raw file, whose write may take a part only.
    with open(sys.stdout.fileno(), "wb", closefd=False) as output:
        output.write(result)


def run_load(module: str, spec: msgspec.Struct, result_type: type[_Result], seconds: float) -> _Result:
    """The parent's side. Raises RuntimeError or TimeoutExpired (after `seconds`) if no result comes."""
    process = subprocess.run(
        [sys.executable, "-m", module],
        input=msgspec.json.encode(spec),
        stdout=subprocess.PIPE,
        cwd=import_root(),
        timeout=seconds,
        check=False,
    )
    if process.returncode != 0:
        raise RuntimeError(f"{module} ended with {process.returncode}; the reason is on stderr")
    try:
        return msgspec.json.decode(process.stdout, type=result_type)
    except msgspec.DecodeError as error:
        raise RuntimeError(f"{module} printed {len(process.stdout)} bytes that are no result: {error}") from error
