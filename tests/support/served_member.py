"""A member in memory whose HTTP interface is served by a thread of its own, for commands that ask it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

from click.testing import CliRunner, Result

from pidkeeper.cli.main import cli
from pidkeeper.controller.api.app import build_app
from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.service.server import HttpServer
from tests.support.memory_member import MemoryMember


class ServedMember:
    """Served at `url`, once `prepare` was called with it, until it is closed. `run` runs a `group` of commands."""

    def __init__(self, group: str, prepare: Callable[[MemoryMember], None]) -> None:
        self._group = group
        self._prepare = prepare
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._started.wait(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self.member = MemoryMember()
        self._prepare(self.member)
        self._end = asyncio.Event()
        server = HttpServer(build_app(self.member, limits=ApiLimits()))
        host, port = await server.start("127.0.0.1", 0)
        self.url = f"http://{host}:{port}"
        self._started.set()
        await self._end.wait()
        await server.stop(1.0)

    def close(self) -> None:
        """Serve no more."""
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    def run(self, *arguments: str, typed: str | None = None) -> Result:
        """A command of the group asks this member; `typed` is its input."""
        options = ["-c", self.url, "--timeout", "5"]
        return CliRunner().invoke(cli, [self._group, *arguments, *options], input=typed)

    def rows(self, *arguments: str) -> list[list[str]]:
        """The cells of a table, the names of the columns included."""
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        lines = [line for line in result.stdout.splitlines() if line.strip() and "─" not in line]
        return [line.split() for line in lines]

    def json(self, *arguments: str) -> Any:
        """What is in the document, beside the version of its schema."""
        result = self.run(*arguments, "--output", "json")
        assert result.exit_code == 0, result.output
        document = json.loads(result.stdout)
        assert document.pop("schema_version") == 1
        return document
