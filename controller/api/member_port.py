"""What the HTTP interface needs from the member of the quorum that it stands in front of."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, Protocol

from prometheus_client.core import Metric

from pidkeeper.controller.state.requests import Request
from pidkeeper.protocol.events import Event
from pidkeeper.protocol.group_messages import (
    FetchOffsetsRequest,
    GroupDescription,
    GroupsPage,
    OffsetsPage,
)
from pidkeeper.protocol.log_messages import (
    FindOffsetsRequest,
    FindOffsetsResponse,
    ReadLogsRequest,
    ReadLogsResponse,
    TopicPartitionsPage,
    TopicsPage,
    WatchLogsRequest,
)
from pidkeeper.protocol.messages import (
    AddVoterRequest,
    AllocatedBlocksPage,
    BrokersResponse,
    FoundQuorumRequest,
    ProducerIdOwner,
    QuorumDescription,
    TransactionDescription,
    TransactionsPage,
)
from pidkeeper.protocol.migration import MigrationPhase
from pidkeeper.protocol.segment_messages import (
    CheckObjectsRequest,
    CheckObjectsResponse,
    FindGarbageResponse,
    FindRollsResponse,
    KeptObjectsPage,
)
from pidkeeper.service.health_check import HealthCheck


class Member(Protocol):
    """One member of the quorum, leader or not. Every method is called on the event loop's thread."""

    node_id: int
    cluster_id: str

    def submit(self, request: Request) -> Awaitable[Any]:
        """A future of the response value from `protocol.messages`; raises RequestError, here or through the future.

        A caller that has waited long enough cancels the future: the request may still take effect.
        """
        ...

    def leader(self) -> tuple[int, str] | None:
        """The node id and base URL of the leader that this member follows, or None while there is none."""
        ...

    def misses_leader(self) -> bool:
        """Whether this member does not serve and hears no leader, and expects one of the two shortly."""
        ...

    async def leader_known(self, seconds: float) -> None:
        """Returns once this member serves or hears a leader, at once if it expects neither, after `seconds` anyway."""
        ...

    def describe(self) -> QuorumDescription:
        """The quorum as this member sees it."""
        ...

    async def blocks(self, after: int, limit: int) -> AllocatedBlocksPage:
        """At most `limit` blocks of the history whose first ID is above `after` (-1: from the start)."""
        ...

    async def owner(self, producer_id: int) -> ProducerIdOwner | None:
        """The block that holds the ID, and the transactional id that has or had it; None if no block here does."""
        ...

    async def why_ownerless(self, producer_id: int) -> str:
        """Why `owner` gives None for the ID."""
        ...

    def transactions(self, after: str, limit: int, state: str | None, producer_id: int | None) -> TransactionsPage:
        """At most `limit` transactional ids above `after`, in `state` and with `producer_id` if these are not None."""
        ...

    def transaction(self, transactional_id: str) -> TransactionDescription | None:
        """The transactional id, or None if nothing is known of it."""
        ...

    def brokers(self) -> BrokersResponse:
        """All registered brokers."""
        ...

    def topics(self, after: str, limit: int) -> TopicsPage:
        """At most `limit` topics whose names are above `after`."""
        ...

    def find_topics(self, names: list[str]) -> TopicsPage:
        """Those of the named topics that there are."""
        ...

    def topic_partitions(self, name: str, after: int, limit: int) -> TopicPartitionsPage | None:
        """A topic with at most `limit` of its partitions above `after`, or None if there is no such topic."""
        ...

    def read_logs(self, request: ReadLogsRequest) -> ReadLogsResponse:
        """Where the batches of some logs are, as far as was applied here."""
        ...

    def find_offsets(self, request: FindOffsetsRequest) -> FindOffsetsResponse:
        """Offsets of logs by time, as far as was applied here."""
        ...

    def find_rolls(self, limit: int) -> FindRollsResponse:
        """Logs whose tails are to be rolled, as far as was applied here."""
        ...

    def find_garbage(self, limit: int) -> FindGarbageResponse:
        """Objects that no log has needed for a while."""
        ...

    def check_objects(self, request: CheckObjectsRequest) -> CheckObjectsResponse:
        """Which objects of the store nobody needs, as far as was applied here."""
        ...

    def kept_objects(self, after: int, limit: int) -> KeptObjectsPage:
        """At most `limit` objects whose keys are above `after`."""
        ...

    def group(self, group_id: str) -> GroupDescription | None:
        """A consumer group as far as was applied here, or None if nothing is known of it."""
        ...

    def groups(self, after: str | None, limit: int) -> GroupsPage:
        """At most `limit` consumer groups whose ids are above `after` (None: from the first)."""
        ...

    def fetch_offsets(self, request: FetchOffsetsRequest) -> OffsetsPage:
        """Where a consumer group is to go on, as far as was applied here."""
        ...

    def group_offsets(self, group_id: str, after: tuple[str, int] | None, limit: int) -> OffsetsPage:
        """At most `limit` offsets of a consumer group above `after`; see `group_views.group_offsets`."""
        ...

    def watch_logs(self, request: WatchLogsRequest) -> Awaitable[Any]:
        """A future of WatchLogsResponse once a log has gone on; `wait_ms` is the caller's business."""
        ...

    def end_watch(self, answer: Awaitable[Any]) -> None:
        """Nobody waits for what `watch_logs` gave any more."""
        ...

    def watch(self, watched: bool) -> None:
        """Whether somebody wants to know what happens. While nobody does, it costs nothing."""
        ...

    def happened(self) -> Sequence[Event]:
        """What happened since the last call, while it was watched."""
        ...

    def liveness(self) -> list[HealthCheck]:
        """Conditions of this process alone: a peer's failure shows in none of them."""
        ...

    def readiness(self) -> list[HealthCheck]:
        """Conditions of this member's place in the quorum."""
        ...

    def transfer_leadership(self, target: int | None) -> None:
        """Begin to hand leadership to `target`, or to the most advanced voter. Raises RequestError."""
        ...

    def found(self, wanted: FoundQuorumRequest) -> Awaitable[Any]:
        """A future of FoundQuorumResponse; raises RequestError."""
        ...

    def add_voter(self, wanted: AddVoterRequest) -> Awaitable[Any]:
        """A future of AddVoterResponse; raises RequestError."""
        ...

    def remove_voter(self, member_id: int) -> Awaitable[Any]:
        """A future of RemoveVoterResponse; raises RequestError."""
        ...

    def start_migration(self) -> Awaitable[Any]:
        """A future of the MigrationPhase; raises RequestError."""
        ...

    def order_migration(self, phase: MigrationPhase, *, forced: bool = False) -> Awaitable[Any]:
        """A future of the MigrationPhase once FINALIZING or ROLLING_BACK began; raises RequestError.

        `forced`: FINALIZING whoever still is in ZooKeeper.
        """
        ...

    def describe_migration(self) -> Awaitable[Any]:
        """A future of MigrationDescription."""
        ...

    def metric_families(self) -> Iterable[Metric]:
        """The member's own samples; asked for once a scrape."""
        ...
