"""The time between two restores: clients write a topic and read it, and all of it is judged when the time is over."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.messages import AllocatedBlock
from tests.chaos.checker import Verdict, check
from tests.chaos.ledgers import LEDGER, Ledger
from tests.chaos.load.crew import RECORDS, RECORDS_END_SECONDS, RECORDS_LIBRARY, RECORDS_MODULE
from tests.chaos.load.journal import OPERATIONS, entries
from tests.chaos.load.kafka_clients import KafkaClients
from tests.chaos.load.records_process import PARTITIONS
from tests.cuts.offsets import holes
from tests.cuts.stage import Stage

CREATE_SECONDS: Final = 30.0
FLOW_SECONDS: Final = 30.0
"""Within which records are acknowledged again once all members are ready: three times what a client waits at most."""
LOOK_SECONDS: Final = 0.02
_ACKNOWLEDGED: Final = b'"outcome":"ok"'


class StalledError(AssertionError):
    """No record is acknowledged any more."""


class Era:
    """`journal`: what clients were told. `topic`: where they write; `clients`: the process."""

    def __init__(self, stage: Stage, directory: Path, number: int) -> None:
        self.topic = f"records-{number}"
        self.journal = directory / f"era-{number}"
        self._read = self._count = 0
        self._writer = self.journal / f"{RECORDS}-writer{OPERATIONS}"
        self.clients = KafkaClients(
            RECORDS,
            self.journal,
            RECORDS_LIBRARY,
            lambda: (stage.bootstrap,),
            module=RECORDS_MODULE,
            end_seconds=RECORDS_END_SECONDS,
            topic=self.topic,
        )

    def acknowledged(self) -> int:
        """Records of the idempotent producer."""
        if self._writer.exists():
            with self._writer.open("rb") as file:
                file.seek(self._read)
                # Whole lines: an outcome may be half written.
                new = file.read()
            new = new[: new.rfind(b"\n") + 1]
            self._read += len(new)
            self._count += new.count(_ACKNOWLEDGED)
        return self._count

    async def flows(self, more: int = 1) -> None:
        """Wait until `more` records are acknowledged. Raises StalledError."""
        before, deadline = self.acknowledged(), time.monotonic() + FLOW_SECONDS
        while self.acknowledged() < before + more:
            if time.monotonic() > deadline:
                raise StalledError(f"no record of {self.topic} is acknowledged for {FLOW_SECONDS:g} s")
            await asyncio.sleep(LOOK_SECONDS)


@contextlib.asynccontextmanager
async def running(stage: Stage, directory: Path, number: int) -> AsyncIterator[Era]:
    """An era whose clients work while the block runs; at its end all is read once more."""
    era = Era(stage, directory, number)
    era.journal.mkdir(parents=True)
    await asyncio.to_thread(_create, stage.bootstrap, era.topic)
    async with era.clients.running():
        try:
            await era.flows()
            yield era
        except BaseException:
            # Of a cluster that is broken clients would await their last answers for minutes.
            if era.clients.process is not None:
                era.clients.process.kill()
            raise


def judged(era: Era) -> tuple[Verdict, list[str]]:
    """What was found of the records of an era, and what is wrong, in words. Its clients must have ended."""
    block = AllocatedBlock(0, MAX_PRODUCER_ID, 0, 0, 1, 0)
    # The checker compares IDs with what members say of them; nobody has written down any here.
    ledger = Ledger(1, 0, MAX_PRODUCER_ID, [block])
    (era.journal / f"none{LEDGER}").write_bytes(msgspec.json.encode(ledger))
    verdict = check(era.journal)
    wrong = [*verdict.violations, *verdict.fatal_errors, *holes(entries(era.journal))]
    return verdict, [f"{era.topic}: {text}" for text in wrong]


def _create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(CREATE_SECONDS)
