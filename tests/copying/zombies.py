"""Zombies for sure: a copier stands still amid a transaction until others have its partitions, and then goes on.

One request of it is held on its way until it is a member no more. Then that comes, as by a slow network, with all that
the zombie believes in. Kafka's client sends records behind the offsets that it commits with them, if it is quick: so
what it has copied is written when the end of its transaction is held, and else once its offsets are taken.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from pidkeeper.cli.local_cluster import LocalCluster, Member
from pidkeeper.service.kafka.wire.versions import END_TXN, INIT_PRODUCER_ID, TXN_OFFSET_COMMIT
from tests.copying.course import Copied, Course, Size
from tests.copying.endings import endings
from tests.copying.holding import Holding
from tests.copying.reading import Reader
from tests.mutants.planted import ROOT, Planted, copy_tree, plant
from tests.mutants.planted_groups import GROUP_BUGS
from tests.support.cluster import CONTROLLER_OPTIONS, bring_back
from tests.support.kafka_broker import KafkaBroker

SIZE: Final = Size(messages=20, copiers=2, at_copiers=(), at_servers=0, aborts=False, transaction_ms=300_000)
"""A transaction lasts: nothing but its group is to fence a zombie. A client gives up what is held for a minute, so that
there is little for others to copy meanwhile."""

HELD_BACK_SECONDS: Final = 3.0
"""So long others own the zombie's partitions, and are to wait for its transaction."""


class Late(NamedTuple):
    """What a zombie sends late, by its key; and the planted bug with which that copies messages twice."""

    name: str
    key: int
    bug: str


OFFSETS: Final = Late("offsets of a generation that is over", TXN_OFFSET_COMMIT, "offsets-of-any-generation")
"""They are refused, and the zombie's transaction is aborted."""

END: Final = Late("the end of a transaction that holds offsets", END_TXN, "require-stable-ignored")
"""It is in time: nobody goes on from those offsets before."""

LATE: Final = (OFFSETS, END)

MAX_COURSES: Final = 3
"""With a bug, of which one is to come to its end: on a busy machine the zombie's client may give up before, and what it
would have done is not seen. Without a bug the first one counts, whatever it shows."""


class Zombie(msgspec.Struct, frozen=True):
    """A course with a zombie. `planted`: the bug that was there, if one was."""

    late: str
    planted: str | None
    copied: Copied

    @property
    def as_expected(self) -> bool:
        """Whether each message was copied once, and a commit out of time refused; more than once with the bug."""
        if self.planted is not None:
            return any("more than once" in one for one in self.copied.wrong)
        return not self.copied.wrong and (self.late != OFFSETS.name or bool(self.copied.transactions.refused))


class Held(NamedTuple):
    """What serves, behind a front that holds requests; nothing else is done to it."""

    bootstrap: str
    front: Holding
    faults: Mapping[str, Callable[[], None]] = {}


Serve = Callable[[Path, Planted | None], AbstractContextManager[Held]]


class ZombieCourse(Course):
    """Copier 0 begins alone and becomes a zombie; the other one joins when it stands still.

    `held_back`: whether the other one has to wait for the zombie, and else copies all meanwhile.
    """

    def __init__(self, place: Held, late: Late, directory: Path, *, held_back: bool) -> None:
        super().__init__(place, late.key, SIZE, directory)
        self._front = place.front
        self._late = late
        self._held_back = held_back

    def _hurt(self, target: Reader) -> None:
        zombie, other = self._copiers
        # It is held before it joins: to start takes it long, where much else is done.
        before_joining = self._front.hold(other.client_id, INIT_PRODUCER_ID)
        late = self._front.hold(zombie.client_id, self._late.key)
        self._go_on_until(target, lambda: late.has_come and before_joining.has_come)
        zombie.stop()
        (member,) = self.members()
        before_joining.let_go()
        if self._held_back:
            self._go_on_until(target, lambda: member not in (self.members() or [member]))
            until = time.monotonic() + HELD_BACK_SECONDS
            self._go_on_until(target, lambda: time.monotonic() >= until)
        else:
            self._go_on_until(target, lambda: self.committed(stable=False) == self.all)
        zombie.go_on()
        late.let_go()
        # It is told what becomes of its transaction, and ends it.
        self._go_on_until(target, lambda: not endings([zombie.printed]).left)


def zombie(serve: Serve, late: Late, directory: Path, *, planted: bool = False) -> Zombie:
    """A course with a zombie, where the bug that lets it do harm is planted, if so said, and else is not."""
    bug = next(one for one in GROUP_BUGS if one.name == late.bug) if planted else None
    for number in range(MAX_COURSES if planted else 1):
        of_this = directory / str(number)
        of_this.mkdir(parents=True, exist_ok=True)
        with serve(of_this / "place", bug) as place:
            course = ZombieCourse(place, late, of_this, held_back=late is END and not planted)
            copied = course.copied()
        if not copied.transactions.left:
            break
    return Zombie(late.name, late.bug if planted else None, copied)


@contextlib.contextmanager
def kafka(directory: Path, bug: Planted | None) -> Iterator[Held]:
    """A broker, without a bug."""
    assert bug is None, "none is planted in Kafka"
    with Holding().serving() as front:
        broker = KafkaBroker(directory, {"advertised.listeners": f"PLAINTEXT://{front.address}"})
        front.target = broker.bootstrap
        try:
            broker.start()
            yield Held(front.address, front)
        finally:
            broker.close()


@contextlib.contextmanager
def ours(directory: Path, bug: Planted | None) -> Iterator[Held]:
    """One controller and one agent."""
    with Holding().serving() as front:
        cluster = _BuggyCluster(directory, bug, {"kafka_advertised": front.address})
        (agent,) = cluster.layout.agents
        front.target = agent.kafka
        try:
            bring_back(cluster)
            yield Held(front.address, front)
        finally:
            cluster.kill(*(member for member in cluster.members() if cluster.running(member)))


class _BuggyCluster(LocalCluster):
    """Its members run a copy of the code with a bug in it."""

    def __init__(self, directory: Path, bug: Planted | None, agent_options: dict[str, Any]) -> None:
        options = {"groups": {"initial_rebalance_delay_ms": 0}, **agent_options}
        super().__init__(
            directory,
            controllers=1,
            agents=1,
            controller_options=CONTROLLER_OPTIONS,
            agent_options=options,
            data=True,
        )
        self._tree = None if bug is None else directory / "tree"
        if bug is not None and self._tree is not None:
            copy_tree(ROOT, self._tree)
            plant(bug, self._tree)

    def program(self, member: Member) -> list[str]:
        if self._tree is None:
            return super().program(member)
        # -P: the folder of the code without it would come before.
        return ["env", f"PYTHONPATH={self._tree}", sys.executable, "-P", "-m", "pidkeeper.cli"]
