"""A client that allocates without pause and afterwards checks all that it was given against the ledger."""

from __future__ import annotations

import http.client
import threading
import time
import uuid
from itertools import cycle, pairwise
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from pidkeeper.cli.local_cluster import LocalCluster
from tests.support.cluster import ledger, wait_until
from tests.support.http_calls import call

ATTEMPT_SECONDS: Final = 0.5
RETRY_SECONDS: Final = 0.01


class Grant(NamedTuple):
    """A block that was acknowledged: when it was asked for, when it came, and what it is."""

    asked: float
    given: float
    first: int
    length: int
    broker_id: int
    broker_epoch: int

    @property
    def last(self) -> int:
        return self.first + self.length - 1


class CheckingClient:
    """One broker for each thread. Every request is either granted, refused, or of unknown outcome (counted)."""

    def __init__(self, cluster: LocalCluster, *, threads: int = 2, first_broker: int = 2001) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.grants: list[Grant] = []
        self.unknown = 0
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._run, args=(first_broker + number,), name=f"client-{number}")
            for number in range(threads)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def more(self, count: int = 20) -> None:
        """Wait until `count` more blocks are granted that were asked for after this call."""
        begun = time.monotonic()
        wait_until(lambda: self._failure or self._asked_since(begun) >= count, f"{count} more blocks")

    def _asked_since(self, begun: float) -> int:
        with self._lock:
            return sum(1 for grant in self.grants[-5000:] if grant.asked >= begun)

    def _run(self, broker_id: int) -> None:
        try:
            _Loop(self, broker_id).run()
        except BaseException as error:  # noqa: BLE001 - raised again where the client is left
            self._failure = error

    def highest(self) -> int:
        """The highest ID granted so far."""
        with self._lock:
            return max((grant.last for grant in self.grants), default=-1)

    def check(self) -> None:
        """All grants are disjoint, in real-time order, in the ledger; and nobody else explains what the ledger has.

        A block of ours in the ledger that we were not given needs a request whose outcome we never learnt.
        """
        ordered = sorted(self.grants, key=lambda grant: grant.first)
        for one, other in pairwise(ordered):
            assert one.last < other.first, f"handed out twice: {one} and {other}"
        latest_asked = 0.0
        for grant in ordered:
            assert grant.given >= latest_asked, f"{grant} was given before a lower block was asked for"
            latest_asked = max(latest_asked, grant.asked)
        history = {block["first"]: block for block in ledger(self._cluster)}
        for grant in ordered:
            block = history.get(grant.first)
            assert block is not None, f"acknowledged and lost: {grant}"
            found = (block["last"], block["broker_id"], block["broker_epoch"])
            assert found == (grant.last, grant.broker_id, grant.broker_epoch), f"{grant} is {block} in the ledger"
        ours = {(grant.broker_id, grant.broker_epoch) for grant in ordered}
        taken = sum((block["broker_id"], block["broker_epoch"]) in ours for block in history.values())
        assert taken <= len(ordered) + self.unknown, (
            f"{taken} blocks in the ledger, {len(ordered)} granted and {self.unknown} requests of unknown outcome"
        )


class _Loop:
    """One thread: keeps a connection to the member that it takes for the leader."""

    def __init__(self, client: CheckingClient, broker_id: int) -> None:
        self._client = client
        self._broker_id = broker_id
        self._members = cycle([controller.http for controller in client._cluster.layout.controllers])
        self._member = next(self._members)
        self._incarnation = str(uuid.uuid4())

    def run(self) -> None:
        epoch = None
        while not self._client._stop.is_set():
            if epoch is None:
                body = {"incarnation_id": self._incarnation}
                answer = self._attempt(f"/v1/brokers/{self._broker_id}/register", body)
                epoch = None if answer is None else answer["broker_epoch"]
                continue
            asked = time.monotonic()
            wanted = {"broker_id": self._broker_id, "broker_epoch": epoch}
            answer = self._attempt("/v1/producer-ids/allocate", wanted)
            if answer is None:
                with self._client._lock:
                    self._client.unknown += 1
                continue
            first, length = answer["producer_id_start"], answer["producer_id_len"]
            grant = Grant(asked, time.monotonic(), first, length, self._broker_id, epoch)
            with self._client._lock:
                self._client.grants.append(grant)

    def _attempt(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """The answer, or None after moving on to another member."""
        try:
            answer = call(self._member, "POST", path, body, timeout=ATTEMPT_SECONDS)
        except (OSError, http.client.HTTPException):
            leader = None
        else:
            if answer.status == 200:
                granted: dict[str, Any] = answer.json()
                return granted
            problem = answer.json()
            assert problem["retryable"], f"refused for good: {problem}"
            leader = problem.get("leader")
        self._member = leader if leader not in {None, self._member} else next(self._members)
        time.sleep(RETRY_SECONDS)
        return None
