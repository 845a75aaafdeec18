"""Kills and pauses of the leaders of both worlds, as the plan has them, and their repair."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import time
from collections.abc import Callable
from typing import Final

from pidkeeper.cli.local_cluster import Controller, LocalCluster
from tests.migration.plan import Fault, Plan
from tests.support.zookeeper import Ensemble

ASK_SECONDS: Final = 0.3
WAIT_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.01


class Faults:
    """`strike` at every point of the plan, `tick` often: it repairs what is due, and sees that nothing else died."""

    def __init__(self, plan: Plan, cluster: LocalCluster, ensemble: Ensemble) -> None:
        self._plan = plan
        self._cluster = cluster
        self._ensemble = ensemble
        self._repairs: list[tuple[float, Callable[[], None]]] = []
        self._killed: set[int] = set()

    def strike(self, point: int, before: Callable[[], None] = lambda: None) -> None:
        """The faults of this point, one after the other; `before` is called just before each."""
        began = time.monotonic()
        for fault in self._plan.faults:
            if fault.point != point:
                continue
            strike = self._prepare(fault)
            time.sleep(max(0.0, began + fault.delay_ms / 1000 - time.monotonic()))
            before()
            self._repairs.append((time.monotonic() + fault.away_ms / 1000, strike()))

    def end(self) -> None:
        """Repair everything, and wait until ZooKeeper serves and all controllers are ready."""
        while self._repairs:
            self.tick()
            time.sleep(POLL_SECONDS)
        self._ensemble.wait_for_leader(WAIT_SECONDS)
        self._cluster.wait_ready(seconds=WAIT_SECONDS)

    def tick(self) -> None:
        """Repair what is due. Raises AssertionError if a controller ended by itself."""
        now = time.monotonic()
        due = [repair for when, repair in self._repairs if when <= now]
        self._repairs = [(when, repair) for when, repair in self._repairs if when > now]
        for repair in due:
            repair()
        for controller in self._cluster.layout.controllers:
            if controller.id not in self._killed and not self._cluster.running(controller):
                raise AssertionError(f"a controller ended by itself:\n{self._cluster.log_end(controller, 40)}")

    def leader(self) -> str | None:
        """The base URL of the controller that leads with the highest term, as far as anybody answers."""
        found = self._leader()
        return None if found is None else found.http

    def _leader(self) -> Controller | None:
        claims = []
        for controller in self._cluster.layout.controllers:
            with contextlib.suppress(OSError, http.client.HTTPException):
                described = json.loads(self._cluster.get(controller, "/v1/quorum", timeout=ASK_SECONDS)[1])
                if described["role"] == "leader":
                    claims.append((described["term"], controller.id, controller))
        return max(claims)[2] if claims else None

    def _prepare(self, fault: Fault) -> Callable[[], Callable[[], None]]:
        """What strikes, once its target is found; it returns what repairs it."""
        if fault.target == "zookeeper":
            server = self._ensemble.wait_for_leader(WAIT_SECONDS)
            return lambda: self._strike_zookeeper(server, fault)
        controller = self._wait_for_leader()
        return lambda: self._strike_controller(controller, fault)

    def _wait_for_leader(self) -> Controller:
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            self.tick()
            if (found := self._leader()) is not None:
                return found
            time.sleep(POLL_SECONDS)
        raise AssertionError(f"no controller leads after {WAIT_SECONDS:g} s")

    def _strike_controller(self, controller: Controller, fault: Fault) -> Callable[[], None]:
        if fault.paused:
            self._cluster.signal(controller, signal.SIGSTOP)
            return lambda: self._cluster.signal(controller, signal.SIGCONT)
        self._killed.add(controller.id)
        self._cluster.kill(controller)

        def start() -> None:
            self._cluster.start(controller)
            self._killed.discard(controller.id)

        return start

    def _strike_zookeeper(self, server: int, fault: Fault) -> Callable[[], None]:
        if fault.paused:
            self._ensemble.pause(server)
            return lambda: self._ensemble.resume(server)
        self._ensemble.kill(server)
        return lambda: self._ensemble.start_server(server)
