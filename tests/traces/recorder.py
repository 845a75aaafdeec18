"""What the members of a simulated cluster do, in the words of `spec/Consensus.tla`.

`listening.py` tells what happens in the consensus cores of one cluster. Each part of it that the specification knows is
written down as the action that it is, in the order in which they happen; at the end of each event stands what the
member then shows of itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from pidkeeper.controller.raft.core import RaftCore, Role
from pidkeeper.controller.raft.elections import Voter
from pidkeeper.controller.raft.following import Following
from pidkeeper.controller.raft.leadership import Leadership
from pidkeeper.controller.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Heartbeat,
    InstallSnapshot,
    InstallSnapshotReply,
    Message,
    PreVote,
    PreVoteReply,
    RequestVote,
    RequestVoteReply,
)
from pidkeeper.controller.raft.progress import Progress
from pidkeeper.controller.raft.ready import Ready
from pidkeeper.controller.raft.replication import Replication
from pidkeeper.protocol.records import VotersRecord
from tests.traces.course import Course, Shown

NOBODY: Final = 0
"""No member: ids begin at 1."""


class UnmappedError(AssertionError):
    """A member changed by an event in which nothing of the specification happened: the recorder is wrong."""


class _Life:
    """One member as the specification sees it. Its recoveries are numbered there as they are drawn."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {0: 0}
        self.shown: Shown | None = None
        self.told: dict[tuple[int, int], int] = {}
        self.recovered: set[tuple[int, int, int]] = set()


