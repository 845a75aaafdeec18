"""A copy of one member is put in the place of a quorum that has gone on since, over a store that has gone on too.

As docs/operations.md has it: all agents are stopped, and transactional producers; one copy is restored, the other
members begin with blank disks; what the copy's logs need and the old quorum had deleted since comes back from the
store's own backup; nothing is deleted before the operator releases that.

- What was acknowledged before the copy was made is in it, where the quorum has one member.
"""

from __future__ import annotations

import random
import uuid
from typing import TYPE_CHECKING, Any, Final

from pidkeeper.controller.state.requests import ReleaseCollection
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.founding import Succession
from pidkeeper.protocol.metadata_version import LATEST
from tests.simulation.disk import DiskCopy
from tests.simulation.founder import Founder
from tests.simulation.history import History
from tests.simulation.member import Member
from tests.simulation.process import listen
from tests.simulation.restored import RestoredMonitor
from tests.simulation.sent_batches import Sent
from tests.simulation.world import MILLISECOND, SECOND, Violation

if TYPE_CHECKING:
    from tests.histories.history import LogHistory

RETRY: Final = 200 * MILLISECOND
ANSWERED: Final = SECOND
"""Until an operator asks again who has no answer."""

QUIET: Final = 2_500 * MILLISECOND
"""From when the agents are stopped until the copy is restored: then no call to the store is under way any more."""

FLOOR: Final = 1_000
"""IDs above the next one that the quorum has, from which on the restored one hands out."""

RELEASED: Final = 3 * SECOND
"""After the restore, in which an operator releases the collection, in half of the histories; else at the end."""


class Restoring:
    """`done`: a copy was restored. `busy`: one is about to be."""

    def __init__(self, history: LogHistory) -> None:
        self._history = history
        self._world = history.world
        self._rng: random.Random = history.world.stream("restoring")
        self._copy: tuple[Member, DiskCopy] | None = None
        self._acknowledged: list[Sent] = []
        self._foundings: list[uuid.UUID] = []
        self._wanted = 0
        self._asking = False
        self._asked = 0
        self.busy = self.done = self.released = False

    def start(self) -> None:
        """Take a backup, and restore it, at their time."""
        if (restored := self._history.plan.restored) is not None:
            self._world.at(restored[0], self._back_up)
            self._world.at(restored[1], self._lose)

    def _back_up(self) -> None:
        history = self._history
        recorded = [process for process in history.processes() if process.machine.foundings.founding_id is not None]
        if not recorded or not history.plane.monitor.model.logs:
            if not self.busy:
                self._world.at(RETRY, self._back_up)
            return
        process = self._rng.choice(recorded)
        self._copy = process.member, process.member.disk.copy()
        if len(history.members) == 1:
            self._acknowledged = [sent for sent in history.plane.batches if sent.acknowledged is not None]

    def _lose(self) -> None:
        """Everything stops; what is under way on its way to the store arrives."""
        history = self._history
        if self._copy is None or history.founder.recorded is None or history.healed:
            return
        self._world.fault("quorum_lost")
        self.busy = True
        self._foundings = [history.founder.recorded]
        history.nemesis.active = False
        for member in history.members.values():
            member.crash(power=True, restart_after=None)
            member.deployed = False
        history.stop_agents()
        if history.grouping is not None:
            history.grouping.stop()
        history.epochs.check()
        self._world.at(QUIET, self._restore, *self._copy)

    def _restore(self, restored: Member, copy: DiskCopy) -> None:
        history, lost = self._history, self._history.founder
        next_id = history.next_id_seen()
        history.history = History(self._world)
        monitor = RestoredMonitor(self._world, history.history, history.voters, history.members)
        history.monitor = monitor
        founder = history.founder = Founder(history, "founder-of-the-next")
        assert lost.recorded is not None, "a quorum without a founding was not lost"
        founder.succession, founder.ordered, founder.hears = Succession(lost.recorded, next_id + FLOOR), True, False
        monitor.on_commit.append(founder.committed)
        for member in history.members.values():
            member.monitor = monitor
            member.install(LATEST)
            member.replace_disk()
            member.damaged = member.damage_is_latent = False
            member.deployed = True
        log = restored.restore(copy, next_id + FLOOR, founder.founding_id)
        monitor.copied = log.hard_state.term
        last = log.entries[-1].index if log.entries else log.snapshot.index
        history.go_back()
        history.plane.go_back(last, log.entries)
        history.gone_back()
        self._bring_back()
        self._check_acknowledged()
        for member in history.members.values():
            self._world.at(self._rng.randrange(100 * MILLISECOND), member.start)
        self._foundings.insert(0, founder.founding_id)
        self._world.fault("backup_restored")
        self.busy, self.done = False, True
        history.go_on()
        if self._rng.random() < 0.5:
            own = self._rng.random() < 0.3
            self._world.at(self._rng.randrange(RELEASED), self.release, 1 if own else 2)

    def _bring_back(self) -> None:
        """What the copy's logs need."""
        plane = self._history.plane
        needed = plane.monitor.references.names()
        plane.store.discarded -= needed
        missing = needed - plane.store.names()
        if missing:
            self._world.fault("objects_brought_back")
            plane.store.bring_back(sorted(missing))

    def _check_acknowledged(self) -> None:
        for sent in self._acknowledged:
            if not sent.offsets:
                raise Violation("restored-without", f"{sent}, which was at {sent.acknowledged} before the copy")
        for sent in self._history.plane.batches:
            if not sent.offsets:
                sent.acknowledged = None

    def release(self, foundings: int = 2) -> None:
        """Have the objects of the newest foundings deleted that no log needs; asked for until it is done."""
        self._wanted = max(foundings, self._wanted)
        if not self._asking:
            self._asking = True
            self._ask()

    def _ask(self) -> None:
        leader, wanted = self._history.leader(), self._wanted
        self._asked += 1
        number = self._asked

        def done(answer: Any, error: RequestError | None) -> None:
            if number != self._asked:
                return
            self._asked += 1
            if error is not None or wanted != self._wanted:
                self._world.at(RETRY, self._ask)
                return
            self._asking, self.released = False, wanted == len(self._foundings)

        if leader is None or not leader.runs(self._nothing):
            self._world.at(RETRY, self._ask)
            return
        try:
            listen(leader.submit(ReleaseCollection(tuple(self._foundings[:wanted]))), done)
        except RequestError:
            self._world.at(RETRY, self._ask)
        else:
            self._world.at(ANSWERED, self._ask_again, number)

    def _ask_again(self, number: int) -> None:
        """A leader that died does not answer."""
        if number == self._asked:
            self._ask()

    @staticmethod
    def _nothing() -> None:
        """What a paused process would be asked to do later."""
