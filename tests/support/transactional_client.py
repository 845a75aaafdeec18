"""A broker's agent as far as transactions go: it asks whoever leads, over HTTP, and hands out its own candidates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pidkeeper.cli.local_cluster import LocalCluster
from pidkeeper.protocol.metadata_version import TRANSACTIONS
from tests.support.cluster import allocate, quorum, register, wait_until
from tests.support.http_calls import Answer, call

ROOT: Final = "/v1/transactions"
NO_LEADER: Final = {421, 504}
"""Not decided here, or not known: another member is asked, or the same one again."""

Pair = tuple[int, int]
NO_PAIR: Final[Pair] = (-1, -1)

COME_AGAIN = {"CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS"}
"""A transaction is being completed, or a block is being claimed in ZooKeeper."""


class TransactionalClient:
    """Registered as broker 50, with a block of candidates; who has an ID already needs none of them."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        wait_until(
            lambda: quorum(cluster.leader())["metadata_version"] >= TRANSACTIONS, "a quorum that knows transactions"
        )
        leader = cluster.leader()
        self._epoch = register(leader, 50, "transactional-client").json()["broker_epoch"]
        block = allocate(leader, 50, self._epoch).json()
        self._candidates: Iterator[int] = iter(range(block["producer_id_start"], block["producer_id_start"] + 1000))

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """The answer of whoever leads; waits for one."""

        def attempt() -> Answer | None:
            answer = call(self._cluster.leader().http, method, path, body)
            return None if answer.status in NO_LEADER else answer

        found = wait_until(attempt, f"an answer to {method} {path}")
        assert found is not None
        return found

    def init(self, name: str, pair: Pair = NO_PAIR, timeout_ms: int = 600_000, candidate: int | None = None) -> Answer:
        """InitProducerId."""
        named = next(self._candidates, -1) if candidate is None else candidate
        body = self._producer(name, pair, transaction_timeout_ms=timeout_ms, candidate=named)
        return self.ask("POST", f"{ROOT}/init-producer-id", body)

    def pair(self, name: str, pair: Pair = NO_PAIR, timeout_ms: int = 600_000) -> Pair:
        """The pair that InitProducerId gives, once nothing is in its way that passes."""

        def attempt() -> Answer | None:
            answer = self.init(name, pair, timeout_ms)
            return None if code(answer) in COME_AGAIN else answer

        answer = wait_until(attempt, f"a pair for {name}")
        assert answer is not None and answer.status == 200, answer
        return answer.json()["producer_id"], answer.json()["producer_epoch"]

    def add(self, name: str, pair: Pair, *partitions: int) -> Answer:
        """AddPartitionsToTxn for topic t."""
        topics = [{"topic": "t", "partitions": list(partitions or [0])}]
        return self.ask("POST", f"{ROOT}/add-partitions", self._producer(name, pair, topics=topics))

    def end(self, name: str, pair: Pair, *, committed: bool = True) -> Answer:
        """EndTxn."""
        return self.ask("POST", f"{ROOT}/end", self._producer(name, pair, committed=committed))

    def find(self, name: str) -> Answer:
        """What is known of one id, or the refusal if it is nothing."""
        return self.ask("GET", f"{ROOT}/describe?transactional_id={name}")

    def describe(self, name: str) -> dict[str, Any]:
        """The description of one id."""
        described: dict[str, Any] = self.ask("GET", f"{ROOT}/describe?transactional_id={name}").json()
        return described

    def reach(self, name: str, state: str) -> dict[str, Any]:
        """The description once the id is in `state`."""
        wait_until(lambda: self.describe(name)["state"] == state, f"{name} to be in {state}")
        return self.describe(name)

    def all(self) -> list[dict[str, Any]]:
        """The descriptions of all ids, in small pages."""
        found: list[dict[str, Any]] = []
        after: str | None = ""
        while after is not None:
            page = self.ask("GET", f"{ROOT}?limit=7&after={after}").json()
            found += page["transactions"]
            after = page["next_after"]
        return found

    def _producer(self, name: str, pair: Pair, **more: Any) -> dict[str, Any]:
        return {
            "broker_id": 50,
            "broker_epoch": self._epoch,
            "transactional_id": name,
            "producer_id": pair[0],
            "producer_epoch": pair[1],
            **more,
        }


def code(answer: Answer) -> str:
    """The name of the error; empty if there is none."""
    return "" if answer.status == 200 else str(answer.json()["code"])
