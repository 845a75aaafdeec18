"""Who a member is to its peers, and why members of two quorums do not speak to each other."""

from __future__ import annotations

import uuid
from typing import Final

import msgspec

from pidkeeper.controller.transport.frames import FoundingTerms
from pidkeeper.protocol.founding import Founded, Succession
from pidkeeper.protocol.metadata_version import LATEST, SUCCESSION
from pidkeeper.protocol.records import QuorumMember
from pidkeeper.protocol.releases import may_meet

SEE: Final = "see docs/operations.md, When something is wrong"


class Identity(msgspec.Struct, frozen=True):
    """Who this member is to its peers. `address`: host:port where they reach it. `metadata_version`: what it reads.

    `keys`: what peers may prove that they know, any of them; None among them stands for a peer that proves nothing.
    Empty for a member without peers. `founding_id`, `blank`, `succession`, `voters`, `release`: as in `Hello`.
    """

    cluster_id: str
    node_id: int
    directory_id: str
    keys: tuple[bytes | None, ...] = (None,)
    address: str = ""
    metadata_version: int = LATEST
    founding_id: uuid.UUID | None = None
    blank: FoundingTerms | None = None
    succession: Succession | None = None
    voters: tuple[QuorumMember, ...] = ()
    release: str = ""


class Peer(msgspec.Struct, frozen=True):
    """What a connected peer says of itself: its data directory's uuid, and the newest metadata version it reads.

    `founding_id`, `blank`, `succession`, `voters`, `release`: as in `Hello`.
    """

    directory_id: str
    metadata_version: int = LATEST
    founding_id: uuid.UUID | None = None
    blank: FoundingTerms | None = None
    succession: Succession | None = None
    voters: tuple[QuorumMember, ...] = ()
    release: str = ""


def of_two_foundings(mine: Founded, theirs: Founded) -> str | None:
    """Why members of these foundings speak to each other as little as members of two clusters; None if they do."""
    founded = mine.founding_id is not None and theirs.founding_id is not None
    if founded and mine.founding_id != theirs.founding_id:
        return (
            f"this member belongs to founding {mine.founding_id} of the cluster, not to {theirs.founding_id}: two "
            f"quorums were founded under one cluster id; {SEE}"
        )
    if founded and mine.succession != theirs.succession:
        return (
            f"founding {mine.founding_id} takes the place of {_described(mine.succession)}, not of "
            f"{_described(theirs.succession)}: {SEE}"
        )
    succeeding, other = (mine, theirs) if mine.succession is not None else (theirs, mine)
    if succeeding.succession is not None and other.metadata_version < SUCCESSION:
        # As a leader it would record the founding without that, and hand out what the predecessor has handed out.
        return (
            f"founding {succeeding.founding_id} takes the place of {_described(succeeding.succession)}, which a member "
            f"of metadata version {other.metadata_version} does not understand: upgrade it"
        )
    return None


def of_two_releases(mine: str, peer: int, theirs: str) -> str | None:
    """Why members of these releases do not speak to each other; None if they do."""
    if may_meet(mine, theirs):
        return None
    return (
        f"member {peer} runs release {theirs}, this one {mine}: members may be one minor release apart, so upgrade, or "
        "go back, by one at a time"
    )


def _described(succession: Succession | None) -> str:
    return "nobody" if succession is None else f"{succession.predecessor} from ID {succession.floor} on"
