"""Bugs in how a quorum is founded: too easily, or not at all where it should be."""

from __future__ import annotations

from typing import Final

from tests.mutants.edits import delete, insert_after, replace
from tests.mutants.planted import Planted

NODE: Final = "controller/node"
TRANSPORT: Final = "controller/transport"
_GATE: Final = ("tests/unit/controller/node/test_founding_gate.py",)
_BY_ITSELF: Final = "nothing founds by itself"
_SILENTLY: Final = "a quorum that begins anew from empty directories, and tells nobody that it lost the old ones"
_FORGOTTEN: Final = "etcd #13766 and others: a member forgets what it has acknowledged, and nobody compares"
_EVIDENCE: Final = ("tests/unit/controller/state/test_foundings.py",)
STATE: Final = "controller/state"
AGENT: Final = "broker_agent"
_HEARING: Final = "a new quorum hears its brokers before it hands out"
_LEADER: Final = ("tests/unit/controller/node/test_leadership.py",)
_OVER: Final = "a cure that is a new outage"

FOUNDING_BUGS: Final = (
    Planted(
        "blank-members-elect-a-leader",
        _BY_ITSELF,
        _SILENTLY,
        (
            replace(NODE, "FoundingGate.tick", "self.founding is not None", "True"),
            replace(NODE, "FoundingGate.received", "self.founding is not None", "True"),
        ),
        _GATE,
    ),
    Planted(
        "blank-member-votes",
        _BY_ITSELF,
        _SILENTLY,
        (replace(NODE, "FoundingGate.received", "self.founding is not None", "True"),),
        _GATE,
    ),
    Planted(
        "founding-counts-before-it-is-durable",
        "a founding is durable before the first vote",
        "etcd #13196: what was not synced yet is acted upon",
        (replace(NODE, "FoundingGate._begin", "self._writing = founding", "self.founding = self._writing = founding"),),
        _GATE,
    ),
    Planted(
        "founded-without-all-its-voters",
        _BY_ITSELF,
        "a bootstrap that expects so many members, and goes on with fewer",
        (delete(NODE, "FoundingGate._ordered", "_check_peer(_1, _2, _3, _4)"),),
        _GATE,
        unseen="the simulated operator orders one founding of a quorum, so whoever joins late joins that one",
    ),
    Planted(
        "every-voter-founds",
        _BY_ITSELF,
        "two members that bootstrap at the same time, each a cluster of its own",
        (replace(NODE, "FoundingGate._check_own", "own != voters[0]", "False"),),
        _GATE,
        unseen="the simulated operator gives each of its requests to found a quorum the same id",
    ),
    Planted(
        "founded-again-under-another-id",
        _BY_ITSELF,
        "a request that is sent again does its work twice",
        (
            replace(
                NODE,
                "FoundingGate.found",
                "(begun.founding_id, begun.succession) != (wanted.founding_id, wanted.succession)",
                "False",
            ),
        ),
        _GATE,
        unseen="the simulated operator gives each of its requests to found a quorum the same id",
    ),
    Planted(
        "joins-the-founding-of-a-stranger",
        _BY_ITSELF,
        "a removed member that still runs",
        (replace(NODE, "FoundingGate.introduced", "peer not in named_voters(self._settings)", "False"),),
        _GATE,
        unseen="once a quorum of it is founded anew, the removed members of the lost one are gone",
    ),
    Planted(
        "members-of-two-foundings-speak",
        "a quorum has one founding",
        "elastic/elasticsearch: two clusters that were bootstrapped apart are joined, and one loses its data",
        (replace(TRANSPORT, "PeerLinks.judge", "(reason := _) is not None", "False"),),
        _GATE,
        unseen="its network refuses by itself whom `PeerLinks` is to refuse",
    ),
    Planted(
        "evidence-taken-and-nothing-stopped",
        "nothing is handed out while evidence is open",
        _FORGOTTEN,
        (
            replace(STATE, "check_open", "is_open(one, next_producer_id)", "False"),
            delete(STATE, "StateMachine._hand_out", "assert not held, _"),
        ),
        _EVIDENCE,
    ),
    Planted(
        "evidence-lost-with-the-snapshot",
        "evidence outlives leader and broker",
        _FORGOTTEN,
        (
            replace(
                STATE,
                "StateMachine.restore",
                "Foundings(image.founding, image.evidence, _)",
                "Foundings(image.founding, (), _)",
            ),
        ),
        _EVIDENCE,
    ),
    Planted(
        "only-what-is-far-above-is-evidence",
        "nothing is handed out while evidence is open",
        "KAFKA-15552: the last ID is taken for the next one",
        (
            replace(
                STATE,
                "is_news",
                "held.highest_producer_id >= next_producer_id",
                "held.highest_producer_id > next_producer_id",
            ),
        ),
        _EVIDENCE,
        unseen="an honest broker holds nothing that was not handed out, and a false one that is not heard harms nobody",
    ),
    Planted(
        "heartbeats-are-no-evidence",
        "a quorum that was restored from an old copy hears of it",
        _FORGOTTEN,
        (replace(STATE, "heartbeat", "_is_evidence(_1, _2, _3)", "False"),),
        _EVIDENCE,
    ),
    Planted(
        "agent-keeps-the-ids-of-another-founding",
        "an agent hands out nothing of another founding",
        "a client that goes on with a session of the cluster that was there before",
        (delete(AGENT, "Session.meet", "self._let_go()"),),
        ("tests/unit/broker_agent/test_agent.py",),
    ),
    Planted(
        "agent-forgets-what-it-held",
        "an agent hands out nothing of another founding",
        "what is let go of is forgotten, and accepted again",
        (insert_after(AGENT, "BlockReserve.discard", "self._held_behind = 0", "self.highest_held = NO_ID"),),
        ("tests/unit/broker_agent/test_reserve.py",),
        unseen="it has told the new quorum what it held before it lets go, and no quorum is lost twice",
    ),
    Planted(
        "whatever-a-broker-says-is-believed",
        "one broker cannot burn the IDs",
        _OVER,
        (replace(STATE, "weigh", "news and highest - next_producer_id > MAX_FLOOR_JUMP", "False"),),
        _EVIDENCE,
    ),
    Planted(
        "dismissed-evidence-counts-again",
        "a lone agent cannot stop a quorum for good",
        _OVER,
        (replace(STATE, "is_open", "not one.dismissed and _", "one.highest_producer_id >= next_producer_id"),),
        _EVIDENCE,
    ),
    Planted(
        "evidence-dismissed-that-nobody-has-seen",
        "nothing is handed out while somebody holds what the quorum does not know of",
        "an operator who looked at health, and a broker that said more before the command came",
        (replace(STATE, "dismiss_evidence", "request.highest_producer_id not in _", "False"),),
        _EVIDENCE,
        unseen="simulated operators look and act at once",
    ),
    Planted(
        "dismissed-process-stops-the-quorum-again",
        "a lone agent cannot stop a quorum for good",
        _OVER,
        (replace(STATE, "weigh", "_1 and _2 and before.dismissed and same_process", "False"),),
        _EVIDENCE,
    ),
    Planted(
        "dismissed-broker-is-never-believed-again",
        "what nobody has judged counts",
        "a cure that hides what was known",
        (replace(STATE, "weigh", "_1 and _2 and before.dismissed and same_process", "_1 and _2 and before.dismissed"),),
        _EVIDENCE,
        unseen="no honest broker of the simulation is dismissed",
    ),
    Planted(
        "a-floor-does-not-settle-evidence",
        "the floor settles evidence",
        _OVER,
        (replace(STATE, "is_open", "not one.dismissed and _", "not one.dismissed"),),
        _EVIDENCE,
    ),
    Planted(
        "honest-brokers-are-evidence",
        "a lone agent cannot stop a quorum",
        _OVER,
        (
            replace(
                STATE,
                "is_news",
                "held.highest_producer_id >= next_producer_id",
                "held.highest_producer_id >= next_producer_id - 1",
            ),
        ),
        _EVIDENCE,
    ),
    Planted(
        "replaced-disk-counts-by-its-file",
        "nobody votes by a file where somebody knows better",
        "a member that was bootstrapped with fewer peers than the others elects itself",
        (replace(NODE, "FoundingGate._told", "known and self._blank and _", "False"),),
        _GATE,
    ),
    Planted(
        "replaced-disk-counts-by-its-file-until-its-next-start",
        "nobody votes by a file where somebody knows better",
        "a member that was bootstrapped with fewer peers than the others elects itself",
        (delete(NODE, "FoundingGate._founded", "self._count_by(_)"),),
        _GATE,
    ),
    Planted(
        "who-is-no-voter-tells-the-voters",
        "nobody votes by a file where somebody knows better",
        "a member that was bootstrapped with fewer peers than the others elects itself",
        (replace(NODE, "FoundingGate.introduced", "facts.voters and all(_)", "False"),),
        _GATE,
        unseen="all spares of the simulation name all voters",
    ),
    Planted(
        "learner-is-founded-as-the-voter-whose-id-it-bears",
        "an id that is used again is no voter",
        "etcd #13766 and others: a member forgets what it has acknowledged, and nobody compares",
        (replace(NODE, "FoundingGate._told", "known and self._blank and _", "known and self._blank"),),
        _GATE,
        unseen="the simulation counts the blank disk of a removed member as a lost one",
    ),
    Planted(
        "blank-member-never-joins",
        "a replaced disk joins by itself",
        _OVER,
        (replace(NODE, "FoundingGate.introduced", "self._begun() is not None", "True"),),
        _GATE,
    ),
    Planted(
        "founded-members-do-not-say-so",
        "a founding reaches all its voters",
        _OVER,
        (delete(NODE, "FoundingGate._founded", "self._links.introduce_as(_1, _2)"),),
        _GATE,
    ),
    Planted(
        "earlier-builds-are-strangers",
        "a quorum without a founding goes on",
        _OVER,
        (
            replace(
                TRANSPORT,
                "of_two_foundings",
                "mine.founding_id is not None and theirs.founding_id is not None",
                "True",
            ),
        ),
        _GATE,
    ),
    Planted(
        "directory-of-an-earlier-build-taken-for-blank",
        "a quorum without a founding goes on",
        _OVER,
        (replace(NODE, "founding_of", "founding is not None or _", "True"),),
        ("tests/unit/controller/node/test_durable_voters.py",),
    ),
    Planted(
        "founding-answered-when-one-disk-has-it",
        "what is acknowledged is not lost with one disk",
        "a write that is acknowledged by the primary alone",
        (replace(NODE, "FoundingGate._joined", "all(_)", "True"),),
        _GATE,
    ),
    Planted(
        "new-quorum-hands-out-at-once",
        _HEARING,
        _SILENTLY,
        (replace(NODE, "FoundingDuty.hearing", "bool(self._ordered()) and _", "False"),),
        _LEADER,
    ),
    Planted(
        "founding-of-a-guest-counts",
        "a guest has no part in the quorum",
        _OVER,
        (replace(NODE, "ClusterMember._foundings", "peer in members", "True"),),
        _GATE,
        unseen="no guest is in the simulation",
    ),
    Planted(
        "one-of-two-foundings-is-recorded",
        "a quorum has one founding",
        "elastic/elasticsearch: two clusters that were bootstrapped apart are joined, and one loses its data",
        (replace(NODE, "FoundingDuty.tick", "len(known) > 1", "False"),),
        _LEADER,
        unseen="the simulation has one founding",
    ),
    Planted(
        "hands-out-under-two-foundings",
        "a quorum has one founding",
        "elastic/elasticsearch: two clusters that were bootstrapped apart are joined, and one loses its data",
        (replace(NODE, "FoundingDuty.hearing", "len(self._ordered()) > 1", "False"),),
        _LEADER,
        unseen="the simulation has one founding",
    ),
    Planted(
        "another-founding-that-is-gone-for-a-moment",
        "a quorum has one founding",
        "a connection that breaks for a moment is taken for a member that is gone",
        (delete(NODE, "FoundingDuty.tick", "self._heard_since = None"),),
        _LEADER,
        unseen="the simulation has one founding",
    ),
    Planted(
        "transactional-producers-do-not-wait-for-the-hearing",
        _HEARING,
        "one of two paths to the same thing is guarded",
        (replace(NODE, "FoundingDuty.prepared", "self.hearing()", "False", occurrence=1),),
        _LEADER,
    ),
    Planted(
        "hearing-judged-when-a-producer-asks",
        "a producer is told to come again only while nothing may be handed out",
        "this project: what the leader knows was said when the request came, and it waited for the end of the hearing",
        (
            replace(
                NODE,
                "Decider._decide_queue",
                "self._prepared(queue[0].request)",
                "queue[0].request",
            ),
            replace(
                NODE, "Leadership.submit", "self._take(request, answer)", "self._take(self._prepared(request), answer)"
            ),
        ),
        _LEADER,
    ),
    Planted(
        "blocks-asked-for-before-the-hearing-are-given-in-it",
        _HEARING,
        "a rule is checked when the request comes, and no more when it is decided",
        (delete(NODE, "FoundingDuty.prepared", "self.check(request)"),),
        _LEADER,
        unseen="a leader of it knows of the founding before its first request, or there is none by name",
    ),
    Planted(
        "what-is-left-of-an-own-block-is-given-in-the-hearing",
        _HEARING,
        "what was taken before is thought to be harmless",
        (replace(NODE, "FoundingDuty.prepared", "replace(_1, may_get_id=False)", "replace(_1, may_take_block=False)"),),
        _LEADER,
        unseen="a quorum of it that has own blocks has its founding in the log, or none",
    ),
    Planted(
        "new-leader-counts-what-the-old-one-heard",
        _HEARING,
        "soft state of an earlier term",
        (delete(NODE, "FoundingDuty.lead", "self._heard_since = None"),),
        _LEADER,
        unseen="who was heard by the leader before left evidence in the log; who was not is a matter of time",
    ),
    Planted(
        "who-holds-ids-is-let-through-during-the-hearing",
        _HEARING,
        "an exception to a rule is checked when the request comes, and no more when it is decided",
        (
            replace(
                NODE,
                "FoundingDuty.check",
                "type(request) in _WAITING",
                "type(request) in _WAITING and getattr(request, 'held', None) is None",
            ),
        ),
        _LEADER,
    ),
    Planted(
        "hearing-never-ends",
        "a first install hands out IDs",
        _OVER,
        (replace(NODE, "FoundingDuty.tick", "ticks if self._heard_since is None else self._heard_since", "ticks"),),
        _LEADER,
    ),
)
