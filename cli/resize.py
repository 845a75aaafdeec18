"""What `pidkeeper quorum resize` does: makes the voters of a quorum those that are wanted, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from pidkeeper.cli.controllers import STEP_SECONDS, Controllers
from pidkeeper.cli.failures import CommandError, ExitCode
from pidkeeper.protocol.messages import AddVoterRequest, AddVoterResponse, QuorumDescription, RemoveVoterResponse


def make_voter(request: AddVoterRequest, members: Controllers, deadline: float) -> None:
    """Make a running member a learner, and a voter once it has caught up. Raises CommandError if not in time."""
    while True:
        answer = members.ask(AddVoterResponse, "POST", "/v1/quorum/voters", request)
        if answer.voting:
            return
        if time.monotonic() > deadline:
            raise CommandError(
                f"member {request.id} is still a learner: {answer.waiting_for or 'catching up'}; "
                "run the command again, or remove it with remove-voter"
            )
        time.sleep(STEP_SECONDS)


def remove_member(member_id: int, members: Controllers) -> None:
    """Take a voter or a learner out of the quorum. Raises CommandError."""
    members.ask(RemoveVoterResponse, "DELETE", f"/v1/quorum/voters/{member_id}")


class Place(msgspec.Struct, frozen=True):
    """Where a member is reached: `peer` as host:port, `http` as a base URL."""

    peer: str
    http: str


class Resize:
    """The way from the present voters to those that are wanted: first all additions, from the lowest id up.

    Then all removals, from the highest id down and the leader last, so that no more is lost on the way than at its end.
    Raises CommandError, REFUSED, if nobody who votes now would stay: that is no change of a quorum, but another one.
    """

    def __init__(self, described: QuorumDescription, wanted: Sequence[int]) -> None:
        voters = {voter.id for voter in described.voters}
        if not voters & set(wanted):
            raise CommandError(
                f"none of the voters {', '.join(map(str, sorted(voters)))} would stay: name some of them too, and "
                "leave these out once the others vote",
                ExitCode.REFUSED,
            )
        known = voters | {learner.id for learner in described.learners}
        leader = described.leader_id
        self.additions = sorted(set(wanted) - voters)
        self.removals = sorted(known - set(wanted), key=lambda one: (one == leader, -one))

    def add(
        self, members: Controllers, places: Mapping[int, Place], deadline: float, say: Callable[[str], None]
    ) -> None:
        """Carry out the additions; `places` has whom they add."""
        for one in self.additions:
            make_voter(AddVoterRequest(one, places[one].peer, places[one].http), members, deadline)
            say(f"member {one} is a voter")

    def remove(self, members: Controllers, say: Callable[[str], None]) -> None:
        """Carry out the removals."""
        for one in self.removals:
            remove_member(one, members)
            say(f"member {one} is removed")
