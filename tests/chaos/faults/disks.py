"""What is done to the syncs of a member's disk, in the process itself: they fail, stall or hang.

That a fault bit is seen by the counters of the preloaded library, which count the member's own calls; of a failed sync
the member's end is the proof, for it ends by itself.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import errno
from typing import Final

from pidkeeper.cli.local_cluster import member_name
from tests.chaos.fault import Fault, FaultKind
from tests.chaos.plan import Planned, Target
from tests.chaos.shim.control import Effect, SyncFault
from tests.chaos.stage import Stage

POLL_SECONDS: Final = 0.02
END_SECONDS: Final = 15.0
"""How long a member is waited for that ends because a sync failed: it takes one turn of its event loop."""


class SyncsFault(Fault):
    """Hurts fdatasync and fsync, of directories too, of one controller."""

    def __init__(self, stage: Stage, planned: Planned) -> None:
        super().__init__(stage, planned)
        member = stage.chosen(planned)
        assert member is not None and stage.links is not None, "disk faults are for members that are preloaded"
        self.member = member
        self.victims = (member_name(member),)
        control = stage.links.shim.control(self.victims[0])
        self._calls: tuple[SyncFault, ...] = (control.fdatasync, control.fsync)
        self._hit_before = 0

    @abc.abstractmethod
    def hurt(self, call: SyncFault) -> None:
        """Set what comes of one of the two calls."""

    async def begin(self) -> None:
        self._hit_before = self._all_hit()
        for call in self._calls:
            self.hurt(call)

    async def end(self) -> None:
        for call in self._calls:
            call.heal()

    async def bites(self) -> int:
        """How many syncs were hit."""
        return self.hit

    @property
    def hit(self) -> int:
        """How many syncs were hit since it began."""
        return self._all_hit() - self._hit_before

    def _all_hit(self) -> int:
        return sum(call.hit for call in self._calls)


class FailingSyncs(SyncsFault):
    """The next sync returns EIO: by design the member releases nothing and ends. It is started again at the end."""

    def __init__(self, stage: Stage, planned: Planned) -> None:
        super().__init__(stage, planned)
        self._exit_code: int | None = None

    def hurt(self, call: SyncFault) -> None:
        call.set(Effect.FAILS, error=errno.EIO)

    async def end(self) -> None:
        await super().end()
        cluster = self.stage.cluster
        if self.hit:
            await self._ended()
            self._exit_code = cluster.exit_code(self.member)
        if not cluster.running(self.member):
            cluster.start(self.member)

    async def bites(self) -> int:
        """1 if a sync failed and the member ended by itself for it."""
        return int(self.hit > 0 and self._exit_code == 1)

    async def _ended(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                while self.stage.cluster.running(self.member):  # noqa: ASYNC110 - a process ends
                    await asyncio.sleep(POLL_SECONDS)


class StallingSyncs(SyncsFault):
    """Every sync takes 0.1 to 2 s longer, by the strength, and is done."""

    def hurt(self, call: SyncFault) -> None:
        call.set(Effect.STALLS, seconds=0.1 + 1.9 * self.planned.strength)


class HangingSyncs(SyncsFault):
    """No sync comes back before the end of the fault; then all that wait are done."""

    def hurt(self, call: SyncFault) -> None:
        call.set(Effect.HANGS)


TARGETS: Final = (Target.LEADER, Target.FOLLOWER)


def _why_not(stage: Stage) -> str | None:
    return "nothing is preloaded into the members" if stage.links is None else None


KINDS: Final[tuple[FaultKind, ...]] = (
    FaultKind("fsync_fails", FailingSyncs, TARGETS, (1.0, 4.0), True, _why_not),
    FaultKind("fsync_stalls", StallingSyncs, TARGETS, (2.0, 8.0), True, _why_not),
    FaultKind("fsync_hangs", HangingSyncs, TARGETS, (3.0, 12.0), True, _why_not),
)
