"""Crowds of transactional ids that nobody uses again, and what becomes of them, judged from the log.

- no id is removed that is not idle, nor before its time by the clock of the leader that removes it, nor so soon after
  its last use that two looks do not lie between, whatever clocks say;
- no entry of the log removes more ids than may be under way at once;
- no more ids are kept than the table has room for, and who is told that it is full is told so only then;
- once all faults have ended, a crowd many times as large as what may be under way goes after one look, no idle id
  stays, and new ids are served again.
"""

from __future__ import annotations

import math
import random
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import msgspec

from pidkeeper.controller.node import transaction_duties
from pidkeeper.controller.state import draft, requests
from pidkeeper.controller.state.transactions import MAX_TRANSACTIONAL_IDS
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.records import Record
from pidkeeper.protocol.transactions import AddPartitionsRecord, ForgetTransactionRecord, TransactionRecord
from tests.simulation.client import Endpoint
from tests.simulation.own_blocks import SINCE
from tests.simulation.producer import Transactional
from tests.simulation.transaction_model import NOBODY, ONGOING, OUTCOME
from tests.simulation.world import MILLISECOND, SECOND, Violation

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.process import Process

BROKER: Final = 700
"""The broker that all of the crowd asks through."""

FIRST: Final = 1_000_000
"""Numbers of the crowd's producers are from here on."""

CROWD: Final = "crowd-"
TIMEOUT_MS: Final = 60_000
CROWDED: Final = 12
"""A crowd is as large as so many windows of ids that may be removed at once."""

UNTAKEN: Final = 2
"""Windows of a crowd for which the table has no room."""

REGISTER: Final = 100 * MILLISECOND
ASKING: Final = 3 * SECOND
"""For which a crowd may ask at the end."""

GONE: Final = 10 * SECOND
"""Until all of it is gone: idle after 2 s, found at a look after 1.6 s at most and at the next one, removed within 12
duties of 160 ms. A window at each look would take 12 s."""

LATE_MS: Final = 8_000
"""An id that is older than its time by this was to be removed by then, for the same reason."""

JUDGED: Final = 5 * SECOND
"""Until an operator has judged all evidence: two looks, and a patience of 2 s."""

SERVED: Final = 3 * SECOND
MEMBERS: Final = 10
"""Attempts to find the one that leads."""

FASTEST: Final = 0.6
"""Of the true time that lies between two looks, by the fastest of the members' own clocks (`Swarm.clock_rates`)."""

JUMPED: Final = SECOND
"""For so long a decision may rest on what the clock said before it was set."""


class Crowding(msgspec.Struct, frozen=True):
    """The settings of one seed. `size` of a crowd, 0 for none; `window`: ids that may be removed at once; `room`: for
    ids in the table."""

    size: int
    window: int
    room: int


def draw(rng: random.Random, transactional: Transactional) -> Crowding:
    """Settings for one seed: the product's own bounds in a few, small ones in most."""
    product = Crowding(2_500, transaction_duties.MAX_FORGETTING, MAX_TRANSACTIONAL_IDS)
    whole, window = rng.random() < 0.1, rng.choice((5, 10, 20))
    if not transactional.ids or transactional.expiration_ms > LATE_MS:
        return Crowding(0, product.window, product.room)
    size = CROWDED * window
    return product if whole else Crowding(size, window, size - UNTAKEN * window)


def bounds(crowding: Crowding) -> ExitStack:
    """While it is open, the bounds of the product are those of a seed."""
    stack = ExitStack()
    stack.enter_context(patch.object(transaction_duties, "MAX_FORGETTING", crowding.window))
    stack.enter_context(patch.object(draft, "MAX_TRANSACTIONAL_IDS", crowding.room))
    return stack


