"""The operator who changes the quorum, one voter at a time, as `pidkeeper quorum add-voter` and `remove-voter` do.

Every request may be lost, or its answer, or the leader may change in between; then the operator asks again. What an
answer says is compared with what was committed. After each change the configuration files are brought up to date, and
a removed member's process stays up for a while, or its machine is gone at once, or was before.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final

from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import AddVoterRequest, AddVoterResponse
from pidkeeper.protocol.metadata_version import LATEST
from tests.simulation.member import NOWHERE, Member, base_url
from tests.simulation.process import listen
from tests.simulation.world import MILLISECOND, SECOND, Violation

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.process import Process

ATTEMPT: Final = (30 * MILLISECOND, 500 * MILLISECOND)
"""How long the operator waits for an answer: less than a cut-off leader needs to see that it is one, or more."""

PATIENCE: Final = 8 * SECOND
"""How long a member may take to be added before the operator gives it up in half of the cases."""

MIN_VOTERS: Final = 3
MAX_VOTERS: Final = 6
ADD: Final = "add"
REMOVE: Final = "remove"


class QuorumOperator:
    """`voters`: those of the last change that is known to be done; the clients and the configuration files go by it."""

    def __init__(self, cluster: Cluster, voters: tuple[int, ...]) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.rng: random.Random = cluster.world.stream("operator")
        self.voters = voters
        self._plan: deque[tuple[str, int]] = deque()
        self._kind = ""
        self._attempt = 0
        self._patience = 0

    @property
    def busy(self) -> bool:
        """Whether a change is under way."""
        return bool(self._plan)

    def start(self) -> None:
        """Look after the quorum every now and then."""
        self.world.at(SECOND, self._look_after)

    def wanted(self) -> frozenset[int]:
        """The voters when the step under way is done."""
        voters = frozenset(self.voters)
        if not self._plan:
            return voters
        step, node = self._plan[0]
        return voters | {node} if step == ADD else voters - {node}

    def shown(self) -> tuple[int, ...]:
        """The voters as a majority of the members shows them to whoever asks; else those that the operator knows of."""
        running = [self.cluster.members[voter].process for voter in self.voters]
        # One that lost just the end of its log shows what its log says; one whose disk is blank shows its file.
        views = Counter(one.core.membership.voters for one in running if one is not None and one.core.last_index)
        for voters, count in views.most_common(1):
            if 2 * count > len(self.voters):
                return tuple(sorted(voters))
        return self.voters

    # What is asked of it.

    def add(self, kind: str = "add_voter") -> bool:
        """Begin to add a spare machine."""
        spare = [node for node in self.cluster.members if node not in self.voters]
        if self.busy or not spare or len(self.voters) >= MAX_VOTERS:
            return False
        self._begin(kind, [(ADD, self.rng.choice(spare))])
        return True

    def remove(self, node: int) -> bool:
        """Begin to remove a voter."""
        if self.busy or len(self.voters) <= MIN_VOTERS:
            return False
        self._begin("remove_voter", [(REMOVE, node)])
        return True

    def replace(self, node: int) -> bool:
        """Begin to put an empty machine in place of a voter: under its own id if there are voters enough meanwhile."""
        spare = [other for other in self.cluster.members if other not in self.voters]
        if self.busy or (len(self.voters) <= MIN_VOTERS and not spare):
            return False
        if len(self.voters) > MIN_VOTERS:
            self._begin("replace_member", [(REMOVE, node), (ADD, node)])
        else:
            self._begin("replace_member", [(ADD, self.rng.choice(spare)), (REMOVE, node)])
        return True

    # Step by step.

    def _begin(self, kind: str, steps: list[tuple[str, int]]) -> None:
        self._kind = kind
        self._plan.extend(steps)
        self.world.note(f"the operator begins: {kind} {steps}")
        self._prepare()

    def _prepare(self) -> None:
        """Make the machine ready that the next step is about."""
        step, node = self._plan[0]
        self._patience = self.world.now + PATIENCE
        if step == ADD:
            member = self.cluster.members[node]
            # It comes back as it is, unless the quorum may have gone on to what its build cannot read.
            if member.deployed and member.build == LATEST and self.rng.random() < 0.3:
                member.configure(self.voters)
            elif not self.cluster.budget.may_deploy(member) or (member.deployed and self._may_be_asked()):
                if self.cluster.healed:
                    # Nothing was asked for yet, and a removed member that never recovers may hold it up for ever.
                    self.world.note(f"the operator does without {node}")
                    self._plan.clear()
                else:
                    self.world.at(200 * MILLISECOND, self._prepare)
                return
            else:
                if member.deployed:
                    member.retire()
                member.deploy(self.voters)
        self._ask()

    def _ask(self) -> None:
        self._attempt += 1
        target = self._target()
        if target is not None and self.cluster.budget.allows(self.wanted()):
            self.world.at(self._delay(), self._arrive, self._attempt, target)
        self.world.at(self.rng.randrange(*ATTEMPT), self._give_up_waiting, self._attempt)

    def _target(self) -> Process | None:
        leader = self.cluster.leader()
        if leader is not None and self.rng.random() < 0.9:
            return leader
        running = [process for process in self.cluster.processes() if process.node_id in self.voters]
        return self.rng.choice(running) if running else None

    def _delay(self) -> int:
        return int(self.cluster.swarm.delay * (0.5 + self.rng.random()))

    def _lost(self) -> bool:
        return not self.cluster.healed and self.rng.random() < 0.05

    def _arrive(self, attempt: int, process: Process) -> None:
        if attempt != self._attempt or process.node.stopping or not process.runs(self._arrive, attempt, process):
            return
        step, node = self._plan[0]
        try:
            answer: Any = self._request(process, step, node)
        except RequestError as refusal:
            self._answer(attempt, None, refusal)
            return
        except AssertionError as error:
            raise Violation("member-fault", f"member {process.node_id}, asked to {step} {node}: {error!r}") from error
        listen(answer, lambda result, error: self._answer(attempt, result, error))
        process.watch()

    def _request(self, process: Process, step: str, node: int) -> Any:
        if step == REMOVE:
            return process.interface.remove_voter(node)
        named = str(self.cluster.members[node].directory_id) if self.rng.random() < 0.3 else None
        return process.interface.add_voter(AddVoterRequest(node, str(NOWHERE), base_url(node), named))

    def _answer(self, attempt: int, result: Any, error: RequestError | None) -> None:
        if not self._lost():
            self.world.at(self._delay(), self._answered, attempt, result, error)

    def _answered(self, attempt: int, result: Any, error: RequestError | None) -> None:
        if attempt != self._attempt:
            return
        step, node = self._plan[0]
        if self.world.trace is not None:
            self.world.note(f"the operator is told: {step} {node}: {result or error}")
        absent = error is not None and error.code is ErrorCode.RESOURCE_NOT_FOUND
        if error is None and (step == REMOVE or result.voting):
            self._check(step, node, result)
            self._done(step, node)
        elif absent and step == REMOVE and node not in self.cluster.monitor.configuration.members:
            self._done(step, node)
        elif isinstance(result, AddVoterResponse) and self.world.now > self._patience and self.rng.random() < 0.1:
            self._abandon(node)
        else:
            self._retry()

    def _check(self, step: str, node: int, result: object) -> None:
        """An answer that says that a change is done speaks of a committed one."""
        voters = self.cluster.monitor.configuration.voters
        if (node in voters) is not (step == ADD):
            raise Violation("voter-change-answer", f"{result}, but the committed voters are {sorted(voters)}")

    def _retry(self) -> None:
        self._attempt += 1
        self.world.at(self.rng.randrange(20 * MILLISECOND, 150 * MILLISECOND), self._ask)

    def _give_up_waiting(self, attempt: int) -> None:
        if attempt == self._attempt and self._plan:
            self._retry()

    def _abandon(self, node: int) -> None:
        """It does not catch up: take it out again."""
        self.world.note(f"the operator gives {node} up")
        self._plan = deque([(REMOVE, node)])
        self._prepare()

    def _done(self, step: str, node: int) -> None:
        self._attempt += 1
        self.voters = tuple(sorted(self.wanted()))
        self._plan.popleft()
        members = self.cluster.members
        for voter in self.voters:
            members[voter].configure(self.voters)
        if step == REMOVE and not self._plan:
            stays = self.rng.choice((0, self.rng.randrange(20 * SECOND)))
            self.world.at(stays, self._retire, members[node])
        self.world.note(f"the operator is done with {step} {node}: the voters are {self.voters}")
        if self._plan:
            self.world.at(self.rng.randrange(SECOND), self._prepare)
        else:
            self.world.fault(self._kind)

    def _retire(self, member: Member) -> None:
        """Switch off a removed member, unless it is wanted again, or its vote may still be needed."""
        node = member.node_id
        if not member.deployed or node in self.wanted() or node in self.voters:
            return
        if self.cluster.budget.at_its_end() or self._may_be_asked():
            self.world.at(500 * MILLISECOND, self._retire, member)
        else:
            member.retire()

    def _may_be_asked(self) -> bool:
        """Whether some voter may not know yet, after a restart, that the last removal is committed.

        Such a one needs the removed member's vote too if it stands while two of three have lost something, be it but a
        torn tail that was never acknowledged. Without that member they would stand still.
        """
        index = self.cluster.monitor.configuration.index
        processes = [self.cluster.members[voter].process for voter in self.voters]
        return any(process is None or process.core.submitted_commit < index for process in processes)

    def _look_after(self) -> None:
        """Whatever an abandoned change has left in the quorum goes."""
        self.world.at(SECOND, self._look_after)
        found = self.cluster.monitor.configuration
        left_over = sorted(found.members - set(self.voters))
        if left_over and not self.busy:
            self._begin("left_over_removed", [(REMOVE, left_over[0])])

    def settled(self) -> bool:
        """Whether the quorum is what it should be."""
        found = self.cluster.monitor.configuration
        return not self.busy and found.members == found.voters == frozenset(self.voters)
