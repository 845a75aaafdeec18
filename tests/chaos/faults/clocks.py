"""Wall clocks that jump, of one process at a time, by libfaketime. Monotonic clocks go on, as they do on a machine.

How far a clock may be off: a member that speaks TLS holds every certificate for expired, or for not valid yet, once its
clock leaves the time for which all of them are valid, and lets nobody in. So `clock_jump` stays within that time, and
all must go on as if nothing was; `clock_leap` is of ten years, and with TLS a loss of its victim.

libfaketime 0.9.10 makes `time.sleep` fail where the monotonic clock is left alone (its clock_nanosleep takes a fake
time off it). No member sleeps so; a client in Python that does cannot be given a clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

from cryptography import x509

from pidkeeper.cli.controllers import CERTIFICATES
from pidkeeper.cli.local_cluster import member_name
from tests.chaos.fault import Fault, FaultKind
from tests.chaos.looking import clock_offset, started, until
from tests.chaos.plan import Planned, Target
from tests.chaos.stage import ChaosCluster, Stage

REPOSITORY: Final = Path(__file__).resolve().parents[3]
FETCHED: Final = REPOSITORY / ".tools" / "faketime" / "libfaketimeMT.so.1"
INSTALLED: Final = "lib*/**/faketime/libfaketimeMT.so.1"
"""Below /usr. The one for programs with threads."""

CACHE_SECONDS: Final = 1
"""Between two looks of the library into its file. Looking at every call costs 7 microseconds instead of 0.7 each."""

SHORTEST_JUMP: Final = 60.0
LONGEST_JUMP: Final = 45 * 60.0
LEAP: Final = 3652.5 * 86_400
TOLERANCE: Final = 5.0
"""Of a clock that was read over HTTP, in whole seconds, by a busy machine."""

MARGIN: Final = 60.0
"""By which a clock stays within the time of the certificates."""

SHARED_MEMORY: Final = Path("/dev/shm")


def faketime() -> Path | None:
    """The library, as tools/fetch-faketime or the system's packages brought it; None if neither did."""
    return FETCHED if FETCHED.exists() else next(Path("/usr").glob(INSTALLED), None)


class Clocks:
    """A clock for each process, whose offset is in a file of its own in `directory`. May be set from any thread."""

    def __init__(self, library: Path, directory: Path) -> None:
        self.library = library
        self._directory = directory
        self._offsets: defaultdict[str, list[float]] = defaultdict(list)
        self._turn = threading.Lock()
        directory.mkdir(parents=True, exist_ok=True)

    def variables(self, process: str) -> dict[str, str]:
        """The environment of a process, whose clock goes right until it is set."""
        forget_the_dead()
        with self._turn:
            self._write(process)
        return {
            "FAKETIME_TIMESTAMP_FILE": str(self._directory / process),
            "FAKETIME_CACHE_DURATION": str(CACHE_SECONDS),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # Else a wait for a condition by the monotonic clock polls: ten times the CPU for each turn of two threads.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
            # What files say of themselves stays true: else each jump would make all of them look changed.
            "NO_FAKE_STAT": "1",
        }

    def shift(self, process: str, offset: float) -> None:
        """Put the clock of a process ahead by `offset` seconds; it shows within CACHE_SECONDS.

        The last of several shifts holds, and with its end the one before it.
        """
        with self._turn:
            self._offsets[process].append(offset)
            self._write(process)

    def shift_back(self, process: str, offset: float) -> None:
        """End such a shift. Raises ValueError if there is none."""
        with self._turn:
            self._offsets[process].remove(offset)
            self._write(process)

    def _write(self, process: str) -> None:
        # As a whole: the library reads at any time.
        written = self._directory / f".{process}"
        written.write_text(f"{[0.0, *self._offsets[process]][-1]:+.0f}\n")
        written.replace(self._directory / process)


class ClockJump(Fault):
    """One clock is off by `offset` seconds from begin to end."""

    def __init__(self, stage: Stage, planned: Planned) -> None:
        super().__init__(stage, planned)
        member = stage.chosen(planned)
        assert member is not None, "a clock is of one process"
        self._member = member
        self.victims = (member_name(member),)
        self.offset = self._drawn()
        self.seen = False
        self._watch: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Set it, and look meanwhile what the process takes for the time."""
        await asyncio.to_thread(self._clocks().shift, self.victims[0], self.offset)
        self._watch = asyncio.create_task(self._look(), name="look at a clock")

    async def end(self) -> None:
        """Set it right."""
        assert self._watch is not None, "it was begun"
        self._watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._watch
        await asyncio.to_thread(self._clocks().shift_back, self.victims[0], self.offset)

    async def bites(self) -> int:
        """Whether the process told the wrong time."""
        return int(self.seen)

    def _drawn(self) -> float:
        earliest, latest = certified_time(self.stage.cluster)
        ahead = min(LONGEST_JUMP, latest - time.time() - MARGIN)
        behind = min(LONGEST_JUMP, time.time() - earliest - MARGIN)
        room, sign = (behind, -1) if self.planned.pick % 2 or ahead < SHORTEST_JUMP else (ahead, 1)
        return sign * max(SHORTEST_JUMP, room * self.planned.strength)

    async def _look(self) -> None:
        if await until(self._is_off, self.planned.seconds):
            self.seen = True

    def _is_off(self) -> bool:
        told = clock_offset(self._member)
        return told is not None and abs(told - self.offset) < TOLERANCE

    def _clocks(self) -> Clocks:
        clocks = self.stage.cluster.preload(Clocks)
        assert clocks is not None, "why_not was asked"
        return clocks


class ClockLeap(ClockJump):
    """Ten years, ahead or back, of a process that has started."""

    async def begin(self) -> None:
        """Wait for the start."""
        await started(self._member)
        await super().begin()

    def _drawn(self) -> float:
        return -LEAP if self.planned.pick % 2 else LEAP


def certified_time(cluster: ChaosCluster) -> tuple[float, float]:
    """From when to when all certificates of the cluster are valid, since the epoch; without any, for ever."""
    found = [
        x509.load_pem_x509_certificate(path.read_bytes()) for path in (cluster.directory / CERTIFICATES).glob("*.pem")
    ]
    earliest = max((one.not_valid_before_utc.timestamp() for one in found), default=float("-inf"))
    return earliest, min((one.not_valid_after_utc.timestamp() for one in found), default=float("inf"))


def why_no_clocks(stage: Stage) -> str | None:
    """Nobody's clock can be set unless the library was preloaded."""
    if stage.cluster.preload(Clocks) is not None:
        return None
    return "libfaketime is not preloaded: tools/fetch-faketime brings it by apt"


def forget_the_dead() -> None:
    """Remove what the library left in shared memory of processes that were killed: it refuses to start under a number
    that comes again."""
    for prefix in ("faketime_shm_", "sem.faketime_sem_"):
        for left in SHARED_MEMORY.glob(f"{prefix}*"):
            pid = left.name.removeprefix(prefix)
            if pid.isdecimal() and not Path(f"/proc/{pid}").exists() and left.stat().st_uid == os.geteuid():
                left.unlink(missing_ok=True)


ONE_PROCESS: Final = (Target.LEADER, Target.FOLLOWER, Target.AGENT)

KINDS: Final = (
    FaultKind("clock_jump", ClockJump, ONE_PROCESS, (3.0, 20.0), takes_down=False, why_not=why_no_clocks),
    FaultKind("clock_leap", ClockLeap, ONE_PROCESS, (3.0, 20.0), takes_down=True, why_not=why_no_clocks),
)
