from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import aiohttp

from bench.floor import ALLOCATE_PATH, HOST, Floor, Leader
from pidkeeper.protocol.ids import DEFAULT_BLOCK_SIZE

RECORD = struct.Struct(">q24x")


async def test_a_leader_alone_answers_nothing(tmp_path: Path) -> None:
    leader = Leader(tmp_path / "leader")
    waiting = leader.allocate()
    async with asyncio.timeout(10):
        while not starts_in(tmp_path / "leader"):  # noqa: ASYNC110 - a test may poll
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)
    assert not waiting.done()


async def test_what_is_answered_is_in_order_and_on_two_disks(tmp_path: Path) -> None:
    with Floor(tmp_path) as floor:
        url = f"http://{HOST}:{floor.http_port}{ALLOCATE_PATH}"

        async def allocate() -> int:
            async with session.post(url, json={"broker_id": 1, "broker_epoch": 1}) as response:
                assert response.status == 200
                return int((await response.json())["producer_id_start"])

        async with aiohttp.ClientSession() as session:
            answered = [await allocate() for _ in range(3)]
            answered += await asyncio.gather(*(allocate() for _ in range(50)))
        expected = [number * DEFAULT_BLOCK_SIZE for number in range(53)]
        assert sorted(answered) == expected
        logs = {path.name: starts_in(path) for path in logs_in(tmp_path)}
        assert logs.pop("leader.log") == expected
        assert len(logs) == 2 and expected in logs.values()


def logs_in(directory: Path) -> list[Path]:
    return list(directory.glob("*.log"))


def starts_in(log: Path) -> list[int]:
    """Block starts in a log; records of zeroes are what was not written yet."""
    data = log.read_bytes()[: 32 * 100]
    return [start for (start,), record in zip(RECORD.iter_unpack(data), chunks(data), strict=True) if any(record)]


def chunks(data: bytes) -> list[bytes]:
    return [data[at : at + RECORD.size] for at in range(0, len(data), RECORD.size)]
