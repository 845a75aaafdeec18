"""An operator who transfers leadership, raises the floor, and replaces voters, at times that a seed gives."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from pidkeeper.cli.controllers import Controllers
from pidkeeper.cli.failures import CommandError, ExitCode
from pidkeeper.cli.local_cluster import Controller
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.log_messages import CreateTopicRequest, TopicDescription
from pidkeeper.protocol.messages import (
    AddVoterRequest,
    AddVoterResponse,
    DismissEvidenceRequest,
    DismissEvidenceResponse,
    QuorumDescription,
    RaiseFloorRequest,
    RaiseFloorResponse,
    RemoveVoterResponse,
)
from pidkeeper.service.tls_files import TlsFiles
from tests.chaos.load.journal import ActorJournal
from tests.chaos.load.kafka_process import COPIES_TOPIC, RECORDS_TOPIC
from tests.chaos.load.kinds import CHANGE, RAISE_FLOOR
from tests.chaos.load.records_process import PARTITIONS
from tests.clients.transactional_witnesses import CONSUMED, TOPIC

ASK_SECONDS: Final = 5.0
CHANGE_SECONDS: Final = 30.0
"""How long a change of the voters is asked for again: a new one has to catch up, and leaders may fall."""
SETTLE_SECONDS: Final = 60.0
STEP_SECONDS: Final = 0.1
TOPICS: Final = {TOPIC: 1, CONSUMED: 1, RECORDS_TOPIC: PARTITIONS, COPIES_TOPIC: PARTITIONS}
TOPIC_ATTEMPTS: Final = 100
MAX_JUMP: Final = 10_000
"""IDs that a raised floor skips at most."""

_Shape = TypeVar("_Shape")


class QuorumOperator:
    """Acts about every `interval` seconds until stopped, or only when told; then the voters are those that they were.

    `controllers`: all that may be asked, and may be voters; `spare`: one of them that runs and is no voter to begin
    with, or None for no changes of voters. `tls`: an operator's files, where the controllers want certificates.
    """

    def __init__(
        self,
        directory: Path,
        controllers: Callable[[], Sequence[Controller]],
        *,
        seed: int,
        interval: float = math.inf,
        spare: Controller | None = None,
        tls: TlsFiles | None = None,
        name: str = "operator",
    ) -> None:
        self.name = name
        self._directory = directory
        self._controllers = controllers
        self._spare = spare
        self._tls = tls
        self._interval = interval
        self._rng = random.Random(seed)
        self._stopping = asyncio.Event()
        self._originals = frozenset(one.id for one in controllers() if one is not spare)
        self._journal: ActorJournal
        self.carried_out = 0
        """Orders that were acknowledged."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Act while the block runs. Raises AssertionError if the voters cannot be made the old ones at its end."""
        with ActorJournal(self._directory, self.name) as self._journal:
            acting = asyncio.create_task(self._act(), name=self.name)
            try:
                yield
            finally:
                self._stopping.set()
                await acting
                await self.settle()

    async def dismiss(self, broker_id: int) -> None:
        """Judge that what a broker says it holds is wrong, as often as it takes to be heard."""
        request = DismissEvidenceRequest(broker_id)
        number = self._journal.invoke(CHANGE, what="dismiss evidence", broker_id=broker_id)
        while True:
            try:
                await self._ask(DismissEvidenceResponse, "POST", "/v1/quorum/evidence/dismiss", request)
            except CommandError:
                await asyncio.sleep(STEP_SECONDS)
            else:
                self._journal.ok(number)
                return

    async def _make_topic(self, name: str, partitions: int) -> None:
        """Where agents keep records, producers add partitions of topics that there are, and of no other."""
        request = CreateTopicRequest(uuid.uuid4(), name, partitions)
        for _ in range(TOPIC_ATTEMPTS):
            try:
                await self._ask(TopicDescription, "POST", "/v1/topics", request)
            except CommandError as error:
                # The quorum may not know topics yet: its metadata version rises once all members are connected.
                if self._stopping.is_set() or ErrorCode.TOPIC_ALREADY_EXISTS.name in str(error):
                    return
                await asyncio.sleep(STEP_SECONDS)
            else:
                return

    async def _act(self) -> None:
        for name, partitions in TOPICS.items():
            await self._make_topic(name, partitions)
        acts = [self.transfer, self.raise_floor, *([] if self._spare is None else [self.replace])]
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval * self._rng.uniform(0.5, 1.5)):
                    await self._stopping.wait()
                return
            await self._rng.choice(acts)()

    async def transfer(self) -> None:
        """Have the leader hand over to another voter."""
        await self._change("transfer", "POST", "/v1/quorum/transfer", {"target": None}, dict[str, Any])

    async def raise_floor(self) -> None:
        """Skip a few thousand IDs."""
        try:
            description = await self._ask(QuorumDescription, "GET", "/v1/quorum")
        except CommandError:
            return
        request = RaiseFloorRequest(description.next_producer_id + self._rng.randrange(MAX_JUMP))
        number = self._journal.invoke(RAISE_FLOOR, at_least=request.at_least)
        try:
            answer = await self._ask(RaiseFloorResponse, "POST", "/v1/producer-ids/floor", request)
        except CommandError as error:
            # Of several attempts the last alone says what became of it.
            self._journal.unknown(number, str(error))
        else:
            self._carried_out(number, msgspec.structs.asdict(answer))

    async def replace(self) -> None:
        """The spare joins as a learner and becomes a voter; one of the others leaves and joins again."""
        assert self._spare is not None, "only then this is an act"
        out = self._rng.choice(sorted(self._originals))
        for voters in (
            self._originals | {self._spare.id},
            self._originals - {out} | {self._spare.id},
            self._originals | {self._spare.id},
            self._originals,
        ):
            if self._stopping.is_set() or not await self._make_voters(voters, CHANGE_SECONDS):
                return

    async def settle(self) -> None:
        """Make the voters those that they were. Raises AssertionError if that cannot be done in time."""
        if self._spare is not None:
            assert await self._make_voters(self._originals, SETTLE_SECONDS), "the voters are not what they were"

    async def _make_voters(self, wanted: Collection[int], seconds: float) -> bool:
        """Add and remove, one after the other, until the voters are these; whether they are in time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                description = await self._leaders_description()
            except CommandError:
                continue
            voters = {voter.id for voter in description.voters}
            others = voters | {learner.id for learner in description.learners}
            if missing := sorted(set(wanted) - voters):
                await self._add(missing[0])
            elif extra := sorted(others - set(wanted)):
                await self._change("remove", "DELETE", f"/v1/quorum/voters/{extra[0]}", None, RemoveVoterResponse)
            else:
                return True
            await asyncio.sleep(STEP_SECONDS)
        return False

    async def _leaders_description(self) -> QuorumDescription:
        """As the leader sees the quorum: others may not know of its newest change. Raises CommandError."""
        described = await asyncio.to_thread(lambda: self._asked().described())
        for _, description in described:
            if description.role == "leader":
                return description
        await asyncio.sleep(STEP_SECONDS)
        raise CommandError("nobody leads", ExitCode.UNREACHABLE)

    async def _add(self, member_id: int) -> None:
        member = next(one for one in self._controllers() if one.id == member_id)
        request = AddVoterRequest(member.id, member.peer, member.http)
        await self._change("add", "POST", "/v1/quorum/voters", request, AddVoterResponse)

    async def _change(self, what: str, method: str, path: str, request: object, shape: type[Any]) -> None:
        number = self._journal.invoke(CHANGE, what=what, path=path)
        try:
            answer = await self._ask(shape, method, path, request)
        except CommandError as error:
            note = self._journal.refuse if error.exit_code == ExitCode.REFUSED else self._journal.unknown
            note(number, str(error))
        else:
            self._carried_out(number, {"voting": answer.voting} if isinstance(answer, AddVoterResponse) else None)

    def _carried_out(self, number: int, result: dict[str, Any] | None) -> None:
        self._journal.ok(number, result)
        self.carried_out += 1

    async def _ask(self, shape: type[_Shape], method: str, path: str, request: object = None) -> _Shape:
        """Raises CommandError."""
        return await asyncio.to_thread(lambda: self._asked().ask(shape, method, path, request))

    def _asked(self) -> Controllers:
        return Controllers.of([one.http for one in self._controllers()], ASK_SECONDS, self._tls)
