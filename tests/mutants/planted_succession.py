"""Bugs in how a quorum takes the place of another: it hands out what that one did, or nobody can go on."""

from __future__ import annotations

from typing import Final

from tests.mutants.edits import delete, replace
from tests.mutants.planted import Planted

AGENT: Final = "broker_agent"
NODE: Final = "controller/node"
STATE: Final = "controller/state"
STORAGE: Final = "controller/storage"
TRANSPORT: Final = "controller/transport"
_STATE: Final = ("tests/unit/controller/state/test_succession.py",)
_LEADER: Final = ("tests/unit/controller/node/test_leadership.py",)
_GATE: Final = ("tests/unit/controller/node/test_founding_gate_alone.py",)
_LINKS: Final = ("tests/unit/controller/transport/test_links.py",)
_AGENT: Final = ("tests/unit/broker_agent/test_agent.py",)
_RESTORING: Final = ("tests/unit/controller/storage/test_restoring.py",)
_NO_REPEAT: Final = "nothing that the predecessor handed out is handed out again"
_GOES_ON: Final = "agents of the predecessor go on with what lies below the floor"
_RESTORED: Final = "a restored quorum is one of its own"
_OLD_COPY: Final = "etcd, disaster recovery: a cluster restored from an old snapshot gives revisions for a second time"
_OVER: Final = "a cure that is a new outage"
_ONE_COPY: Final = "the simulated operator restores one copy, once, with a floor that is high enough"

