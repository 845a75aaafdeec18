"""The real Kafka clients as actors: each library in a process of its own, which is started again should it end."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tests.chaos.load.actor import Addresses
from tests.chaos.load.journal import ActorJournal
from tests.chaos.load.kafka_process import RECORDS_TOPIC, Spec
from tests.chaos.load.kinds import FATAL
from tests.clients.java_witness import REPOSITORY
from tests.clients.security import Security

IDS_PER_LIBRARY: Final = 2
PROCESS: Final = "tests.chaos.load.kafka_process"
END_SECONDS: Final = 20.0
"""After which a process that does not end by itself is killed; a library closes its producers within 5 s."""
RESTART_SECONDS: Final = 1.0


class KafkaClients:
    """Transactional producers of one library; `LIBRARIES` of kafka_process are the names.

    `module`: another program that reads the same spec, and has `end_seconds` to end by itself.
    `program`: the words before the interpreter, such as `preloaded` gives them; asked for at each start. `security`:
    where the agents take no plaintext. `topic`: for records. `last`: as of `Spec`. A process that ends although nobody
    stopped it counts as a fatal error.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        library: str,
        kafka: Addresses,
        *,
        program: Callable[[], Sequence[str]] = list,
        ids: int = IDS_PER_LIBRARY,
        security: Security | None = None,
        module: str = PROCESS,
        end_seconds: float = END_SECONDS,
        topic: str = RECORDS_TOPIC,
        last: bool = False,
    ) -> None:
        self.name = name
        self.library = library
        self.process: asyncio.subprocess.Process | None = None
        """The one that runs, if one does."""
        self._directory = directory.resolve()
        self._kafka = kafka
        self._program = program
        self._security = security
        self._module = module
        self._end_seconds = end_seconds
        self._topic = topic
        self._last = last
        self._ids = [f"{name}-{number}" for number in range(ids)]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Have them work while the block runs."""
        with ActorJournal(self._directory, f"{self.name}-process") as journal:
            keeping = asyncio.create_task(self._keep(journal), name=self.name)
            try:
                yield
            finally:
                keeping.cancel()
                await asyncio.wait([keeping])
                await self._end()

    async def _keep(self, journal: ActorJournal) -> None:
        while True:
            self.process = await self._start()
            code = await self.process.wait()
            journal.ok(journal.invoke(FATAL, library=self.library, text=f"the process ended with {code}"))
            await asyncio.sleep(RESTART_SECONDS)

    async def _start(self) -> asyncio.subprocess.Process:
        bootstrap = ",".join(self._kafka())
        spec = Spec(
            self.name,
            str(self._directory),
            self.library,
            bootstrap,
            self._ids,
            self._security,
            self._topic,
            self._last,
        )
        command = [*self._program(), sys.executable, "-W", "ignore", "-m", self._module]
        with (self._directory / f"{self.name}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log, cwd=REPOSITORY, start_new_session=True
            )
        assert process.stdin is not None, "it was asked for"
        process.stdin.write(msgspec.json.encode(spec) + b"\n")
        return process

    async def _end(self) -> None:
        process = self.process
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None, "it was asked for"
        process.stdin.close()
        try:
            async with asyncio.timeout(self._end_seconds):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
