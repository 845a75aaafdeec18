"""What the monitors see of a member: its calls are listened to, none is changed.

Only the planted controls of `--bug` change something, to show that the monitors would notice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pidkeeper.controller.node.proposals import Outcomes, Proposal
from pidkeeper.controller.raft.messages import Entry
from pidkeeper.controller.state import requests
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.records import Record, decode_batch
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.simulation.history import SERVED
from tests.simulation.log_bounds import LogBounds
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.process import Process


def observe(process: Process) -> None:
    """Tell the monitors what `process` proposes, applies and installs."""
    _observe_proposals(process)
    _observe_applied(process)
    _observe_snapshots(process)
    _observe_deposed(process)
    _observe_requests(process)
    process.member.cluster.full_disks.watch(process)


def _observe_proposals(process: Process) -> None:
    proposals, cluster = process.node.proposals, process.member.cluster
    propose = proposals.propose

    def observed(records: list[Record], outcomes: Outcomes) -> Proposal:
        if cluster.migrating.present:
            cluster.migration.proposed(process, records)
        cluster.expiry.proposed(process, records)
        proposal = propose(records, outcomes)
        if cluster.migrating.present:
            cluster.kill_points.proposed(process, records)
        if cluster.bug == "answer-at-propose":
            process.soon(proposals.applied, Entry(proposal.term, proposal.index, b""))
        return proposal

    proposals.propose = observed  # type: ignore[method-assign]


def _observe_applied(process: Process) -> None:
    driver, cluster = process.driver, process.member.cluster
    apply, bounds = driver._apply, LogBounds(process)

    def observed(entry: Entry) -> None:
        if cluster.migrating.present:
            # Before its answers leave: a step goes on in the same event.
            cluster.kill_points.applied(process, decode_batch(entry.data))
        apply(entry)
        process.member.monitor.applied(process, entry)
        if cluster.data is not None and not cluster.data.closed:
            cluster.data.monitor.applied(process, entry)
        bounds.applied(entry)

    driver._apply = observed  # type: ignore[method-assign]


def _observe_snapshots(process: Process) -> None:
    driver = process.driver
    installed = driver.snapshot_installed

    def observed(snapshot: SnapshotId, image: StateImage) -> None:
        process.durable_last = snapshot.index
        process.member.monitor.installed(process, snapshot, image)
        installed(snapshot, image)

    driver.snapshot_installed = observed  # type: ignore[method-assign]


def _observe_deposed(process: Process) -> None:
    migration = process.node.leadership.migration
    deposed = migration.deposed

    def observed() -> None:
        process.member.cluster.kill_points.gone(process)
        deposed()

    migration.deposed = observed  # type: ignore[method-assign]


def _observe_requests(process: Process) -> None:
    """A member that stops takes no request, and one that refuses a request keeps no session for it."""
    leadership = process.node.leadership
    submit, sessions = leadership.submit, leadership.sessions

    def observed(request: requests.Request) -> Any:
        before = dict(sessions._seen)
        try:
            answer = submit(request)
        except RequestError as refusal:
            if sessions._seen != before:
                facts = f"member {process.node_id} refuses {request} with {refusal}, and counts it as a sign of life"
                raise Violation("session-without-request", facts) from refusal
            raise
        if asked := SERVED.get():
            operation = next((one for one in asked if not one.taken), None)
            if operation is None or request != operation.request:
                raise Violation("request-changed", f"asked for was {[one.request for one in asked]}, then {request}")
            operation.taken = True
        if process.node.stopping:
            raise Violation("taken-while-stopping", f"member {process.node_id}, which stops, takes {request}")
        return answer

    leadership.submit = observed  # type: ignore[method-assign]
