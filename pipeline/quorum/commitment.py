"""Entries that are committed though no member has written so.

A member writes its commit index along with the next entries, so the last entries of a quorum at rest are on disk and
nowhere called committed. They are committed where a majority of the voters accepted them in the very term in which
they were made: whoever leads in a later term has the vote of one of these, given after it had the entry, and so has the
entry too (Raft, section 5.4.3). That a majority has an entry is not enough: copies that a later leader handed on may
yet be replaced (figure 8). Nor does one count that had lost what it knew, as it may have voted in a later term before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from pidkeeper.pipeline.quorum.members import Member
from pidkeeper.protocol.records import QuorumMember

VOTERS_SQL: Final = """
with named as (
    select voters, "index", term, committed from records
    where voters is not null and not list_contains($foreign, member_id)
    union all
    select voters, "index", term, true from snapshots
    where voters is not null and not list_contains($foreign, member_id)
),
founding as (
    select any_value(voters) as voters from founded where not list_contains($foreign, member_id)
    having count(distinct voters) = 1 and count(*) = (
        select count(distinct member_id) from logs where not list_contains($foreign, member_id)
    )
)
select
    coalesce((select arg_max(voters, "index") from named where committed), (select voters from founding)) as voters,
    exists (from named n where not committed
        and not exists (from named k where k.committed and (k."index", k.term) = (n."index", n.term))) as changing
"""
"""Those of the founding count while nothing names others, which all members have to show."""
ACCEPTED_SQL: Final = """
select term, member_id, directory_id, "index" from accepted where not list_contains($foreign, member_id)
"""
COMMIT_SQL: Final = """
update records set committed = true where member_id = $member and "index" <= $index and not committed
"""


def commit(con: Any, members: Sequence[Member], foreign: Sequence[int]) -> bool:
    """Mark rows of `records` as committed by the rule; whether there are any. From the tables of `quorum.logs`.

    While the voters are being changed none is marked.
    """
    ((voters, changing),) = con.execute(VOTERS_SQL, {"foreign": list(foreign)}).fetchall()
    rows = con.execute(ACCEPTED_SQL, {"foreign": list(foreign)}).fetchall()
    if voters is None or changing or not rows:
        return False
    seats = {one.id: one.directory_id for one in _voters(voters)}
    nodes = {one.member_id: one.owner.node_id for one in members if one.owner is not None and len(one.logs) == 1}
    accepted: dict[int, dict[int, int]] = defaultdict(dict)
    for term, member, directory, index in rows:
        if (node := nodes.get(member)) in seats and str(seats[node] or directory) == directory:
            accepted[term][member] = index
    marked = 0
    for of_term in accepted.values():
        if (index := majority_index(list(of_term.values()), len(seats))) is None:
            continue
        for member, last in of_term.items():
            if last >= index:
                ((count,),) = con.execute(COMMIT_SQL, {"member": member, "index": index}).fetchall()
                marked += count
    return marked > 0


def majority_index(indexes: Sequence[int], voters: int) -> int | None:
    """The highest index that more than half of the voters reach; None if so few are known."""
    needed = voters // 2 + 1
    return sorted(indexes, reverse=True)[needed - 1] if len(indexes) >= needed else None


def _voters(told: str) -> list[QuorumMember]:
    return [one for one in msgspec.json.decode(told, type=list[QuorumMember]) if one.voting]
