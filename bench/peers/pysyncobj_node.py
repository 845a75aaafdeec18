"""One PySyncObj node with a control port, with journal and dump file. It never syncs them: see `pysyncobj_nosync`.

Its control port takes one JSON object a line and answers with one: ``{"op": "state"}`` and ``{"op": "allocate"}``.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

from pysyncobj import SyncObj, SyncObjConf, replicated  # type: ignore[import-not-found]

from bench.peers.control_port import serve_control


class Counter(SyncObj):  # type: ignore[misc]
    """The replicated state: the next id."""

    def __init__(self, address: str, others: list[str], directory: Path) -> None:
        self._next = 0
        conf = SyncObjConf(
            journalFile=str(directory / "journal"),
            fullDumpFile=str(directory / "dump"),
            # What its documentation advises where single requests should be fast.
            appendEntriesUseBatch=False,
        )
        super().__init__(address, others, conf)

    @replicated  # type: ignore[untyped-decorator]
    def take(self) -> int:
        """Hand out the next id. Applied by every node in the order of the log."""
        self._next += 1
        return self._next - 1


async def allocate(counter: Counter) -> dict[str, Any]:
    """The id, or why there is none; its callback comes in a thread of its own."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[tuple[int | None, int]] = loop.create_future()

    def answer(result: tuple[int | None, int]) -> None:
        if not answered.done():
            answered.set_result(result)

    counter.take(callback=lambda value, failure: loop.call_soon_threadsafe(answer, (value, failure)))
    value, failure = await answered
    return {"error": f"reason {failure}"} if failure else {"id": value}


async def run(address: str, others: list[str], directory: Path, port: int) -> None:
    counter = Counter(address, others, directory)

    async def answer(request: dict[str, Any]) -> dict[str, Any]:
        match request["op"]:
            case "state":
                leads = counter.isReady() and counter._isLeader()
                return {"role": "Leader" if leads else "Follower" if counter.isReady() else "starting"}
            case "allocate":
                return await allocate(counter)
            case other:
                return {"error": f"unknown op {other!r}: use state or allocate"}

    await (await serve_control(answer, port)).serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description="one PySyncObj node with a control port")
    parser.add_argument("--address", required=True, help="host:port of this node")
    parser.add_argument("--others", required=True, help="comma-separated host:port of the other nodes")
    parser.add_argument("--directory", required=True, type=Path, help="where its files go")
    parser.add_argument("--control-port", required=True, type=int, help="where it takes requests")
    args = parser.parse_args()
    asyncio.run(run(args.address, args.others.split(","), args.directory, args.control_port))


if __name__ == "__main__":
    main()
