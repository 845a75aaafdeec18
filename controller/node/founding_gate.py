"""Nothing founds by itself: until its directory belongs to a founding, a member takes no part in consensus.

Blank members connect, say that they are blank, and wait. One operator's request founds a quorum of them, once; or a
peer that is founded already connects, and they join its founding as recovering members. Either way founding.json is
durable before the first vote (docs/decisions/0026).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from typing import Final, Protocol

from pidkeeper.controller.answers import Answer, release
from pidkeeper.controller.node.durable_voters import founding_by, founding_record, named_voters
from pidkeeper.controller.node.opening import OpenedStorage
from pidkeeper.controller.node.ports import Links
from pidkeeper.controller.node.settings import MemberSettings
from pidkeeper.controller.node.storage_worker import StorageWorker
from pidkeeper.controller.raft.messages import Message
from pidkeeper.controller.state.foundings import Foundings
from pidkeeper.controller.state.producer_ids import check_floor
from pidkeeper.controller.storage.founding import Founding
from pidkeeper.controller.transport.frames import FoundingTerms
from pidkeeper.controller.transport.identity import Peer
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.founding import Succession
from pidkeeper.protocol.messages import FoundQuorumRequest, FoundQuorumResponse
from pidkeeper.protocol.metadata_version import SUCCESSION
from pidkeeper.protocol.records import QuorumMember, VotersRecord

logger = logging.getLogger(__name__)

WAITING: Final = (
    "the disk is blank, and no founded member has connected: `pidkeeper quorum found` founds a new quorum, once; where "
    "one was founded before, see that its members run and that [[voters]] names them; where all disks of that one are "
    "lost, `pidkeeper storage recover`"
)
ALONE: Final = (
    "an earlier build began this directory, the file names this member alone, and nothing on the disk says that the "
    "quorum has no other members: if it has, name all of them in [[voters]] and start again; if it never had any, "
    "`pidkeeper quorum found` says so, once"
)
NO_VOTER: Final = (
    "the disk is blank, and member {} is no voter, so it cannot tell who the voters are: see that one of them runs "
    "and that [[voters]] names it"
)


class Consensus(Protocol):
    """What happens behind the gate. `Driver` is one."""

    def received(self, messages: list[Message]) -> None:
        """Messages of one peer."""

    def link_up(self, peer: int) -> None:
        """Messages reach `peer` again."""

    def link_lost(self, peer: int) -> None:
        """The connection from `peer` broke."""

    def tick(self) -> None:
        """10 ms have passed."""

    def join(self, voters: VotersRecord) -> None:
        """The founding has these voters, whom the file does not name."""


class FoundingGate:
    """Hands on what the links and the clock say, once the directory is founded.

    `founding`: that of this directory, durable; None while it has none. `waits_for`: what is told of it until then.
    """

    def __init__(
        self,
        settings: MemberSettings,
        storage: OpenedStorage,
        consensus: Consensus,
        links: Links,
        writer: StorageWorker,
    ) -> None:
        self._settings = settings
        self._directory = storage.directory
        self._machine = storage.machine
        self._consensus = consensus
        self._links = links
        self._writer = writer
        self.founding: Founding | None = storage.founding
        self._blank = storage.blank
        self.waits_for = WAITING if storage.blank else ALONE
        self._writing: Founding | None = None
        self._compared: Foundings | None = None
        self._answers: list[Answer] = []

    # What the links and the clock say.

    def received(self, messages: list[Message]) -> None:
        """Step the messages of one peer."""
        if self.founding is not None:
            self._consensus.received(messages)

    def link_up(self, peer: int) -> None:
        """Messages reach `peer` again."""
        if self.founding is not None:
            self._consensus.link_up(peer)

    def link_lost(self, peer: int) -> None:
        """`peer` stopped sending."""
        if self.founding is not None:
            self._consensus.link_lost(peer)

    def tick(self) -> None:
        """Let one tick pass."""
        if self.founding is not None:
            foundings = self._machine.foundings
            if foundings is not self._compared:
                self._compare(self.founding, foundings)
                self._compared = foundings
            if self._answers:
                self._answer(self.founding)
            self._consensus.tick()

    def _compare(self, founding: Founding, foundings: Foundings) -> None:
        """The log of a quorum that an early build began says of which founding it is, once that is committed."""
        committed = foundings.founding_id
        if committed is None:
            return
        # What comes before a succession in the log is of the predecessor, or of one before that.
        assert founding.founding_id in {None, committed} or founding.succession is not None, (
            f"F1: the log is of founding {committed}, this directory of {founding.founding_id}"
        )
        if self._links.identity.founding_id is None:
            self._links.introduce_as(committed, foundings.succession)

    def introduced(self, peer: int) -> None:
        """`peer` says who it is. If it is not blank, and one of ours by the file, its founding becomes ours."""
        facts = self._links.peers.get(peer)
        if facts is None or facts.blank is not None or self._begun() is not None:
            return
        if peer not in named_voters(self._settings):
            return
        if facts.voters and all(voter.id != peer for voter in facts.voters):
            # It may have the voters from a file. Builds of before tell nobody.
            self.waits_for = NO_VOTER.format(peer)
            return
        logger.info("joining founding %s, of which member %d is", facts.founding_id or "without an id", peer)
        self._begin(founding_by(self._settings, facts.founding_id, facts.succession, self._told(facts.voters)))

    def _told(self, voters: tuple[QuorumMember, ...]) -> tuple[QuorumMember, ...]:
        """Nobody votes by a file where somebody knows better: the voters that a founded one tells; none if we are none.

        If we are to become a voter yet, the log will say by whom. Until then a learner may bear the id of an earlier
        voter, whom the peer takes us for, and must not be founded as that.
        """
        known = any(voter.id == self._settings.node_id for voter in voters)
        return voters if known and self._blank and self._settings.learner is None else ()

    # What the operator says.

    def found(self, wanted: FoundQuorumRequest, answer: Answer) -> None:
        """Found a quorum of this and other blank members.

        `answer` gets a FoundQuorumResponse once every voter has joined: what one disk alone knows is lost with it.
        Raises RequestError: FOUNDING_REFUSED; INVALID_REQUEST for a floor as `check_floor`; VOTERS_NOT_CONNECTED while
        a voter has not said yet that it is blank.
        """
        begun = self._begun()
        if begun is not None and (begun.founding_id, begun.succession) != (wanted.founding_id, wanted.succession):
            raise _refused(f"member {self._settings.node_id} belongs to a quorum already: {_described(begun)}")
        if begun is None:
            self._begin(self._ordered(wanted))
        self._answers.append(answer)

    def _ordered(self, wanted: FoundQuorumRequest) -> Founding:
        """The founding that is wanted. Raises RequestError as `found`."""
        voters = sorted(set(wanted.voters))
        self._check_own(voters)
        if wanted.succession is not None:
            self._check_succession(wanted.founding_id, wanted.succession, forced=wanted.force)
        for voter in voters[1:]:
            _check_peer(voter, founding_terms(self._settings), wanted.succession, self._links.peers.get(voter))
        logger.warning("founding a new quorum, %s, of the voters %s", wanted.founding_id, voters)
        return founding_by(self._settings, wanted.founding_id, wanted.succession)

    def _check_succession(self, founding_id: uuid.UUID, succession: Succession, *, forced: bool) -> None:
        if succession.predecessor == founding_id:
            raise _refused(f"founding {founding_id} cannot take its own place: give the new quorum another id")
        if not self._blank:
            raise _refused("the disk is not blank: the quorum goes on where it was, and takes nobody's place")
        if self._settings.bridge:
            raise _refused(
                'mode = "zookeeper": ZooKeeper knows how far the IDs have gone, `quorum found` goes on there'
            )
        check_floor(0, succession.floor, self._settings.block_size, forced=forced)

    def _check_own(self, voters: Sequence[int]) -> None:
        """One member founds, the one with the lowest id: two at once would found two quorums."""
        own, configured = self._settings.node_id, {one.id: one for one in self._settings.voters}
        if voters != sorted(configured):
            raise _refused(f"the file of member {own} names the voters {sorted(configured)}, not {voters}")
        if own != voters[0]:
            first = configured[voters[0]]
            raise _refused(f"member {first.id} founds a quorum of {voters}, for its id is the lowest: ask {first.http}")

    def _begun(self) -> Founding | None:
        return self.founding or self._writing

    def _begin(self, founding: Founding) -> None:
        self._writing = founding
        self._writer.run(self._make_durable)

    def _make_durable(self) -> None:
        """On the storage thread. An error there stops the member, as one of the log does."""
        assert self._writing is not None, "nothing is to be made durable"
        self._directory.found(self._writing)
        self._writer.report(self._founded)

    def _founded(self) -> None:
        self.founding, self._writing = self._writing, None
        assert self.founding is not None, "founded by nothing"
        self._count_by(self.founding)
        self._links.introduce_as(self.founding.founding_id, self.founding.succession)
        self._links.redial()

    def _count_by(self, founding: Founding) -> None:
        """What is durable holds from now on, as it would at the next start."""
        named, voters = ([one.id for one in them] for them in (self._settings.voters, founding.voters))
        if sorted(named) != voters:
            own = self._settings.node_id
            logger.warning("member %d: its file names the voters %s, the quorum is %s, which holds", own, named, voters)
            self._consensus.join(founding_record(founding, self._settings))

    def _answer(self, founding: Founding) -> None:
        if not self._joined(founding):
            return
        answers, self._answers = self._answers, []
        for answer in answers:
            assert founding.founding_id is not None, f"{founding} was asked for by nobody"
            release(answer, FoundQuorumResponse(founding.founding_id, [voter.id for voter in founding.voters]))

    def _joined(self, founding: Founding) -> bool:
        """Whether all voters have made the founding durable. Once it is in the log, the voters may be others."""
        if self._machine.foundings.founding_id == founding.founding_id:
            return True
        peers = (self._links.peers.get(voter.id) for voter in founding.voters if voter.id != self._settings.node_id)
        return all(facts is not None and facts.founding_id == founding.founding_id for facts in peers)


def founding_terms(settings: MemberSettings) -> FoundingTerms:
    """What the file of a blank member says of the quorum that it is to be founded with."""
    return FoundingTerms(tuple(sorted(one.id for one in settings.voters)), settings.block_size, settings.bridge)


def _check_peer(voter: int, terms: FoundingTerms, succession: Succession | None, facts: Peer | None) -> None:
    if facts is None:
        detail = f"member {voter} is not connected: start it, formatted anew, and see that its peer address is right"
        raise RequestError(ErrorCode.VOTERS_NOT_CONNECTED, detail)
    if facts.blank is None:
        raise _refused(f"member {voter} is not blank: this member joins the quorum of that one")
    if facts.blank != terms:
        raise _refused(f"the file of member {voter} says {_terms(facts.blank)}, not {_terms(terms)}")
    if succession is not None and facts.metadata_version < SUCCESSION:
        raise _refused(f"member {voter} runs a build that knows no predecessors: upgrade it first")


def _terms(terms: FoundingTerms) -> str:
    mode = "zookeeper" if terms.bridge else "quorum"
    return f"voters {list(terms.voters)}, block_size {terms.block_size}, mode {mode}"


def _described(founding: Founding) -> str:
    voters = [voter.id for voter in founding.voters]
    if founding.founding_id is None:
        return f"of {voters}"
    took = founding.succession
    place = "" if took is None else f", which takes the place of {took.predecessor} from ID {took.floor} on"
    return f"founding {founding.founding_id}, of the voters {voters}{place}"


def _refused(detail: str) -> RequestError:
    return RequestError(ErrorCode.FOUNDING_REFUSED, f"{detail}; nothing was founded")
