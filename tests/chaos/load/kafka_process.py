"""A process with one real Kafka client library that works as transactional producers do, until its stdin ends.

Each transactional id has one instance after the other. A new one gets its pair while the one before still lives, which
then tries to go on and must be fenced; the new one begins and ends a few transactions. Every step is in the journal.
What the libraries cannot do is left out, as `tests.clients.transactional_witnesses` says of each: aiokafka forgets a
transaction when the group of its offsets is refused, so it adds partitions; librdkafka adds offsets alone; kafka-python
waits for ever for a coordinator that is gone, so each of its steps has an end, and an instance in its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import logging
import os
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgspec

from tests.chaos.load.client_errors import passes, text_of
from tests.chaos.load.journal import ActorJournal, clock
from tests.chaos.load.kinds import FATAL, FENCED, INIT, STEP, ZOMBIE
from tests.clients.java_witness import java_process
from tests.clients.security import Security
from tests.clients.transactional_witnesses import (
    AiokafkaWitness,
    ConfluentWitness,
    FencedError,
    GroupRefusedError,
    JavaWitness,
    KafkaPythonWitness,
    Opener,
    Witness,
)

PYTHON: Final = {one.library: one for one in (AiokafkaWitness, ConfluentWitness, KafkaPythonWitness)}
LIBRARIES: Final = (*PYTHON, JavaWitness.library)

GROUP: Final = "group"
RECORDS_TOPIC: Final = "records"
COPIES_TOPIC: Final = "copies"
TRANSACTIONS: Final = 3
"""At most, of one instance."""
INSTANCES: Final = 10
"""Of one transactional id, before the next one gets an ID of its own."""
PAUSE_SECONDS: Final = 0.3
TRANSACTION_SECONDS: Final = 50.0
"""An instance that took so long over a transaction may be fenced because its time was up: all ask for 60 s."""

ABORTED: Final = 0.5
"""The share of transactions that are aborted, where both goes."""


class Spec(msgspec.Struct, frozen=True):
    """What the process is told in the first line of its stdin. `bootstrap`: addresses with commas between.

    `transactional_ids`: with what those begin that are worked on side by side. `security`: None for plaintext.
    `topic`: for records, which the other processes write none of. `last`: whether it is the last of those that share
    the work of groups, and has to end it.
    """

    name: str
    directory: str
    library: str
    bootstrap: str
    transactional_ids: list[str]
    security: Security | None = None
    topic: str = RECORDS_TOPIC
    last: bool = False


class Instance(NamedTuple):
    """A client; `number` tells it from all others that had its transactional id."""

    witness: Witness
    transactional_id: str
    number: int


class GivenUpError(Exception):
    """A step of the newest instance came to no good end."""


class Producers:
    """The instances of one library."""

    def __init__(self, spec: Spec, journal: ActorJournal, opened: Opener) -> None:
        self._spec = spec
        self._journal = journal
        self._opened = opened
        self._rng = random.Random(spec.name)
        self._given_up: set[str] = set()

    async def work(self, name: str) -> None:
        """One instance after the other, until cancelled, with a new transactional id after INSTANCES of them."""
        for generation in itertools.count():
            old: Instance | None = None
            for _ in range(INSTANCES):
                old = await self._next(old, f"{name}-{generation}")
                await asyncio.sleep(PAUSE_SECONDS)
            if old is not None:
                await self._close(old)

    async def _next(self, old: Instance | None, transactional_id: str) -> Instance | None:
        """The instance after `old`, unless it came to no good end; `old` is closed once a newer one has its pair."""
        new = Instance(self._opened(self._spec.bootstrap, transactional_id), transactional_id, clock())
        try:
            await self._init(new)
        except GivenUpError:
            # Its request may still be on its way.
            self._given_up.add(transactional_id)
            await self._close(new)
            return old
        if old is not None:
            await self._haunt(old)
            await self._close(old)
        try:
            for _ in range(self._rng.randint(1, TRANSACTIONS)):
                await self._transaction(new)
        except GivenUpError:
            await self._close(new)
            return None
        return new

    async def _init(self, new: Instance) -> None:
        """Get a pair. Raises GivenUpError."""
        number = self._invoke(INIT, new)
        with self._noted(number, new):
            pair = await new.witness.init()
            self._journal.ok(number, {"producer_id": pair.producer_id, "producer_epoch": pair.epoch})

    async def _haunt(self, old: Instance) -> None:
        """It tries to go on, and must not."""
        number = self._invoke(ZOMBIE, old)
        try:
            await old.witness.begin()
            await old.witness.add_offsets(GROUP)
        except FencedError:
            self._journal.refuse(number, FENCED)
        except GroupRefusedError:
            # The coordinator of the transaction has granted it; only that of the group has not.
            self._journal.ok(number)
        except Exception as error:  # noqa: BLE001 - a zombie has no use for its library any more
            self._journal.unknown(number, text_of(error))
        else:
            self._journal.ok(number)

    async def _transaction(self, instance: Instance) -> None:
        """Begin, add, and end a transaction. Raises GivenUpError."""
        witness, begun = instance.witness, clock()
        await self._step(instance, "begin", witness.begin(), begun)
        committed = False
        if witness.adds_partitions and not (witness.remembers_offsets and self._rng.random() < ABORTED):
            await self._step(instance, "add a partition", witness.add_partition(), begun)
            committed = self._rng.random() >= ABORTED
        else:
            # After a refused group a client can only abort.
            await self._step(instance, "add offsets", _granted(witness.add_offsets(GROUP)), begun)
        await self._step(instance, "commit" if committed else "abort", witness.end(committed=committed), begun)

    async def _step(self, instance: Instance, what: str, call: Awaitable[None], begun: int) -> None:
        number = self._invoke(STEP, instance, step=what)
        with self._noted(number, instance, begun):
            await call
            self._journal.ok(number)

    def _invoke(self, kind: str, instance: Instance, **more: str) -> int:
        return self._journal.invoke(kind, transactional_id=instance.transactional_id, instance=instance.number, **more)

    @contextlib.contextmanager
    def _noted(self, number: int, instance: Instance, begun: int | None = None) -> Iterator[None]:
        """What goes wrong inside is written down. `begun`: when the transaction of a step was. Raises GivenUpError."""
        try:
            yield
        except Exception as error:
            self._journal.unknown(number, text_of(error))
            if not (passes(error) or (isinstance(error, FencedError) and self._may_be_fenced(instance, begun))):
                self._journal.ok(self._invoke(FATAL, instance, library=self._spec.library, text=text_of(error)))
            raise GivenUpError from error

    def _may_be_fenced(self, instance: Instance, begun: int | None) -> bool:
        """Whether the newest instance may be: its time was up, or an instance that gave up is heard after all."""
        is_late = begun is not None and clock() - begun > TRANSACTION_SECONDS * 1e9
        return is_late or instance.transactional_id in self._given_up

    @staticmethod
    async def _close(instance: Instance) -> None:
        with contextlib.suppress(Exception):
            await instance.witness.close()
        # kafka-python leaves a socket that could not connect to it.
        gc.collect()


async def _granted(adding: Awaitable[None]) -> None:
    """The coordinator of the group refuses, for there is none; that of the transaction has granted by then."""
    with contextlib.suppress(GroupRefusedError):
        await adding


@contextlib.asynccontextmanager
async def opener(spec: Spec) -> AsyncIterator[Opener]:
    """What opens clients of the library, as the spec says it is secured, while the block runs."""
    if spec.library in PYTHON:
        yield partial(PYTHON[spec.library], security=spec.security)
        return
    with tempfile.TemporaryDirectory(prefix="pidkeeper-java-") as directory, java_process(Path(directory)) as process:
        for setting in {} if spec.security is None else spec.security.java().items():
            process.ask("set", *setting)
        yield partial(JavaWitness, process)


async def run(spec: Spec, stdin: BinaryIO) -> None:
    """Work on all transactional ids side by side until `stdin` ends. Raises what ends one of them."""
    with ActorJournal(Path(spec.directory), spec.name) as journal:
        async with opener(spec) as opened:
            producers = Producers(spec, journal, opened)
            working = [asyncio.create_task(producers.work(one)) for one in spec.transactional_ids]
            ending = asyncio.create_task(_end_of(stdin))
            done, _ = await asyncio.wait([ending, *working], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {ending}:
                task.result()
            for task in working:
                task.cancel()
            await asyncio.wait(working)


async def _end_of(stdin: BinaryIO) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), stdin)
    await reader.read()


async def _run_and_exit(spec: Spec, stdin: BinaryIO) -> None:
    await run(spec, stdin)
    # Threads may be in calls of a library that never return, and all that counts is on disk.
    os._exit(0)


def main() -> None:
    """Read the spec, and work."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    # Unbuffered: what follows the first line is waited for elsewhere.
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as stdin:
        asyncio.run(_run_and_exit(msgspec.json.decode(stdin.readline(), type=Spec), stdin))


if __name__ == "__main__":
    main()