class Recorder:
    """Writes down one course of at most `limit` steps."""

    def __init__(self, limit: int) -> None:
        self.course = Course(limit)
        self._lives: dict[int, _Life] = {}
        self._forged: list[Message] = []
        self.message: Message | None = None
        """That the present event is the arrival of."""
        self._core: RaftCore | None = None

    @property
    def heeds(self) -> bool:
        """Whether what happens now is written down."""
        return self._core is not None

    # What happens.

    def started(self, core: RaftCore, *, lost: bool, installing: int) -> None:
        """A process opened its disk. lost: which had lost something; installing: the snapshot that was being put in."""
        if self.course.ended:
            return
        node, life = core.node_id, self._lives.get(core.node_id)
        first = life is None
        if life is None:
            life = self._lives[node] = _Life()
        if core.recovering:
            life.numbers[core._hard.recovery] = len(life.numbers)
        life.shown = shown_by(core)
        if first:
            if core.last_index or core.vote is not None or not core.recovering:
                self.course.end(f"member {node} begins with a disk that was used")
                return
            self.course.members.add(node)
            if core.term:
                self.course.add("Begin", node, term=core.term)
        else:
            image = {
                "term": core.term,
                "vote": core.vote or NOBODY,
                "len": core.last_index,
                "lastTerm": core.log.last_term,
            }
            rest = {"commit": core.commit, "recovering": core.recovering, "lost": lost, "installing": installing}
            unnoticed = lost and not core.recovering
            self.course.add("WentBack" if unnoticed else "Restart", node, **image, **rest)
        self.course.show(node, life.shown)

    def forged(self, message: Message) -> None:
        """Somebody sends what no member has said."""
        life = self._lives.get(message.to)
        if self.course.ended or life is None or life.shown is None:
            return
        self._forged.append(message)
        requests = [self.request(message)] if isinstance(message, RequestVote) else []
        self.course.add("Forge", message.to, term=message.term, requests=requests)
        self.course.show(message.to, life.shown)

    @contextlib.contextmanager
    def event(self, core: RaftCore, name: str) -> Iterator[bool]:
        """Something happens at `core`; whether it is written down."""
        if self.course.ended or core.node_id not in self._lives:
            yield False
            return
        self._core = core
        try:
            yield True
            if not self.course.ended:
                self._show(core, name)
        except AssertionError:
            # Whoever stops has not done what it began.
            self.course.undo()
            raise
        finally:
            self._core = self.message = None

    def do(self, action: str, **arguments: object) -> None:
        """The member that the present event happens at takes a step."""
        assert self._core is not None
        self.course.add(action, self._core.node_id, **arguments)

    def _show(self, core: RaftCore, name: str) -> None:
        life, shown = self._lives[core.node_id], shown_by(core)
        if not self.course.show(core.node_id, shown) and shown != life.shown:
            raise UnmappedError(f"member {core.node_id}, {name}: {life.shown} became {shown}")
        life.shown = shown

    # Messages, as the specification has them.

    def number(self, node: int, recovery: int) -> int:
        """Of a recovery, counted from 1; -1 for one that the member is not known to have had."""
        return self._lives[node].numbers.get(recovery, -1)

    def ack(self, reply: AppendEntriesReply) -> dict[str, object]:
        """An acknowledgement or a refusal of entries."""
        found = {"ok": not reply.rejected, "match": reply.match_index, "rejected": reply.rejected_index}
        return _head("Ack", reply) | found | {"recovery": self.number(reply.sender, reply.recovery)}

    def vote(self, reply: RequestVoteReply) -> dict[str, object]:
        """A vote, or none."""
        found = {"granted": reply.granted, "consents": reply.consents}
        return _head("Vote", reply) | found | {"recovery": self.number(reply.sender, reply.recovery)}

    @staticmethod
    def request(message: RequestVote) -> dict[str, object]:
        """The request for a vote."""
        last = {"lastIndex": message.last_log_index, "lastTerm": message.last_log_term}
        return _head("RequestVote", message) | last

    @staticmethod
    def installed(reply: InstallSnapshotReply) -> dict[str, object]:
        """Word of a snapshot that is in force."""
        return _head("Installed", reply) | {"index": reply.snapshot.index}

    # The parts of the core.

    def follows_nobody(self, core: RaftCore, term: int, *_: object) -> None:
        """`RaftCore._become_follower` is about to enter `term`, or to stay in it."""
        if term > core.term:
            # Whoever is too many terms away from what it hears comes nearer, to one that nobody need be in.
            nearer = self.message is not None and self.message.term > term
            self.do("Believe" if nearer or self.message in self._forged else "MeetTerm", term=term)
        elif core.role is Role.LEADER:
            self.do("StepDown")
        else:
            self.loses_leader(core)

    def loses_leader(self, core: RaftCore) -> None:
        """The member is about to forget whom it follows."""
        if core._following is not None:
            self.do("ForgetLeader")

    def counts(self, voter: int) -> None:
        """A candidate is about to count a vote."""
        core = self._core
        assert core is not None
        if core.role is not Role.CANDIDATE or voter not in core.log.memberships.everybody:
            return
        named = core._names_voters and not core.membership.index
        if voter == core.node_id:
            self.do("CountOwnVote", named=named)
        else:
            assert isinstance(self.message, RequestVoteReply), f"{self.message} is counted as a vote"
            self.do("CountVote", m=self.vote(self.message), named=named)

    def answered(self, voter: Voter, request: RequestVote) -> None:
        """A request for a vote was answered."""
        waiting = (*voter._outbox._parked[-1:], *voter._outbox._messages[-1:])
        reply = next(one for one in waiting if isinstance(one, RequestVoteReply) and one.to == request.sender)
        self.do("AnswerVoteRequest", m=self.request(request), granted=reply.granted, consents=reply.consents)

    def answered_pre_vote(self, voter: Voter, request: PreVote) -> None:
        """A pre-vote was answered. Only of those who recover does the specification say that they need it."""
        waiting = (*voter._outbox._parked[-1:], *voter._outbox._messages[-1:])
        reply = next(one for one in waiting if isinstance(one, PreVoteReply) and one.to == request.sender)
        shown = self._lives[request.sender].shown if request.sender in self._lives else None
        if reply.agrees and shown is not None and shown.recovering and shown.term + 1 == request.term:
            last = {"lastIndex": request.last_log_index, "lastTerm": request.last_log_term}
            answer = {"granted": reply.granted, "consents": reply.consents}
            self.do("AnswerPreVote", to=request.sender, asked=request.term, **last, **answer)

    def appends(self, following: Following, message: AppendEntries) -> None:
        """Entries are about to be taken, or refused."""
        if following._receiver.installing is None:
            prev, last = message.prev_log_index, message.prev_log_index + len(message.entries)
            self.do("TakeAppend", prev=prev, last=last, commit=message.leader_commit, prevTerm=message.prev_log_term)

    def hears(self, following: Following, message: Heartbeat) -> None:
        """A heartbeat is about to be taken."""
        hard, node = following._hard, following._node_id
        ends = hard.recovering and message.recovered == hard.recovery
        number = self.number(node, hard.recovery) if ends else 0
        self.do("TakeHeartbeat", through=message.leader_commit, number=number)

    def receives(self, following: Following, message: InstallSnapshot) -> None:
        """A part of a snapshot has come. Whoever holds its last entry learns that it is committed."""
        log, snapshot = following._log, message.snapshot
        holds = following._receiver.installing is None and log.matches(snapshot.index, snapshot.term)
        if holds or snapshot.index <= log.commit:
            index = snapshot.index
            self.do("TakeAppend", prev=index, last=index, commit=index, prevTerm=snapshot.term)

    def sends_heartbeat(self, replication: Replication, peer: int, progress: Progress) -> None:
        """A leader is about to send a heartbeat. Only what it has not said yet is a step."""
        assert self._core is not None
        life, term = self._lives[self._core.node_id], self._core.term
        through = min(progress.match, replication._log.commit)
        over = replication.may_end_recovery(progress)
        ended = (term, peer, progress.recovery)
        if through > life.told.get((term, peer), 0) or (over and ended not in life.recovered):
            # Whom the commit itself lets go is told together with it.
            if peer in replication._log.memberships.everybody:
                self.do("SendHeartbeat", to=peer)
            life.told[term, peer] = max(through, life.told.get((term, peer), 0))
            if over:
                life.recovered.add(ended)

    def acknowledged(self, leadership: Leadership, reply: AppendEntriesReply, take: Callable[[], None]) -> None:
        """A leader takes an acknowledgement. One that tells it nothing is no step."""
        self._takes(leadership, reply.sender, "TakeAck", lambda: self.ack(reply), take)

    def snapshot_answered(self, leadership: Leadership, reply: InstallSnapshotReply, take: Callable[[], None]) -> None:
        """A leader hears of a snapshot."""
        self._takes(leadership, reply.sender, "TakeInstalled", lambda: self.installed(reply), take)

    def _takes(
        self,
        leadership: Leadership,
        sender: int,
        action: str,
        message: Callable[[], dict[str, object]],
        take: Callable[[], None],
    ) -> None:
        place, progress = self.course.length, leadership.progress.get(sender)
        before = _known(progress)
        take()
        assert self._core is not None
        if _known(progress) != before:
            self.course.insert(place, action, self._core.node_id, m=message())

    def proposed(self, record: VotersRecord | None) -> None:
        """A leader appended an entry of its own accord."""
        if record is None:
            self.do("Propose")
            return
        voters = {member.id for member in record.members if member.voting}
        learners = {member.id for member in record.members if not member.voting}
        self.do("ChangeMembers", voters=voters, learners=learners)

    def names_voters(self, core: RaftCore) -> None:
        """All members can read who the voters are; whoever leads may be about to write that down."""
        if core.leadership is not None and not core._names_voters and not core.membership.index:
            self.do("NameVoters")

    def handed_out(self, ready: Ready | None) -> None:
        """The driver has work."""
        if ready is None:
            return
        resting = (AppendEntriesReply, RequestVote, RequestVoteReply, InstallSnapshotReply)
        if any(isinstance(message, resting) for message in ready.messages):
            self.do("Rest")
        if ready.token is not None:
            self.do("Write")


def _head(kind: str, message: Message) -> dict[str, object]:
    return {"type": kind, "term": message.term, "from": message.sender, "to": message.to}


def shown_by(core: RaftCore) -> Shown:
    """What a member shows of itself."""
    log, following = core.log, core.leader_id or NOBODY
    return Shown(core.term, core.vote or NOBODY, log.last_index, log.last_term, log.commit, core.recovering, following)


def _known(progress: Progress | None) -> tuple[int, ...]:
    return () if progress is None else (progress.match, progress.counted, progress.recovery, progress.barrier)
