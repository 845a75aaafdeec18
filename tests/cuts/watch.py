"""Stands between agents and controllers, and kills whoever a window is set for, at the moment that it names."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from pidkeeper.cli.local_cluster import Member, member_name
from pidkeeper.protocol.segment_messages import FindGarbageResponse
from tests.chaos.shim.control import SyncFault
from tests.chaos.shim.preload import Shim
from tests.chaos.stage import ChaosCluster
from tests.cuts.machines import STORE, Machines
from tests.cuts.relay import Answer, Exchange
from tests.cuts.sights import COMMIT, GARBAGE, OK, Sight
from tests.cuts.windows import Moment, Victim, Window

LOOK_SECONDS: Final = 0.002
"""Between two looks at what a slow call is waited for: a tenth of the shortest."""
SLOW_SECONDS: Final = 4.0
"""How long is waited for that before the window counts as missed."""


class Struck(NamedTuple):
    """`victims`: those that were killed. `machines`: whose power was cut. `hit`: whether it was in the window."""

    victims: list[Member]
    machines: list[str]
    hit: bool


class Watch:
    """`Looks` of all relays. `leader`: the controller that answered a commit last. `held`: how often an agent was told
    that nothing may be deleted. `deleted`: has what agents were told to delete, by name, as a store has that keeps
    versions."""

    def __init__(self, cluster: ChaosCluster, shim: Shim, machines: Machines, store: Path, deleted: Path) -> None:
        self._cluster = cluster
        self._shim = shim
        self._machines = machines
        self._store = store
        self._garbage: dict[int, list[str]] = {}
        self._window: Window | None = None
        self._struck: asyncio.Future[Struck] | None = None
        self._waiting: asyncio.Task[None] | None = None
        self.deleted = deleted
        self.leader = 0
        self.held = 0

    def set(self, window: Window) -> asyncio.Future[Struck]:
        """Kill in this window as soon as it is there; what happened comes with the future, which may be cancelled."""
        self._window = window
        self._struck = asyncio.get_running_loop().create_future()
        return self._struck

    async def asked(self, exchange: Exchange) -> bool:
        return self._look(Moment.ASKED, exchange, None)

    async def underway(self, exchange: Exchange) -> bool:
        return self._look(Moment.UNDERWAY, exchange, None)

    async def answered(self, exchange: Exchange, answer: Answer) -> bool:
        if answer.status == OK:
            self._learn(exchange, answer)
        return self._look(Moment.ANSWERED, exchange, answer)

    def _learn(self, exchange: Exchange, answer: Answer) -> None:
        if exchange.path == COMMIT:
            self.leader = exchange.controller
        if exchange.path == GARBAGE:
            told = msgspec.json.decode(answer.body, type=FindGarbageResponse)
            self.held += told.held
            self._garbage = {one.key: one.names for one in told.objects}
            for name in (name for one in told.objects for name in one.names):
                self._keep(name)

    def _keep(self, name: str) -> None:
        """Before it is deleted. An agent that did not live to tell of it has deleted it before."""
        target = self.deleted / name
        if not target.exists():
            with contextlib.suppress(OSError):
                data = (self._store / name).read_bytes()
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)

    def _look(self, moment: Moment, exchange: Exchange, answer: Answer | None) -> bool:
        """Whether to pass on what was seen. Synchronous: nothing happens between the look and the kill."""
        window, struck = self._window, self._struck
        if window is None or struck is None or struck.done():
            return True
        if (window.moment, window.path) != (moment, exchange.path):
            return True
        if window.victim is not Victim.AGENT and self.leader not in {0, exchange.controller}:
            # It does not lead, and will refuse.
            return True
        sight = Sight(self._store, exchange, answer, self._garbage)
        if not window.holds(sight):
            return True
        self._window = None
        if window.slow is None:
            struck.set_result(self._strike(window, exchange, hit=True))
            return False
        files = [] if window.files is None else window.files(sight)
        self._waiting = asyncio.create_task(self._strike_amid(window, sight, files, struck))
        return True

    async def _strike_amid(
        self, window: Window, sight: Sight, files: list[Path], struck: asyncio.Future[Struck]
    ) -> None:
        call = self._slowed(window, sight.exchange)

        def seen() -> bool:
            return call.hit > before and (window.until is None or window.until(sight, files))

        assert window.slow is not None, "there is something to wait for"
        before = call.hit
        call.set(window.slow.effect, seconds=window.slow.seconds)
        try:
            for _ in range(int(SLOW_SECONDS / LOOK_SECONDS)):
                if seen():
                    break
                await asyncio.sleep(LOOK_SECONDS)
            done = self._strike(window, sight.exchange, hit=False)
            done = done._replace(hit=seen())
        finally:
            call.heal()
        if not struck.done():
            struck.set_result(done)

    def _slowed(self, window: Window, exchange: Exchange) -> SyncFault:
        assert window.slow is not None, "something is slowed down"
        of_agent = window.victim is Victim.AGENT
        control = self._shim.control(f"agent-{exchange.agent}" if of_agent else f"controller-{exchange.controller}")
        found: SyncFault = getattr(control, window.slow.call)
        return found

    def _strike(self, window: Window, exchange: Exchange, *, hit: bool) -> Struck:
        victims, machines = self._meant(window.victim, exchange)
        self._machines.cut(*machines)
        for one in victims:
            os.kill(one.pid, signal.SIGKILL)
        for one in victims:
            # Milliseconds, and only then nothing changes any more.
            os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
        return Struck(victims, machines, hit)

    def _meant(self, victim: Victim, exchange: Exchange) -> tuple[list[Member], list[str]]:
        layout = self._cluster.layout
        asking = [one for one in layout.agents if one.id == exchange.agent]
        asked = [one for one in layout.controllers if one.id == exchange.controller]
        by_victim: dict[Victim, Callable[[], tuple[list[Member], list[str]]]] = {
            Victim.AGENT: lambda: ([*asking], []),
            Victim.LEADER: lambda: ([*asked], []),
            Victim.STORE_MACHINE: lambda: ([*layout.agents], [STORE]),
            Victim.LEADER_MACHINE: lambda: ([*asked], [member_name(one) for one in asked]),
            Victim.EVERYTHING: lambda: (
                self._cluster.members(),
                [STORE, *(member_name(one) for one in layout.controllers)],
            ),
        }
        return by_victim[victim]()
