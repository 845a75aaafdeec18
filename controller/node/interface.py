"""What the HTTP interface is given of a member: requests, questions and orders, and nothing of its parts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import asdict
from prometheus_client.core import Metric

from pidkeeper.controller.node.assembly import ClusterMember
from pidkeeper.controller.node.group_views import fetch_offsets, find_group, group_offsets, groups_page
from pidkeeper.controller.node.log_views import find_offsets, find_topics, read_logs, topic_partitions, topics_page
from pidkeeper.controller.node.metrics import member_metrics
from pidkeeper.controller.node.ownerless import Gaps, why_ownerless
from pidkeeper.controller.node.segment_views import check_objects, due_logs, garbage, kept_objects
from pidkeeper.controller.node.status import KnownLeader, describe, liveness, peer_states, readiness
from pidkeeper.controller.node.transaction_views import brokers_response, transaction_description, transactions_page
from pidkeeper.controller.state import requests
from pidkeeper.controller.transport.identity import Peer
from pidkeeper.protocol.addresses import AddressError, HostPort
from pidkeeper.protocol.errors import ErrorCode, RequestError
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
    TransactionalOwner,
    TransactionDescription,
    TransactionsPage,
)
from pidkeeper.protocol.migration import MigrationPhase
from pidkeeper.protocol.records import MAX_PEER_LENGTH, QuorumMember
from pidkeeper.protocol.segment_messages import (
    CheckObjectsRequest,
    CheckObjectsResponse,
    FindGarbageResponse,
    FindRollsResponse,
    KeptObjectsPage,
)
from pidkeeper.service.health_check import HealthCheck


class MemberInterface:
    """One member, as the HTTP interface sees it: the port `controller.api.member_port.Member`."""

    def __init__(self, member: ClusterMember) -> None:
        self._member = member
        self.node_id = member.node_id
        self.cluster_id = member.settings.cluster_id
        self._leader = KnownLeader(member.core)

    def submit(self, request: requests.Request) -> Any:
        """Have `request` decided; see `Leadership.submit`."""
        return self._member.leadership.submit(request)

    # Questions.

    def leader(self) -> tuple[int, str] | None:
        """The leader's id and base URL, as far as this member knows."""
        return self._leader.find()

    def misses_leader(self) -> bool:
        """Whether one is to be expected shortly."""
        return self._member.leadership.misses_leader()

    async def leader_known(self, seconds: float) -> None:
        """Wait while a leader is missed, so long at most."""
        await self._member.driver.leader_wait.over(seconds)

    def describe(self) -> QuorumDescription:
        """The quorum as this member sees it."""
        return describe(self._member)

    async def blocks(self, after: int, limit: int) -> AllocatedBlocksPage:
        """A page of the allocation history."""
        return await self._member.ledger.page(after, limit)

    async def owner(self, producer_id: int) -> ProducerIdOwner | None:
        """The block that holds `producer_id`, and the transactional id that has or had it."""
        ledger, machine = self._member.ledger, self._member.machine
        given = await ledger.transactional_owner(producer_id)
        block = await ledger.owner(producer_id)
        if block is None:
            return None
        name = machine.transactions.user_of(producer_id)
        known = None if name is None else TransactionalOwner(name)
        if given is not None:
            known = TransactionalOwner(given.transactional_id, given.offset, given.timestamp_ms)
        return ProducerIdOwner(**asdict(block), transactional=known, free=machine.own_ids.holds(producer_id))

    async def why_ownerless(self, producer_id: int) -> str:
        """Why no block of this member's history holds `producer_id`."""
        ledger, machine = self._member.ledger, self._member.machine
        page = await ledger.page(producer_id, 1)
        jumps, jumps_from = ledger.jumps()
        gaps = Gaps(
            machine.producer_ids.next_producer_id,
            machine.foundings.succeeded,
            machine.migration.record,
            jumps,
            jumps_from,
            ledger.complete_from(),
        )
        return why_ownerless(producer_id, gaps, page.blocks[0].first if page.blocks else None)

    def transactions(self, after: str, limit: int, state: str | None, producer_id: int | None) -> TransactionsPage:
        """A page of the transactional ids."""
        return transactions_page(self._member.machine.transactions, after, limit, state, producer_id)

    def transaction(self, transactional_id: str) -> TransactionDescription | None:
        """One transactional id."""
        record = self._member.machine.transactions.get(transactional_id)
        return None if record is None else transaction_description(record)

    def brokers(self) -> BrokersResponse:
        """The registered brokers."""
        leadership = self._member.leadership
        said = leadership.last_contact_ms, leadership.reserve_ids, leadership.known_to
        return brokers_response(self._member.machine.brokers, *said)

    def topics(self, after: str, limit: int) -> TopicsPage:
        """A page of the topics."""
        return topics_page(self._member.machine.logs, after, limit)

    def find_topics(self, names: list[str]) -> TopicsPage:
        """Those of the named topics that there are."""
        return find_topics(self._member.machine.logs, names)

    def topic_partitions(self, name: str, after: int, limit: int) -> TopicPartitionsPage | None:
        """A topic with a page of its partitions."""
        machine = self._member.machine
        return topic_partitions(machine.logs, machine.transactions, name, after, limit)

    def read_logs(self, request: ReadLogsRequest) -> ReadLogsResponse:
        """Where the batches of some logs are."""
        return read_logs(self._member.machine.logs, request)

    def find_offsets(self, request: FindOffsetsRequest) -> FindOffsetsResponse:
        """Offsets of logs by time."""
        return find_offsets(self._member.machine.logs, request)

    def find_rolls(self, limit: int) -> FindRollsResponse:
        """Logs whose tails are to be rolled."""
        duties = self._member.leadership.segments
        return due_logs(self._member.machine.logs, duties.due(limit), duties.settings.segment_bytes)

    def find_garbage(self, limit: int) -> FindGarbageResponse:
        """Objects that no log has needed for a while."""
        leadership = self._member.leadership
        before, hearing = leadership.segments.garbage_before, leadership.founding.hearing()
        return garbage(self._member.machine, limit, before, hearing=hearing)

    def check_objects(self, request: CheckObjectsRequest) -> CheckObjectsResponse:
        """Which objects of the store nobody needs."""
        return check_objects(self._member.machine, request, hearing=self._member.leadership.founding.hearing())

    def kept_objects(self, after: int, limit: int) -> KeptObjectsPage:
        """One page of the store's objects."""
        return kept_objects(self._member.machine, after, limit)

    def group(self, group_id: str) -> GroupDescription | None:
        """One consumer group."""
        return find_group(self._member.machine.groups, group_id)

    def groups(self, after: str | None, limit: int) -> GroupsPage:
        """A page of the consumer groups."""
        return groups_page(self._member.machine.groups, after, limit)

    def fetch_offsets(self, request: FetchOffsetsRequest) -> OffsetsPage:
        """Where a consumer group is to go on."""
        return fetch_offsets(self._member.machine.groups, request)

    def group_offsets(self, group_id: str, after: tuple[str, int] | None, limit: int) -> OffsetsPage:
        """A page of the offsets of a consumer group."""
        return group_offsets(self._member.machine.groups, group_id, after, limit)

    def watch_logs(self, request: WatchLogsRequest) -> Any:
        """A future of WatchLogsResponse; see `LogWatch`."""
        return self._member.leadership.watch_logs(request.logs)

    def end_watch(self, answer: Any) -> None:
        """Nobody waits for the future that `watch_logs` gave any more."""
        self._member.leadership.log_watch.remove(answer)

    def watch(self, watched: bool) -> None:
        """Whether somebody wants to know what happens."""
        self._member.driver.happenings.watch(watched)

    def happened(self) -> list[Event]:
        """What happened since the last call, while it was watched."""
        return self._member.driver.happenings.take(
            int(self._member.ports.wall_clock() * 1000), peer_states(self._member)
        )

    def liveness(self) -> list[HealthCheck]:
        """Whether this process works at all."""
        return liveness(self._member)

    def readiness(self) -> list[HealthCheck]:
        """Whether this member has its place in the quorum."""
        return readiness(self._member)

    def metric_families(self) -> Iterable[Metric]:
        """This member's samples."""
        return member_metrics(self._member)

    # Orders.

    def transfer_leadership(self, target: int | None) -> None:
        """Hand over to `target`. Raises RequestError."""
        self._member.driver.transfer_leadership(target)

    def found(self, wanted: FoundQuorumRequest) -> Any:
        """A future of FoundQuorumResponse; see FoundingGate.found."""
        answer = self._member.ports.loop.create_future()
        self._member.gate.found(wanted, answer)
        return answer

    def add_voter(self, wanted: AddVoterRequest) -> Any:
        """A future of AddVoterResponse; see VoterChanges.add. Also INVALID_REQUEST without a peer key."""
        member = self._member
        if not any(member.settings.peer_keys) and not member.settings.certified:
            detail = (
                "voters are added under a peer key or certificates only: set peer_key_file, or security, on every "
                "member (docs/operations.md)"
            )
            raise RequestError(ErrorCode.INVALID_REQUEST, detail)
        voter = QuorumMember(wanted.id, wanted.directory_id, _address(wanted.peer), wanted.http.rstrip("/"), True)
        answer = member.ports.loop.create_future()
        member.voter_changes.add(voter, self._peer(voter.id), answer)
        member.driver.pump()
        return answer

    def remove_voter(self, member_id: int) -> Any:
        """A future of RemoveVoterResponse; see VoterChanges.remove."""
        answer = self._member.ports.loop.create_future()
        self._member.voter_changes.remove(member_id, answer)
        self._member.driver.pump()
        return answer

    def start_migration(self) -> Any:
        """Begin the migration from ZooKeeper; see MigrationOrders.start."""
        return self._member.leadership.migration.orders.start()

    def order_migration(self, phase: MigrationPhase, *, forced: bool = False) -> Any:
        """Have FINALIZING or ROLLING_BACK begin; see MigrationOrders.order."""
        return self._member.leadership.migration.orders.order(phase, forced=forced)

    def describe_migration(self) -> Any:
        """A future of MigrationDescription."""
        migration = self._member.leadership.migration
        return migration.orders.describe(migration.trouble())

    def _peer(self, member_id: int) -> Peer | None:
        links = self._member.links
        return Peer(links.identity.directory_id) if member_id == self.node_id else links.peers.get(member_id)


def _address(text: str) -> str:
    """host:port with brackets where they belong. Raises RequestError."""
    try:
        address = str(HostPort.parse(text, "peer"))
    except AddressError as error:
        raise RequestError(ErrorCode.INVALID_REQUEST, str(error)) from error
    if len(address) > MAX_PEER_LENGTH:
        detail = f"peer: {address!r} has {len(address)} characters, {MAX_PEER_LENGTH} are allowed"
        raise RequestError(ErrorCode.INVALID_REQUEST, detail)
    return address
