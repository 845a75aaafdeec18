"""Broker agents as real processes, against any controllers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 20.0


class RunningAgent(msgspec.Struct, frozen=True):
    """`kafka`: host:port of its Kafka listener; `http`: its base URL."""

    kafka: str
    http: str


class AgentProcess:
    """One `python -m pidkeeper.broker_agent` on free ports, its log gathered line by line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.log: list[str] = []
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, **settings: object) -> AgentProcess:
        defaults = {"http_listen": "127.0.0.1:0", "kafka_listen": "127.0.0.1:0"}
        variables = {f"PIDKEEPER_AGENT__{key.upper()}": str(value) for key, value in (defaults | settings).items()}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "pidkeeper.broker_agent",
            cwd=ROOT,
            env=os.environ | variables,
            stderr=asyncio.subprocess.PIPE,
        )
        return cls(process)

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.log.append(line.decode().rstrip())

    async def logged(self, pattern: str) -> re.Match[str]:
        """Wait for a log line that matches."""
        async with asyncio.timeout(START_SECONDS):
            while True:
                for line in self.log:
                    if match := re.search(pattern, line):
                        return match
                assert self.process.returncode is None, f"the agent ended: {self.log}"
                await asyncio.sleep(0.02)

    async def addresses(self) -> RunningAgent:
        http = await self.logged(r"HTTP on (\S+)( |$)")
        kafka = await self.logged(r"Kafka listener on (\S+), advertised")
        await self.logged(r"registered broker")
        return RunningAgent(kafka[1], f"http://{http[1]}")

    async def ready(self) -> RunningAgent:
        """Its addresses, once it says that claims will succeed."""
        addresses = await self.addresses()
        async with aiohttp.ClientSession() as session, asyncio.timeout(START_SECONDS):
            while True:
                async with session.get(addresses.http + "/readyz") as response:
                    if response.status == 200:
                        return addresses
                await asyncio.sleep(0.02)

    async def wait(self) -> int:
        """Exit code, once the process has ended and its log is complete."""
        async with asyncio.timeout(START_SECONDS):
            code = await self.process.wait()
            await self._reader
        return code

    async def stop(self) -> int:
        """Ask it to stop, gracefully."""
        if self.process.returncode is None:
            self.process.terminate()
        return await self.wait()


@contextlib.asynccontextmanager
async def agent_process(**settings: object) -> AsyncIterator[AgentProcess]:
    """An agent that is killed at the end if it is still there."""
    agent = await AgentProcess.start(**settings)
    try:
        yield agent
    finally:
        if agent.process.returncode is None:
            agent.process.kill()
        await agent.wait()
