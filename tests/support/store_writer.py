"""`python -m tests.support.store_writer DIRECTORY BYTES` puts objects until it is killed, and prints the name of each
once it is stored."""

from __future__ import annotations

import asyncio
import itertools
import sys

from pidkeeper.broker_agent.data.store.opening import open_store
from pidkeeper.broker_agent.data.store.port import ObjectStore


def content(name: str, size: int) -> bytes:
    """What is put under this name."""
    return (name.encode() * size)[:size]


async def _write(directory: str, size: int) -> None:
    store = open_store(directory, {})
    for number in itertools.count():
        names = [f"{lane}/{number}" for lane in range(3)]
        await asyncio.gather(*(_put(store, name, size) for name in names))
        if number > 2:
            gone = f"0/{number - 3}"
            await store.delete([gone])
            print(f"-{gone}", flush=True)


async def _put(store: ObjectStore, name: str, size: int) -> None:
    await store.put(name, [content(name, size)])
    print(f"+{name}", flush=True)


if __name__ == "__main__":
    asyncio.run(_write(sys.argv[1], int(sys.argv[2])))