class Expiry:
    """What the log says of all transactional ids. `known`: whether each is idle, and since when by its label."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._window, self._room = cluster.crowding.window, cluster.crowding.room
        self._expiration_ms = cluster.transactional.expiration_ms
        # Who decides counts what changes in the same batch twice.
        self._slack = UNTAKEN * self._window
        self.known: dict[str, tuple[bool, int]] = {}
        self.forgotten = 0
        self._removed_at: dict[str, float] = {}
        """By the clock of the newest leader that proposed it."""
        between_ms = min(cluster.transactional.forget_check_ms, self._expiration_ms)
        self._between_looks = FASTEST * between_ms * MILLISECOND
        self._used_at: dict[str, int] = {}
        """By true time."""
        self._full_until = -1

    def proposed(self, process: Process, records: list[Record]) -> None:
        """A leader proposes."""
        for record in records:
            if type(record) is ForgetTransactionRecord:
                set_lately = self._world.now - process.member.clock_set < JUMPED
                now_ms = math.inf if set_lately else process.member.wall_clock() * 1_000
                self._removed_at[record.transactional_id] = max(
                    now_ms, self._removed_at.get(record.transactional_id, 0)
                )

    def committed(self, records: list[Record]) -> None:
        """The next entry was applied for the first time."""
        before = self.forgotten
        for record in records:
            if isinstance(record, TransactionRecord | AddPartitionsRecord):
                self._used_at[record.transactional_id] = self._world.now
            if isinstance(record, TransactionRecord):
                idle = record.status != ONGOING and record.status not in OUTCOME
                self.known[record.transactional_id] = idle, record.update_ms
                self._removed_at.pop(record.transactional_id, None)
            elif isinstance(record, AddPartitionsRecord):
                self.known[record.transactional_id] = False, record.update_ms
            elif isinstance(record, ForgetTransactionRecord):
                self._forget(record.transactional_id)
            if len(self.known) + self._slack >= self._room:
                self._full_until = self._world.now
        if self.forgotten - before > self._window:
            raise Violation(
                "forgot-too-many", f"{self.forgotten - before} ids in one entry, {self._window} are allowed"
            )
        if len(self.known) > self._room:
            raise Violation("too-many-ids", f"{len(self.known)} are kept, {self._room} are allowed")

    def _forget(self, name: str) -> None:
        idle, update_ms = self.known.pop(name, (False, 0))
        removed_ms = self._removed_at.pop(name, 0)
        if not idle or removed_ms - update_ms < self._expiration_ms:
            facts = f"{name}, idle: {idle}, used at {update_ms}, is removed at {removed_ms}"
            raise Violation("forgot-live-id", facts)
        unused = self._world.now - self._used_at.pop(name)
        if unused < self._between_looks:
            raise Violation("forgot-live-id", f"{name} was used {unused / SECOND:.3f} s ago, whatever clocks say")
        self.forgotten += 1

    def overdue(self, process: Process) -> list[str]:
        """The ids that should be gone by now, by the clock of `process`."""
        oldest = process.member.wall_clock() * 1_000 - self._expiration_ms - LATE_MS
        return [name for name, (idle, update_ms) in self.known.items() if idle and update_ms < oldest]

    def ahead(self, process: Process) -> set[str]:
        """The ids that were used in what is the future by the clock of `process`: they stay until it has come."""
        now_ms = process.member.wall_clock() * 1_000
        return {name for name, (_, update_ms) in self.known.items() if update_ms > now_ms}

    def has_room(self) -> bool:
        """Whether nobody may be told that there is none."""
        return len(self.known) + self._slack < self._room

    def check_full(self, asked: int) -> None:
        """Somebody who asked at `asked` was told that there is no room. Raises Violation."""
        if self.has_room() and self._full_until < asked:
            raise Violation("told-full", f"{len(self.known)} ids are kept, {self._room} are allowed")


class Crowd:
    """Whoever asks for the ids."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._rng: random.Random = cluster.world.stream("crowd")
        self._endpoint = Endpoint(cluster, self._rng)
        self._size = cluster.crowding.size
        self._epoch: int | None = None
        self._asked = 0
        self._waiting = 0
        self.granted: list[str] = []

    def start(self) -> None:
        """Come once or twice while faults happen, in the seeds that have crowds."""
        if self._size:
            for _ in range(self._rng.choice((1, 2)) if self._size < ASKING // SECOND * 100 else 1):
                self._world.at(self._rng.randrange(3 * SECOND, self._cluster.swarm.safety_time), self.come)

    def come(self, size: int = 0) -> None:
        """Ask for `size` new ids at once, under a registration of its own."""
        if self._epoch is None:
            self._register(size)
            return
        if self._cluster.metadata_version() < SINCE or not self._cluster.may_allocate():
            return
        if not size:
            self._world.fault("crowd_of_ids")
        for _ in range(size or self._size):
            self._asked += 1
            self._ask(f"{CROWD}{self._asked}", FIRST + self._asked, self._epoch)

    def waits(self) -> bool:
        """Whether it has not heard of all that it asked."""
        return self._epoch is None or self._waiting > 0

    def _register(self, size: int) -> None:
        def told(answer: Any, error: RequestError | None) -> None:
            self._epoch = None if error is not None else answer.broker_epoch
            if self._cluster.loaded:
                self._world.at(REGISTER, self.come, size)

        self._endpoint.call(requests.RegisterBroker(BROKER, "crowd"), told)

    def _ask(self, name: str, producer: int, epoch: int) -> None:
        asked = self._world.now
        self._waiting += 1

        def told(_: Any, error: RequestError | None) -> None:
            self._waiting -= 1
            if error is None:
                self.granted.append(name)
            elif error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                self._world.fault("crowd_finds_no_room")
                self._cluster.expiry.check_full(asked)

        self._endpoint.call(requests.InitProducerId(BROKER, epoch, name, TIMEOUT_MS, *NOBODY, -1), told, producer)

    # Once all faults have ended.

    def check(self) -> None:
        """Let a crowd come, and see it go. Raises Violation."""
        leader = self._cluster.leader()
        if not self._size or leader is None or not self._is_handed_out(leader):
            return
        self._let_the_last_crowd_go(leader)
        self._come_to_the_leader(ASKING)
        granted, expiry = len(self.granted), self._cluster.expiry

        def left() -> list[str]:
            return [*self._known(leader), *expiry.overdue(leader)]

        self._world.run(self._world.now + GONE, lambda: not left())
        if self._cluster.leader() is not leader:
            return
        self._world.fault("crowd_gone", f"{granted} ids")
        if stay := left():
            facts = f"{len(stay)}, {granted} were granted, {stay[0]} among them: {expiry.known[stay[0]]}"
            raise Violation("idle-id-stays", facts)
        self._check_served()

    def _is_handed_out(self, leader: Process) -> bool:
        """Once an operator has judged what false witnesses said."""
        machine = leader.machine

        def settled() -> bool:
            return not machine.foundings.open(machine.producer_ids.next_producer_id)

        self._world.run(self._world.now + JUDGED, settled)
        return settled()

    def _known(self, leader: Process) -> list[str]:
        """The ids of all crowds in the table that are to go, also those whose answer was lost."""
        expiry = self._cluster.expiry
        ahead = expiry.ahead(leader)
        return [name for name in expiry.known if name.startswith(CROWD) and name not in ahead]

    def _let_the_last_crowd_go(self, leader: Process) -> None:
        """One that came a moment ago may fill the table until its time is up."""
        limit = self._world.now + self._cluster.transactional.expiration_ms * MILLISECOND + GONE
        self._world.run(limit, lambda: not self._known(leader))

    def _come_to_the_leader(self, limit: int, size: int = 0) -> None:
        """Ask until somebody is given an ID: all of a crowd asks the same member, perhaps one that does not lead."""
        self.granted.clear()
        end = self._world.now + limit
        for _ in range(MEMBERS):
            self.come(size)
            self._world.run(end, lambda: not self.waits())
            if self.granted or self._world.now >= end:
                return

    def _check_served(self) -> None:
        """Who comes behind the crowd is given an ID, where the quorum may take one by itself."""
        cluster = self._cluster
        by_itself = cluster.metadata_version() >= SINCE and not cluster.migrating.present
        if not by_itself or cluster.floors.exhausted() or not cluster.expiry.has_room():
            return
        self._come_to_the_leader(SERVED, size=3)
        if not self.granted:
            raise Violation("not-served-again", f"{SERVED // SECOND} s after all others were forgotten")
