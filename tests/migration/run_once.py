"""One migration from ZooKeeper with real processes, under load of both worlds, while leaders are killed."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec

from pidkeeper.cli.local_cluster import LocalCluster
from pidkeeper.controller.migration.znode import ZnodeBlock as StoredBlock
from pidkeeper.controller.migration.znode import encode, parse
from pidkeeper.controller.migration.zookeeper import BLOCK_PATH
from tests.migration.claimer import Claimer
from tests.migration.faults import Faults
from tests.migration.judge import BLOCK, Evidence, Moment, check_blocks, check_moment
from tests.migration.plan import ORDERS, REST, Order, Plan
from tests.support.cluster import ledger, running_cluster
from tests.support.http_calls import Answer, call
from tests.support.old_broker import Exhausted, OldBroker, OldBrokerThread
from tests.support.zookeeper import Ensemble, zookeeper_client

OLD_BROKERS: Final = (101, 102, 103)
OLD_BROKER_PAUSE_SECONDS: Final = 0.015
"""So that the controllers, whose every claim they may make conflict, get about as many blocks."""
ORDER_SECONDS: Final = 1.5
"""What an order may take: ZooKeeper away is found out in half of it."""
POLL_SECONDS: Final = 0.01
WAIT_SECONDS: Final = 60.0
"""When a run gives up on what must come."""
PATH: Final = "/v1/migration/zookeeper"
BODIES: Final[dict[str, dict[str, Any]]] = {"start": {}, "rollback": {}, "finalize": {"agreed": True}}


class Result(msgspec.Struct):
    """What a run without a violation came to: blocks and faults."""

    phase: str
    old_blocks: int
    controller_blocks: int
    unknown: int
    exact_moments: int
    seconds: float


class Run:
    """One run; `evidence` is filled as it goes, and stays after a violation, which is an AssertionError."""

    def __init__(self, plan: Plan, ensemble: Ensemble, directory: Path) -> None:
        self.plan = plan
        self.evidence = Evidence()
        self._ensemble = ensemble
        self._directory = directory
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="order")

    def run(self) -> Result:
        """Go through the plan, and judge. Raises AssertionError."""
        began = time.monotonic()
        connect = self._ensemble.chroot(f"run-{self.plan.seed}-{time.time_ns()}", self._first_data())
        zookeeper = {"connect": connect, "request_timeout_ms": 700, "session_timeout_ms": 2000}
        options = {"mode": "zookeeper", "zookeeper": zookeeper}
        try:
            with running_cluster(self._directory, controller_options=options) as cluster:
                phase = self._migrate(cluster, connect)
        finally:
            self._sender.shutdown()
        return Result(
            phase=phase,
            old_blocks=len(self.evidence.old),
            controller_blocks=len(self.evidence.ledger),
            unknown=len(self.evidence.unknown),
            exact_moments=self.evidence.exact_moments,
            seconds=time.monotonic() - began,
        )

    def _first_data(self) -> bytes | None:
        first_free = self.plan.first_free
        return None if first_free is None else encode(StoredBlock(101, first_free - BLOCK, first_free - 1))

    def _migrate(self, cluster: LocalCluster, connect: str) -> str:
        self._cluster, self._connect = cluster, connect
        self._faults = Faults(self.plan, cluster, self._ensemble)
        urls = [controller.http for controller in cluster.layout.controllers]
        with self._load(urls, connect):
            self._rest("bridge")
            phase = "bridge"
            for number, order in enumerate(ORDERS[self.plan.destination]):
                phase = self._order(number, order)
                self._rest(phase, 3 * number + 3)
            self._faults.end()
            self._go_on(phase)
        self._collect()
        check_blocks(self.evidence, self._now(), finalized=phase == "finalized")
        return phase

    # The load.

    @contextlib.contextmanager
    def _load(self, urls: list[str], connect: str) -> Iterator[None]:
        self._old: list[OldBrokerThread] = []
        self._claimers: list[Claimer] = []
        try:
            self._old += [OldBrokerThread(connect, one, OLD_BROKER_PAUSE_SECONDS) for one in OLD_BROKERS]
            self._claimers += [Claimer(urls, one) for one in range(1, self.plan.claimers + 1)]
            yield
        finally:
            # Those that fail to stop must not keep the others running.
            with contextlib.ExitStack() as stack:
                for actor in self._actors():
                    stack.callback(actor.stop)
            self._collect_acknowledged()

    def _actors(self) -> list[OldBrokerThread | Claimer]:
        return [*self._old, *self._claimers]

    def _collect_acknowledged(self) -> None:
        self.evidence.old = [(block.first, block.last) for thread in self._old for _, block in thread.blocks]
        self.evidence.unknown = [first for thread in self._old for first in thread.unknown]
        self.evidence.claimed = [(*block, claimer.broker_id) for claimer in self._claimers for block in claimer.blocks]
        self.evidence.refusals = {claimer.broker_id: claimer.refusals for claimer in self._claimers}

    def _collect(self) -> None:
        self.evidence.ledger = ledger(self._cluster)

    def _go_on(self, phase: str) -> None:
        """Both worlds get blocks again; but old brokers end loudly once the migration is final."""
        old = [len(thread.blocks) for thread in self._old]
        claimed = [len(claimer.blocks) for claimer in self._claimers]
        pairs = list(zip(self._claimers, claimed, strict=True))
        self._until(lambda: all(len(one.blocks) > before for one, before in pairs), "a block for every claimer")
        if phase != "finalized":
            threads = list(zip(self._old, old, strict=True))
            self._until(
                lambda: all(len(one.blocks) > before for one, before in threads),
                lambda: f"a block for all old brokers: {'; '.join(map(str, self._old))}",
            )
            return
        self._until(lambda: all(thread.exhausted for thread in self._old), "every old broker to report exhaustion")
        late = OldBroker(self._connect, 104)
        try:
            block = late.allocate()
        except Exhausted:
            return
        finally:
            late.close()
        raise AssertionError(f"a broker got {block} from ZooKeeper after the migration was finalised")

    # The orders.

    def _rest(self, phase: str, point: int = 0) -> None:
        """A while in a phase at rest, with the fault that is due there."""
        assert self.plan.points[point] == phase or phase in self.plan.points[point].split("_or_"), (phase, point)
        if self.plan.orphan and phase == "dual_write" and "rollback" in self.plan.points[point + 1]:
            for thread in self._old:
                thread.pause()
            for thread in self._old:
                thread.wait_idle()
            self._faults.strike(point, before=self._pause_claimers)
        else:
            self._faults.strike(point)
        end = time.monotonic() + self.plan.dwell_ms / 1000
        self._until(lambda: time.monotonic() > end, "the end of the dwelling")

    def _order(self, number: int, order: Order) -> str:
        """Give one order until it rests, and return the phase."""
        during, acknowledged = 3 * number + 1, 3 * number + 2
        exact = self.plan.exact and "rollback" in order
        pausing = self._begin_pause() if exact else None
        first = "finalize" if order == "finalize_or_rollback" else order
        member = self._faults.leader()
        sent = self._sender.submit(self._send, member, first)
        self._faults.strike(during)
        with contextlib.suppress(OSError, http.client.HTTPException):
            sent.result(WAIT_SECONDS)
        goals = {REST[order]}
        if order == "finalize_or_rollback":
            order, goals = "rollback", {"rolled_back", "finalized"}
        self._faults.strike(acknowledged)
        phase, member = self._until_rest(order, goals)
        if pausing is not None:
            pausing.join()
            self._exact_moment(order, goals, phase)
        return phase

    def _send(self, member: str | None, order: str) -> Answer | None:
        return None if member is None else call(member, "POST", f"{PATH}/{order}", BODIES[order], timeout=ORDER_SECONDS)

    def _until_rest(self, order: str, goals: set[str]) -> tuple[str, str]:
        """Repeat the order, as an operator would, until its phase rests; the member that said so goes along."""
        last: Any = None

        def attempt() -> tuple[str, str] | None:
            nonlocal last
            member = self._faults.leader()
            answer = self._send(member, order)
            if answer is None or member is None:
                return None
            last = answer.json()
            phase = last.get("phase")
            if phase is None and "there is no way back" in last["detail"]:
                phase = "finalized"
            return (phase, member) if phase in goals else None

        found: tuple[str, str] = self._until(attempt, lambda: f"the end of {order}; the last answer was {last}")
        return found

    # The moment after a rollback, at which the znode shows exactly what is free.

    def _pause_claimers(self) -> None:
        for claimer in self._claimers:
            claimer.pause()

    def _begin_pause(self) -> threading.Thread:
        """Nobody asks a controller any more; the old brokers pause a little later, while the znode is set back."""
        self._pause_claimers()

        def pause() -> None:
            time.sleep(self.plan.pause_ms / 1000)
            for thread in self._old:
                thread.pause()

        pausing = threading.Thread(target=pause, name="pausing")
        pausing.start()
        return pausing

    def _exact_moment(self, order: str, goals: set[str], phase: str) -> None:
        for actor in self._actors():
            actor.wait_idle()
        if phase == "rolled_back":
            self._collect_acknowledged()
            self._until(lambda: self._leader_ledger(order, goals), "the ledger of the leader")
            moment = self._now()
            check_moment(self.evidence, moment)
            self.evidence.exact_moments += 1
        for actor in self._actors():
            actor.resume()

    def _leader_ledger(self, order: str, goals: set[str]) -> bool:
        """Of a member that has applied everything so far: it has just agreed on the phase."""
        _, member = self._until_rest(order, goals)
        blocks: list[dict[str, Any]] = []
        after: int | None = -1
        while after is not None:
            page = call(
                member, "GET", f"/v1/producer-ids/blocks?after={after}&limit=1000", timeout=ORDER_SECONDS
            ).json()
            blocks += page["blocks"]
            after = page["next_after"]
        self.evidence.ledger = blocks
        return True

    def _now(self) -> Moment:
        """What the znode holds."""
        client = zookeeper_client(self._connect)
        try:
            self._until(lambda: client.sync(BLOCK_PATH), "ZooKeeper's answer")
            data, stat = client.get(BLOCK_PATH)
        finally:
            client.stop()
            client.close()
        block = parse(data or None)
        self.evidence.znode = (data or b"").decode()
        return Moment(0 if block is None else block.last + 1, stat.version, block is not None and block.sealed)

    def _until(self, condition: Callable[[], Any], what: str | Callable[[], str]) -> Any:
        """The first true value of `condition`; repairs what is due meanwhile."""
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            self._faults.tick()
            with contextlib.suppress(OSError, http.client.HTTPException):
                if found := condition():
                    return found
            time.sleep(POLL_SECONDS)
        raise AssertionError(f"not within {WAIT_SECONDS:g} s: {what if isinstance(what, str) else what()}")