SUCCESSION_BUGS: Final = (
    Planted(
        "floor-of-a-succession-raises-nothing",
        _NO_REPEAT,
        _OLD_COPY,
        (delete(STATE, "StateMachine._found", "self.producer_ids.replay_succession(record)"),),
        _STATE,
    ),
    Planted(
        "own-ids-of-the-predecessor-are-given",
        _NO_REPEAT,
        _OLD_COPY,
        (
            delete(STATE, "StateMachine._found", "self.own_ids = NO_OWN_IDS"),
            delete(STATE, "_record_succession", "draft.own_ids = NO_OWN_IDS"),
        ),
        _STATE,
    ),
    Planted(
        "own-ids-below-a-floor-are-given",
        _NO_REPEAT,
        "this project: after a restore `raise-floor` passed what brokers held, but not what transactional ids had",
        (
            delete(STATE, "StateMachine._jump", "self.own_ids = NO_OWN_IDS"),
            delete(STATE, "raise_floor", "draft.own_ids = NO_OWN_IDS"),
        ),
        _STATE,
    ),
    Planted(
        "floor-takes-own-ids-of-members-that-do-not-know-it",
        "members of two builds replay alike",
        "a change of what a record means, without a version",
        (
            replace(STATE, "StateMachine._jump", "self.metadata_version >= SUCCESSION", "True"),
            replace(STATE, "raise_floor", "draft.metadata_version >= SUCCESSION", "True"),
        ),
        _STATE,
    ),
    Planted(
        "handed-out-before-the-succession",
        _NO_REPEAT,
        _OLD_COPY,
        (replace(NODE, "FoundingDuty.hearing", "self._succession() is not None", "False"),),
        _LEADER,
        unseen="the simulated quorum that takes a place hears its brokers for seconds before",
    ),
    Planted(
        "founding-of-the-predecessor-is-enough",
        _NO_REPEAT,
        _OLD_COPY,
        (replace(NODE, "FoundingDuty._recorded", "self._ordered() <= {recorded}", "True"),),
        _LEADER,
    ),
    Planted(
        "followers-successions-not-asked-for",
        _NO_REPEAT,
        "a leader whose own directory is older than those of its followers",
        (replace(NODE, "FoundingDuty._succession", "self._foundings().values()", "[self._own()]"),),
        _LEADER,
        unseen=_ONE_COPY,
    ),
    Planted(
        "place-taken-after-blocks-were-handed-out",
        _NO_REPEAT,
        "a floor that comes too late for what agents of the predecessor go on with",
        (replace(STATE, "_record_succession", "draft.last_block is not None", "False"),),
        _STATE,
        unseen="nothing is handed out before, so it is never decided too late",
    ),
    Planted(
        "any-predecessor-will-do",
        _NO_REPEAT,
        "a third quorum may lie between, which handed out the same IDs",
        (replace(AGENT, "Session.meet", "keeps(held, succession)", "held.highest_producer_id < succession.floor"),),
        _AGENT,
        unseen="the simulated operator names the quorum that was lost",
    ),
    Planted(
        "agent-keeps-what-lies-above-the-floor",
        _NO_REPEAT,
        "an operator who does not know how far the IDs had gone",
        (replace(AGENT, "Session.meet", "keeps(held, succession)", "held.founding_id == succession.predecessor"),),
        _AGENT,
    ),
    Planted(
        "agent-lets-go-of-its-own",
        _GOES_ON,
        _OVER,
        (replace(AGENT, "Session.meet", "keeps(held, succession)", "False"),),
        _AGENT,
    ),
    Planted(
        "block-of-a-successor-taken-for-one-of-the-predecessor",
        _GOES_ON,
        "a block comes before the heartbeat that would have told whose it is",
        (delete(AGENT, "Prefetcher._offer", "self._session.meet(_1, _2)"),),
        _AGENT,
    ),
    Planted(
        "what-lies-below-a-floor-to-come-is-evidence",
        _GOES_ON,
        "an agent that holds IDs far above 0 is not believed, and ends",
        (replace(NODE, "FoundingDuty.prepared", "self._is_expected(request.held)", "False"),),
        _LEADER,
        unseen="that evidence is passed when the floor comes into force, unless the IDs are above 10^12",
    ),
    Planted(
        "succession-lost-on-its-way-to-who-joins",
        _NO_REPEAT,
        "a leader that joined later records the founding alone",
        (replace(NODE, "FoundingGate.introduced", "facts.succession", "None"),),
        _GATE,
    ),
    Planted(
        "members-of-two-floors-speak",
        "a quorum has one founding",
        "two restored members, each with a floor of its own",
        (replace(TRANSPORT, "of_two_foundings", "mine.succession != theirs.succession", "False"),),
        _LINKS,
        unseen=_ONE_COPY,
    ),
    Planted(
        "who-learns-its-founding-keeps-strangers",
        "a quorum has one founding",
        "a handshake is judged once, and what it said changes",
        (delete(TRANSPORT, "PeerLinks.introduce_as", "self._inbound[peer].close()"),),
        _LINKS,
        unseen="its network hangs up by itself",
    ),
    Planted(
        "log-of-the-predecessor-is-a-contradiction",
        _RESTORED,
        _OVER,
        (replace(NODE, "FoundingGate._compare", "founding.succession is not None", "False"),),
        _GATE,
    ),
    Planted(
        "copies-are-one-quorum",
        _RESTORED,
        "copies of different moments: one holds as committed what a majority of the others lacks (seed 9002)",
        (replace(STORAGE, "restore_directory", "new_founding_id()", "uuid.UUID(int=1)"),),
        _RESTORING,
        unseen=_ONE_COPY,
    ),
    Planted(
        "restored-twice-with-another-word",
        _RESTORED,
        "a command under stress, given again",
        (replace(STORAGE, "restore_directory", "pending.floor == floor", "True"),),
        _RESTORING,
        unseen=_ONE_COPY,
    ),
    Planted(
        "restored-from-what-is-not-on-the-disk",
        _RESTORED,
        "a copy that was put in place and not synced, and a power cut (placed cuts, seed 2)",
        (delete(STORAGE, "restore_directory", "sync_tree(files, path)"),),
        _RESTORING,
        unseen="its operator's copies are durable",
    ),
    Planted(
        "restored-below-what-the-copy-knows",
        _NO_REPEAT,
        "a floor that was typed with a digit too few",
        (replace(STORAGE, "_check_floor", "floor < known", "False"),),
        _RESTORING,
        unseen=_ONE_COPY,
    ),
)
