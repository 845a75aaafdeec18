"""What is done to the object store, which is a directory that all agents share: full, failing, slow, hanging, away.

A victim counts as down: it takes no records, and it cannot be started meanwhile, since an agent ends that does not hear
from its store which one it is. IDs are handed out all the while.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from pathlib import Path
from typing import Final

from pidkeeper.cli.local_cluster import Agent, Controller, member_name
from tests.chaos.fault import Fault, FaultKind
from tests.chaos.faults.disks import HangingSyncs, StallingSyncs, SyncsFault
from tests.chaos.plan import Planned, Target
from tests.chaos.shim.control import Effect, SyncFault
from tests.chaos.stage import Stage

STORE: Final = "store"
AWAY: Final = "store.away"

COMMIT_SECONDS: Final = 1.0
"""By which each commit takes longer, while an agent is waited for that has put and not committed."""
LOOK_SECONDS: Final = 0.002
"""Far less than COMMIT_SECONDS."""


class FailingStore(SyncsFault):
    """No object of one agent is stored: its data cannot be synced. Directories can: their failure ends the use of a
    store until the process is started again."""

    error: int = errno.EIO

    def __init__(self, stage: Stage, planned: Planned) -> None:
        super().__init__(stage, planned)
        self._calls = self._calls[:1]

    def hurt(self, call: SyncFault) -> None:
        call.set(Effect.FAILS, error=self.error)


class FullStore(FailingStore):
    """As where space is found missing when data is written back: on thin disks, and over NFS."""

    error = errno.ENOSPC


class StoreAway(Fault):
    """The directory is not there, as when nothing is mounted. It is renamed, and again at the end."""

    def __init__(self, stage: Stage, planned: Planned) -> None:
        super().__init__(stage, planned)
        self.victims = (STORE,)
        self._place = stage.cluster.directory / STORE
        self._gone = False

    async def begin(self) -> None:
        """Take it away."""
        self._place.rename(self._place.with_name(AWAY))

    async def end(self) -> None:
        """Bring it back."""
        self._gone = not self._place.exists()
        self._place.with_name(AWAY).rename(self._place)

    async def bites(self) -> int:
        """Whether nobody made another one in its place."""
        return int(self._gone)


class KilledBeforeCommit(Fault):
    """An agent is killed when an object of it is in the store, and cannot be committed yet; it is started again at the
    end. The syncs of the controllers are slow until then."""

    def __init__(self, stage: Stage, planned: Planned) -> None:
        super().__init__(stage, planned)
        assert stage.links is not None, "why_not was asked"
        agents = stage.cluster.layout.agents
        self._agent: Agent = agents[planned.pick % len(agents)]
        self._controllers: list[Controller] = [one for one in stage.cluster.layout.controllers if not one.learner]
        self.victims = (member_name(self._agent), *map(member_name, self._controllers))
        self._syncs = [stage.links.shim.control(member_name(one)).fdatasync for one in self._controllers]
        self._killed = 0

    async def begin(self) -> None:
        """Make commits slow."""
        for call in self._syncs:
            call.set(Effect.STALLS, seconds=COMMIT_SECONDS)

    async def hold(self) -> None:
        """Until an object has come, and the agent is gone; or as long as is planned."""
        directory = self.stage.cluster.directory / STORE
        known = await asyncio.to_thread(_objects, directory, self._agent.id)
        deadline = time.monotonic() + self.planned.seconds
        while time.monotonic() < deadline:
            if await asyncio.to_thread(_objects, directory, self._agent.id) - known:
                await self.stage.kill(self._agent)
                self._killed = 1
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def end(self) -> None:
        """Commits are as fast as ever, and the agent is back."""
        for call in self._syncs:
            call.heal()
        await self.stage.start(self._agent)

    async def bites(self) -> int:
        """Whether it was killed so."""
        return self._killed


def _objects(directory: Path, broker_id: int) -> set[str]:
    """The newest epoch's objects of an agent."""
    with contextlib.suppress(OSError):
        epochs = list(directory.glob(f"wal/*/{broker_id}/*"))
        newest = max(epochs, key=lambda path: path.stat().st_mtime_ns, default=None)
        return set() if newest is None else {f"{newest}/{one.name}" for one in newest.iterdir()}
    return set()


def _why_not(stage: Stage) -> str | None:
    if stage.links is None:
        return "nothing is preloaded into the members"
    return None if (stage.cluster.directory / STORE).is_dir() else "the agents keep no records"


AGENT: Final = (Target.AGENT,)

KINDS: Final[tuple[FaultKind, ...]] = (
    FaultKind("store_fails", FailingStore, AGENT, (2.0, 10.0), True, _why_not),
    FaultKind("store_full", FullStore, AGENT, (2.0, 10.0), True, _why_not),
    FaultKind("store_slow", StallingSyncs, AGENT, (2.0, 10.0), True, _why_not),
    FaultKind("store_hangs", HangingSyncs, AGENT, (2.0, 15.0), True, _why_not),
    # An agent that is started meanwhile finds no store, and founds another one, which the quorum refuses.
    FaultKind("store_away", StoreAway, (Target.CLUSTER,), (1.0, 8.0), True, _why_not),
    FaultKind("killed_before_commit", KilledBeforeCommit, (Target.CLUSTER,), (5.0, 6.0), True, _why_not),
)
