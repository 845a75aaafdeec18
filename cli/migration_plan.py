"""What is in the way of the migration from ZooKeeper, and what each order would do, from a description. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from pidkeeper.controller.migration.live_brokers import BEHIND_THE_SEAL, name_brokers
from pidkeeper.controller.migration.znode import ZnodeBlock, next_free, parse, went_back
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.messages import MigrationDescription
from pidkeeper.protocol.migration import CLAIMING, PAUSED

NEXT_ORDERS: Final[dict[str, tuple[str, ...]]] = {
    "none": ("start",),
    "bridge": ("start",),
    "import": ("rollback",),
    "dual_write": ("finalize", "rollback"),
    "finalizing": ("rollback",),
    "finalized": (),
    "rolling_back": (),
    "rolled_back": ("start",),
}
"""The orders that a phase is left with; what else leads on, the leader does by itself."""

STATES: Final = {
    "none": "the quorum hands out blocks by itself",
    "bridge": "blocks are claimed in ZooKeeper first; not started yet",
    "import": "the leader takes over what ZooKeeper has handed out",
    "dual_write": "blocks are claimed in ZooKeeper first; started",
    "finalizing": "no block is handed out until the znode is sealed",
    "finalized": "the quorum hands out blocks by itself, for good",
    "rolling_back": "no block is handed out until the znode is written",
    "rolled_back": "blocks are claimed in ZooKeeper first; rolled back",
}
"""What each phase means for allocation."""

_NEEDING: Final = frozenset(phase.name.lower() for phase in CLAIMING | PAUSED)


class Step(msgspec.Struct, frozen=True):
    """An order, why it would be refused (None if it would not), and what it would do."""

    order: str
    refusal: str | None
    would: list[str]


def blockers(migration: MigrationDescription) -> list[str]:
    """Why no ID can be handed out by way of ZooKeeper, or the step under way cannot go on; empty if nothing is."""
    found = [migration.trouble]
    if migration.phase in _NEEDING:
        found.append(migration.zookeeper)
        if migration.znode is not None and not sealed_by_this_quorum(migration):
            found.append(migration.znode.problem)
    return list(dict.fromkeys(reason for reason in found if reason is not None))


def behind(migration: MigrationDescription) -> str | None:
    """Says so if the znode is behind a quorum that claims each block in it first."""
    block, readable = _block(migration)
    if migration.phase not in _NEEDING or not readable or not went_back(block, migration.next_producer_id):
        return None
    return (
        f"the znode is behind: the quorum has handed out IDs below {migration.next_producer_id}, ZooKeeper continues "
        f"from {0 if block is None else block.last + 1}. Somebody set it back or created it anew; brokers that have "
        "taken blocks since have IDs that others have too"
    )


def alive(migration: MigrationDescription) -> str | None:
    """Says so if a broker is known to use ZooKeeper still, or may do."""
    block, _ = _block(migration)
    if migration.phase != "dual_write" or block is None or block.claimed_by is not None or block.broker_id < 0:
        return None
    if block.last >= migration.next_producer_id:
        return (
            f"broker {block.broker_id} took the block {block.first} to {block.last} after the quorum's last claim: "
            "it still uses ZooKeeper"
        )
    return f"the last block was taken by broker {block.broker_id}: make sure that it no longer uses ZooKeeper"


def left_behind(migration: MigrationDescription) -> str | None:
    """Says so if a broker is still there when nothing is to be had in ZooKeeper any more."""
    if migration.phase != "finalized" or migration.brokers is None or not migration.brokers.ids:
        return None
    return f"{name_brokers(migration.brokers.ids)} still in ZooKeeper. {BEHIND_THE_SEAL}"


def sealed_by_this_quorum(migration: MigrationDescription) -> bool:
    """Whether the znode holds this quorum's seal."""
    block, _ = _block(migration)
    return block is not None and block.sealed and block.claimed_by == migration.claimed_by


def steps(migration: MigrationDescription) -> list[Step]:
    """The orders that come next. `would` is empty where the znode has to be read for it."""
    return [
        Step(order, why_not(order, migration), _WOULD[order](migration) if _block(migration)[1] else [])
        for order in NEXT_ORDERS.get(migration.phase, ())
    ]


def why_not(order: str, migration: MigrationDescription) -> str | None:
    """Why an order would be refused now; None if it would not."""
    return migration.refusals.get(order)


def waits(migration: MigrationDescription) -> str | None:
    """What the leader does by itself in this phase; None if it waits for an order."""
    leads_to = {"import": "dual_write", "finalizing": "finalized", "rolling_back": "rolled_back"}.get(migration.phase)
    return None if leads_to is None else f"the leader continues to {leads_to} by itself"


def zookeeper_next(migration: MigrationDescription) -> int:
    """The lowest ID that nobody was given."""
    return next_free(_block(migration)[0], migration.claimed_by, migration.next_producer_id)


def _block(migration: MigrationDescription) -> tuple[ZnodeBlock | None, bool]:
    """The block in the znode, and whether it could be read."""
    if migration.znode is None:
        return None, False
    try:
        return parse(None if migration.znode.data is None else migration.znode.data.encode()), True
    except ValueError:
        return None, False


def _start(migration: MigrationDescription) -> list[str]:
    free, now = zookeeper_next(migration), migration.next_producer_id
    return [
        f"The quorum's next producer ID stays {now}: it knows of every block that ZooKeeper has handed out."
        if free == now
        else f"The quorum's next producer ID goes from {now} to {free}: ZooKeeper has handed out all IDs below.",
        _CLAIMED_FIRST,
        "Nothing is final: rollback undoes this, finalize ends the migration.",
    ]


def _finalize(migration: MigrationDescription) -> list[str]:
    return [
        "The quorum hands out no block until the znode is sealed; agents serve from their reserves.",
        f"The znode is sealed with a block that ends at {MAX_PRODUCER_ID}. {BEHIND_THE_SEAL}",
        f"The quorum hands out blocks by itself from {zookeeper_next(migration)} on, and no longer needs ZooKeeper.",
        "There is no way back.",
    ]


def _rollback(migration: MigrationDescription) -> list[str]:
    block, _ = _block(migration)
    free, stands = zookeeper_next(migration), 0 if block is None else block.last + 1
    return [
        "The quorum hands out no block until the znode is written; agents serve from their reserves.",
        f"The znode is rewritten unchanged: ZooKeeper continues from {free}."
        if stands == free
        else f"The block in the znode ends at {free - 1} then, not at {stands - 1}: ZooKeeper continues from {free}.",
        "After that, every block is claimed in ZooKeeper first, as before `start`; start begins the migration again.",
    ]


_CLAIMED_FIRST: Final = (
    "Every block is then claimed in ZooKeeper first, and committed by the quorum after. Brokers that use ZooKeeper "
    "continue beside it. No block is handed out while ZooKeeper is away."
)

_WOULD: Final = {"start": _start, "finalize": _finalize, "rollback": _rollback}
