"""Why the core does not do what its driver asks for. Neither changes anything."""

from __future__ import annotations


class NotLeader(Exception):  # noqa: N818 - the name says what is the matter
    """Only the leader can do this. `leader_id`: who leads as far as is known, or None."""

    def __init__(self, leader_id: int | None) -> None:
        super().__init__("not the leader; " + ("none is known" if leader_id is None else f"the leader is {leader_id}"))
        self.leader_id = leader_id


class ProposalRefused(Exception):  # noqa: N818 - as above
    """The leader cannot take this now; the message says what is in the way and will pass."""
