"""What a member owes its operator while its disk has no room for the next segment of its log.

- From the first refusal on, `/readyz` says so, and the log, but that with no more lines than there are attempts.
- The member works on as long as the segment in use has room, and tries again about once in a second.
- Once there is room again, it is ready by itself; and it never says so while there is room.
- A full disk of one member stops nobody else.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from multidict import CIMultiDict
from yarl import URL

from pidkeeper.controller.node.status import readiness
from pidkeeper.controller.storage.errors import LogFull
from pidkeeper.service.exchange import HttpRequest, HttpResponse
from tests.simulation.world import MILLISECOND, SECOND, Violation

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.member import Member
    from tests.simulation.process import Process

SHARE: Final = 0.25
"""Of the seeds, in which a disk is full at the end too."""

SETTLE: Final = 30 * MILLISECOND
LOOK: Final = 300 * MILLISECOND
LEAST_PAUSE: Final = int(0.9 * SECOND)
"""Between two attempts, by the clock of the member."""

PATIENCE: Final = 8 * SECOND
"""Until a member whose disk has room, and is not slow, knows that. An attempt may have begun while it was slow."""

SOON: Final = 0.6
"""Of those: there is room again soon after the first refusal."""

LENGTH: Final = 6 * SECOND
"""For which a disk is full at the end, at least; half of the seeds fill a segment in it."""

ALLOCATED: Final = 6 * SECOND
RECOVERED: Final = 20 * SECOND
FRAME_BYTES: Final = 64
"""At most, of what frames one entry in the log."""

BATCH_BYTES: Final = 512
"""At most, of what is written beside the entries."""

READYZ: Final = HttpRequest("GET", URL("/readyz"), CIMultiDict())
NO_ROOM: Final = b"no room for a log segment"


class Room:
    """What one process was told about room for its next segment.

    `changed`: when it made its newest segment, or was refused the next one for the first time. `excused`: until when it
    could not know better.
    """

    def __init__(self, process: Process) -> None:
        self.process = process
        self.refused = False
        self.attempts = 0
        self.lines = 0
        self.excused = 0
        self.newest = -SECOND
        self.changed = 0


class FullDisks:
    """Watches all members."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._rng = cluster.world.stream("full-disks")
        self._at_the_end = self._rng.random() < SHARE

    def watch(self, process: Process) -> None:
        """Look at the attempts of `process` to have its next segment made."""
        wal, room = process.storage.wal, process.room
        prepare = wal.prepare_next

        def observed() -> None:
            try:
                prepare()
            except LogFull:
                self._refused(room)
                raise
            self._made(room)

        roll = wal._roll

        def rolled(*args: Any, **options: Any) -> None:
            roll(*args, **options)
            self._made(room)

        wal.prepare_next = observed  # type: ignore[method-assign]
        wal._roll = rolled  # type: ignore[method-assign]

    def _made(self, room: Room) -> None:
        """Its disk had room for a segment, made ahead or by an append."""
        # Each of them counts: one that is half full at once tells the member nothing, so the next one may be its first.
        room.changed = self._world.now
        if room.refused:
            room.refused = False
            self._world.fault("segment_made_after_refusal", f"member {room.process.node_id}")
            self._world.at(SETTLE, self._look, room)

    def _refused(self, room: Room) -> None:
        self._world.fault("segment_refused", f"member {room.process.node_id}")
        now, pause = self._world.now, self._world.now - room.newest
        if pause < LEAST_PAUSE * room.process.member.clock_rate:
            raise Violation("room-asked-for-too-often", f"member {room.process.node_id} asks again after {pause} us")
        room.newest = now
        room.attempts += 1
        if not room.refused:
            room.refused, room.excused, room.changed = True, now, now
            self._world.at(SETTLE, self._look, room)

    def _look(self, room: Room) -> None:
        """Ask for its readiness, and again as long as it has no room."""
        process = room.process
        pause = process.paused_until - self._world.now
        if pause > 0:
            self._world.at(pause + SETTLE, self._look, room)
            return
        if not process.runs(self._look, room) or process.node.stopping or process.driver.faulted:
            return
        early = room.changed + SETTLE - self._world.now
        if room.refused:
            self._check_excuse(room)
            self._world.at(LOOK, self._look, room)
        elif process.storage.wal.wants_next_segment:
            # What an append has just made is half full already: the next attempt will tell.
            self._world.at(LOOK, self._look, room)
            return
        elif early > 0:
            self._world.at(early, self._look, room)
        if early > 0:
            return

        as_of = room.changed

        def served(response: HttpResponse) -> None:
            # An attempt that ended while the answer was made may be in it or not.
            if room.changed == as_of:
                self._check_told(room, response)

        process.serve(READYZ, (), served)

    def _check_told(self, room: Room, response: HttpResponse) -> None:
        told, process = NO_ROOM in response.body, room.process
        if told != room.refused or (told and response.status != 503):
            facts = f"refused: {room.refused}, /readyz says {response.status} {response.body!r}"
            raise Violation("full-disk-told", f"member {process.node_id}: {facts}")
        if room.refused and not 0 < room.lines <= room.attempts:
            raise Violation("full-disk-log", f"member {process.node_id}: {room.lines} lines, {room.attempts} attempts")

    def _check_excuse(self, room: Room) -> None:
        """It is not ready: because its disk is still full, or slow, or has been until a moment ago."""
        member, now = room.process.member, self._world.now
        slow = member.disk_slowness > 1 or member.least_disk_delay > 0 or member.hangs_until > now
        if member.disk.full or slow:
            room.excused = now
        elif now - room.excused > PATIENCE:
            raise Violation("unready-with-room", f"member {member.node_id}, {PATIENCE // SECOND} s after there is room")

    def ended(self, process: Process, error: BaseException) -> None:
        """A member stops after a fault. Raises Violation if its segment still had room for what was to be written."""
        if not isinstance(error, LogFull) or process.core.installing is not None:
            return
        wal = process.storage.wal
        left = wal._segments[-1].header.size - wal._position
        needed = BATCH_BYTES + sum(len(entry.data) + FRAME_BYTES for entry in process.writer.merging())
        if needed <= left:
            raise Violation("ended-with-room", f"member {process.node_id}, {left} bytes left, {needed} needed: {error}")

    # Once all other faults have ended.

    def check(self) -> None:
        """Let the disk of one voter be full. All members are up and sound. Raises Violation."""
        if not self._at_the_end:
            return
        member = self._cluster.members[self._rng.choice(self._cluster.voters)]
        self._world.note(f"the disk of member {member.node_id} is full")
        self._world.fault("disk_full_at_the_end")
        member.disk.arm(full=True)
        if self._rng.random() < SOON:
            self._wait_for_a_refusal(member)
        else:
            self._world.run(self._world.now + LENGTH)
            self._check_others(member)
        member.disk.arm(full=False)
        self._world.run(self._world.now + RECOVERED, self.recovered)
        if not self.recovered():
            raise Violation("full-disk-stays", f"{RECOVERED // SECOND} s after member {member.node_id} has room again")

    def _wait_for_a_refusal(self, member: Member) -> None:
        """There is room again soon after it was missed: before the segment is full, or just when it is."""
        process = member.process
        assert process is not None, f"member {member.node_id} of a sound cluster is down"
        self._world.run(self._world.now + LENGTH, lambda: process.room.refused or not process.alive)
        self._world.run(self._world.now + self._rng.randrange(MILLISECOND, 2 * LOOK))

    def _check_others(self, member: Member) -> None:
        since, history = self._world.now, self._cluster.history
        self._world.run(since + ALLOCATED, lambda: history.newest_invocation >= since)
        if history.newest_invocation < since:
            raise Violation(
                "full-disk-stops-all", f"no block in {ALLOCATED // SECOND} s, member {member.node_id} is full"
            )

    def recovered(self) -> bool:
        """Whether all voters are sound, and none says that its disk is full."""
        processes = [self._cluster.members[voter].process for voter in self._cluster.voters]
        checks = [check for process in processes if process is not None for check in readiness(process.node)]
        return self._cluster.sound() and all(check.ok for check in checks if check.name == "disk")


class Lines:
    """Stands for the logger of the storage worker: counts what a process says is wrong."""

    def error(self, *_: Any) -> None:
        """A line."""
        loop: Any = asyncio.get_running_loop()
        loop.process.room.lines += 1

    def info(self, *_: Any) -> None:
        """Good news are nobody's concern."""
