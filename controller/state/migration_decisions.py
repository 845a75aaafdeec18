"""The decisions about the migration from ZooKeeper, on a draft. What the znode says was read before by the leader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.migration import TRANSITIONS
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.metadata_version import MIGRATION
from pidkeeper.protocol.migration import MigrationPhase

STARTED: Final = {
    MigrationPhase.IMPORT,
    MigrationPhase.DUAL_WRITE,
    MigrationPhase.FINALIZING,
    MigrationPhase.FINALIZED,
}
_ORDERS: Final = {
    MigrationPhase.IMPORT: "start",
    MigrationPhase.FINALIZING: "finalize",
    MigrationPhase.ROLLING_BACK: "rollback",
}
_OBEYED: Final = {
    MigrationPhase.FINALIZING: {MigrationPhase.FINALIZING, MigrationPhase.FINALIZED},
    MigrationPhase.ROLLING_BACK: {MigrationPhase.ROLLING_BACK, MigrationPhase.ROLLED_BACK},
}


def start(draft: Draft, request: requests.StartMigration) -> MigrationPhase:
    """From NONE, BRIDGE or ROLLED_BACK to IMPORT."""
    draft.require(MIGRATION)
    if draft.phase in STARTED:
        return draft.phase
    _check_transition(draft, MigrationPhase.IMPORT)
    if (reason := why_not_import(draft, request.zookeeper_next)) is not None:
        raise RequestError(ErrorCode.MIGRATION_REFUSED, reason)
    draft.enter(MigrationPhase.IMPORT, request.claimed_by)
    return draft.phase


def why_not_import(draft: Draft, zookeeper_next: int) -> str | None:
    """Why the IDs of ZooKeeper and those of this quorum do not go together; None if they do."""
    if draft.phase is MigrationPhase.NONE and (last := draft.last_block) is not None:
        return (
            f"this quorum has handed out IDs by itself, {last.first} to {last.last} at last: brokers of ZooKeeper "
            'may have the same. Begin with a quorum that is configured with mode = "zookeeper" from the start'
        )
    if draft.next_producer_id > zookeeper_next:
        return (
            f"the quorum is ahead of ZooKeeper: its next producer ID is {draft.next_producer_id}, the znode's "
            f"{zookeeper_next}. Somebody set the znode back or put another one in its place; set its block_end to "
            f"{draft.next_producer_id - 1} or above, once you know which IDs were handed out since"
        )
    return None


def order(draft: Draft, request: requests.OrderMigration) -> MigrationPhase:
    """From DUAL_WRITE to FINALIZING; or from IMPORT, DUAL_WRITE or FINALIZING to ROLLING_BACK.

    Raises EVIDENCE_OPEN: what follows hands out without asking, here or in ZooKeeper.
    """
    if draft.phase not in _OBEYED[request.phase]:
        _check_transition(draft, request.phase)
        draft.check_handing_out()
        assert draft.migration is not None, f"{draft.phase.name} leads to {request.phase.name}, and has no record"
        draft.enter(request.phase, draft.migration.claimed_by)
    return draft.phase


def advance(draft: Draft, request: requests.AdvanceMigration) -> MigrationPhase:
    """The leader is done with what `request.after` asks for.

    Raises EVIDENCE_OPEN while it would hand back to ZooKeeper, as in `order`.
    """
    draft.require(MIGRATION)
    if draft.phase is not request.after:
        detail = f"the migration is in the phase {draft.phase.name}, no longer in {request.after.name}"
        raise RequestError(ErrorCode.MIGRATION_REFUSED, detail)
    _check_transition(draft, request.phase)
    if request.after is MigrationPhase.ROLLING_BACK:
        draft.check_handing_out()
    if request.phase is MigrationPhase.ROLLED_BACK and request.left_at < draft.next_producer_id:
        detail = f"ZooKeeper was left at {request.left_at}, but the next producer ID is {draft.next_producer_id}"
        raise RequestError(ErrorCode.MIGRATION_REFUSED, detail)
    if request.phase is MigrationPhase.BRIDGE and draft.last_block is not None:
        raise RequestError(ErrorCode.MIGRATION_REFUSED, "this quorum has handed out IDs by itself")
    if request.zookeeper_next >= 0:
        draft.take_zookeeper(request.zookeeper_next, request.broker_id, request.znode_version)
    draft.enter(request.phase, request.claimed_by, request.znode_version)
    return draft.phase


def most_bytes(request: requests.Request) -> int:
    """Bytes that a decision of this module adds to the entry, at most; 0 for a request of another one."""
    return MIGRATION_BYTES if type(request) in DECIDERS else 0


def _check_transition(draft: Draft, phase: MigrationPhase) -> None:
    if phase not in TRANSITIONS[draft.phase]:
        before = [one.name.lower() for one in MigrationPhase if phase in TRANSITIONS[one] and one is not phase]
        order, now = _ORDERS.get(phase, phase.name), draft.phase.name.lower()
        detail = f"{order} is possible in {' or '.join(before)} only; the phase is {now}"
        if draft.phase is MigrationPhase.FINALIZED:
            detail += ", and there is no way back"
        raise RequestError(ErrorCode.MIGRATION_REFUSED, detail)


DECIDERS: Final[dict[type[Any], Callable[[Draft, Any], Any]]] = {
    requests.AdvanceMigration: advance,
    requests.OrderMigration: order,
    requests.StartMigration: start,
}

MIGRATION_BYTES: Final = 600
"""At most, of a ZooKeeperBlockRecord and a MigrationRecord: 128 characters of four bytes, and the rest of both."""
