"""What is watched in a quorum that was restored from a copy of one disk.

Nothing that an earlier monitor knows holds for it: the copy lacks what was acknowledged after it was made, and its log
may end in entries that were never committed. What does hold: whoever applies an entry applies the same one at the same
index, to the same state.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pidkeeper.controller.raft.messages import Entry, HardState, Message
from pidkeeper.protocol.records import decode_batch
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.simulation.history import History
from tests.simulation.invariants import Monitor
from tests.simulation.world import Violation, World

if TYPE_CHECKING:
    from tests.simulation.process import Process


class RestoredMonitor(Monitor):
    """Calls `on_commit` with what the restored quorum commits itself: entries of terms above `copied`, the copy's."""

    copied = 0

    def __init__(self, world: World, history: History, voters: tuple[int, ...], machines: Iterable[int]) -> None:
        super().__init__(world, history, voters, machines)
        self._applied: dict[int, tuple[int, bytes, int]] = {}

    def opened(self, process: Process) -> None:
        """A member came up from its copy."""
        process.seen_term, process.seen_commit = process.core.term, process.core.commit
        self.world.mix(process.node_id, process.core.term)
        self.world.note(f"member {process.node_id} starts: {process.storage.log.hard_state}")

    def wrote(self, process: Process, entries: list[Entry], hard_state: HardState | None) -> None:
        """A write of the log returned."""

    def interrupted(self, process: Process, entries: list[Entry]) -> None:
        """A write was cut off."""

    def changed(self, process: Process) -> None:
        """Term, role or commit index differ from the last look."""
        core = process.core
        process.seen_term, process.seen_role, process.seen_commit = core.term, core.role, core.commit

    def reconfigured(self, process: Process) -> None:
        """The log of a member may hold other configurations than at the last look."""
        process.seen_memberships = process.core.memberships_version

    def sends(self, process: Process, messages: Iterable[Message]) -> None:
        """Messages leave."""

    def applied(self, process: Process, entry: Entry) -> None:
        """A member applied an entry: others have applied the same, or apply it later."""
        next_id = process.machine.producer_ids.next_producer_id
        known = self._applied.setdefault(entry.index, (entry.term, entry.data, next_id))
        if known != (entry.term, entry.data, next_id):
            facts = f"member {process.node_id} applied {entry}, next ID {next_id}; another one {known}"
            raise Violation("committed-entry-changed", facts)
        if entry.index > len(self.committed) and entry.term > self.copied:
            self.committed += [(0, b"")] * (entry.index - len(self.committed))
            self.next_id = next_id
            records = decode_batch(entry.data)
            self.world.note(f"member {process.node_id} applies {entry.index} first, of term {entry.term}: {records}")
            for told in self.on_commit:
                told(records)

    def installed(self, process: Process, snapshot: SnapshotId, image: StateImage) -> None:
        """A member takes over the state of a received snapshot."""
        self.snapshots_installed += 1

    def remembers(self, node: int, term: int) -> bool:
        """Whether the disk of a member knows of `term`."""
        return False
