"""Whose files these are: members of one cluster, of one founding. Others are named once, and left out of all else.

Files of two quorums differ at each offset that both have, and none of those findings says what is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

CHECK: Final = "identity"

CLUSTERS_SQL: Final = """
select member_id, mode(cluster_id) from (
    select member_id, cluster_id from clusters
    union all select member_id, cluster_id from logs
    union all select member_id, cluster_id from snapshots
) where cluster_id is not null group by member_id
"""
FOUNDINGS_SQL: Final = """
select distinct member_id, "index", founding_id from (
    select member_id, "index", founding_id from records where committed and record_type = 'FoundingRecord'
    union all select member_id, "index", founding_id from snapshots
) where founding_id is not null
"""


class Known(NamedTuple):
    """What a member's files say: its cluster, and as of which log index which founding was known."""

    cluster: str
    foundings: list[tuple[int, str]]


class Foreign(NamedTuple):
    """One whose files do not belong to the others', and why."""

    member_id: int
    detail: str


def known_of(con: Any) -> dict[int, Known]:
    """By member, from the tables of `quorum.logs`."""
    known = {member: Known(cluster, []) for member, cluster in con.sql(CLUSTERS_SQL).fetchall()}
    for member, index, founding in con.sql(FOUNDINGS_SQL).fetchall():
        if member in known:
            known[member].foundings.append((index, founding))
    return known


def cluster_of(known: Mapping[int, Known]) -> str | None:
    """The cluster that most members are of."""
    return _most(one.cluster for one in known.values())


def foreign_members(known: Mapping[int, Known]) -> list[Foreign]:
    """Who is not of the cluster that most members are of, or not of the founding that most of these are of.

    A member that is behind may know an older founding, whose place the newer one took: what it knew by an index at
    which others had none newer is no difference.
    """
    cluster = cluster_of(known)
    found = [
        Foreign(member, f"these are files of cluster {one.cluster}, and cluster {cluster} is audited")
        for member, one in known.items()
        if one.cluster != cluster
    ]
    kin = {member: one.foundings for member, one in known.items() if one.cluster == cluster and one.foundings}
    newest = {member: max(foundings) for member, foundings in kin.items()}
    founding = _most(name for _, name in newest.values())
    since = min((index for foundings in kin.values() for index, name in foundings if name == founding), default=0)
    found += [
        Foreign(member, f"by index {index:,} it is of founding {name}, and founding {founding} is audited")
        for member, (index, name) in newest.items()
        if name != founding and index >= since
    ]
    return sorted(found)


def conclude(con: Any, foreign: Iterable[Foreign]) -> None:
    """One violation for each."""
    for one in foreign:
        con.execute(
            """
            insert into findings by name
            select $check as "check", 'violation' as severity, format('member {}', member) as subject, member,
                format('{}: it was left out, audit it apart', $detail::varchar) as detail
            from members where member_id = $member
            """,
            {"check": CHECK, "detail": one.detail, "member": one.member_id},
        )


def _most(names: Iterable[str]) -> str | None:
    """The one that is there most often; of several the first by name."""
    counted = Counter(names)
    return min(counted, key=lambda name: (-counted[name], name), default=None)
