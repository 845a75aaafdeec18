"""Bugs of the protocol that every method is asked about: those of the catalogue, and the same in the specification."""

from __future__ import annotations

from typing import Final

import msgspec

from spec.logs_models import LOGS_MODELS, WIDER, Bounds, logs_model
from spec.models import MODELS, Model, consensus_model
from tests.explore.scope import Scope

_UNIT_RAFT: Final = ("tests/unit/controller/raft", "tests/raft_paper")
_UNIT_MIGRATION: Final = ("tests/unit/controller/migration",)
_UNIT_STATE: Final = ("tests/unit/controller/state", "tests/unit/controller/node")
_UNIT_DATA: Final = ("tests/unit/broker_agent/data",)


class Rule(msgspec.Struct, frozen=True):
    """The bug as a change of a module of `spec/`: `right` stands there once."""

    module: str
    right: str
    wrong: str
    model: Model


class ProtocolBug(msgspec.Struct, frozen=True):
    """`name`: in the catalogue. `rule`: None if the specification has no words for it. `scope`: where the explorer
    looks; None if it is not of consensus, and then courses and scenarios do not know it either. `unit`: where unit
    tests of it are to be expected."""

    name: str
    rule: Rule | None = None
    scope: Scope | None = None
    unit: tuple[str, ...] = _UNIT_RAFT


_MODELS: Final = {model.name: model for model in MODELS}
_SHORT: Final = _MODELS["consensus, short"]
_TERMS: Final = _MODELS["consensus, two terms"]
_CRASH: Final = _MODELS["consensus, a crash"]
_LOST: Final = _MODELS["consensus, a lost disk"]
_REMOVAL: Final = _MODELS["consensus, a removal"]
_ALLOCATION: Final = _MODELS["allocation, short"]
_TRANSACTIONS: Final = _MODELS["transactions, short"]
_MIGRATION: Final = _MODELS["migration, short"]
_SEAL: Final = _MODELS["migration, to the seal"]
# Larger than what `make spec` exhausts.
_TERMS_CRASH: Final = consensus_model("consensus, two terms, a crash", terms=2, log=1, crashes=1)
_REMOVALS: Final = consensus_model("consensus, two removals", terms=1, log=3, changes=2)
_REMOVAL_LOST: Final = consensus_model("consensus, a removal, a lost disk", terms=1, log=2, changes=1, losses=1)

_LOGS_SHORT: Final = LOGS_MODELS[0]
_LOGS_REFUSED: Final = logs_model("logs, refused", Bounds(transactional=True, objects=1))
_LOGS_TWO_SEGMENTS: Final = next(one for one in WIDER if one.name == "logs, a transaction in two segments")

_ONE_TERM: Final = Scope(name="one term", terms=1, timeouts=2, proposals=1)
_TWO_TERMS: Final = Scope(name="two terms", terms=2, timeouts=2, proposals=1)
_THREE_TERMS: Final = Scope(name="three terms", terms=3, timeouts=3)
_THREE_TERMS_LED: Final = Scope(name="three terms, led", terms=3, timeouts=3, proposals=1, begins="led")
_CRASHES: Final = Scope(name="a crash", terms=2, timeouts=2, crashes=1)
_HEARTBEATS: Final = Scope(name="heartbeats", terms=2, timeouts=2, heartbeats=1)
_LOSSES: Final = Scope(name="a lost disk", terms=2, timeouts=2, losses=1)
_LOSSES_HEARTBEAT: Final = Scope(name="a lost disk, a heartbeat", terms=1, timeouts=2, losses=1, heartbeats=1)
_CRASHES_LED: Final = Scope(name="a crash, led", terms=2, timeouts=2, crashes=1, proposals=1, begins="led")
_LOSSES_AGAIN: Final = Scope(
    name="two lost disks, led", terms=1, timeouts=1, losses=2, heartbeats=2, proposals=1, begins="led"
)
_SNAPSHOTS: Final = Scope(name="a snapshot", terms=1, timeouts=1, proposals=1, snapshots=1, repeats=1)
_JOINING: Final = Scope(name="one joins", spares=1, terms=2, timeouts=2, changes=1)
_CHANGES: Final = Scope(name="two changes", terms=2, timeouts=2, changes=2, begins="led")
_JOINED: Final = Scope(name="one has joined", spares=1, terms=2, timeouts=2, changes=2, begins="joined")
_CHANGES_TERMS: Final = Scope(name="changes and terms", terms=2, timeouts=2, changes=1)


def _consensus(right: str, wrong: str, model: Model) -> Rule:
    return Rule("Consensus", right, wrong, model)


PROTOCOL_BUGS: Final = (
    ProtocolBug(
        "vote-forgotten-at-restart",
        _consensus("![i] = image.vote]", "![i] = Nobody]", _CRASH),
        Scope(name="a crash, one term", terms=1, timeouts=2, crashes=1),
    ),
    ProtocolBug(
        "vote-for-anyone-without-a-leader",
        _consensus(
            '(vote[i] = Nobody /\\ following[i] = Nobody /\\ role[i] # "leader")',
            '(following[i] = Nobody /\\ role[i] # "leader")',
            _SHORT,
        ),
        _ONE_TERM,
    ),
    ProtocolBug(
        "stale-vote-reply-counted",
        _consensus(
            'm.type = "Vote" /\\ m.to = i /\\ m.term = term[i]', 'm.type = "Vote" /\\ m.to = i /\\ m.term > 0', _TERMS
        ),
        _TWO_TERMS,
    ),
    ProtocolBug(
        "stale-append-reply-counted",
        _consensus(
            'm.type = "Ack" /\\ m.to = i /\\ m.term = term[i]', 'm.type = "Ack" /\\ m.to = i /\\ m.term > 0', _TERMS
        ),
        _THREE_TERMS,
    ),
    ProtocolBug("repeated-vote-counted-twice", None, Scope(name="repeats", terms=1, timeouts=2, repeats=1)),
    ProtocolBug(
        "no-election-restriction",
        _consensus("Free(i, m) /\\ Grantable(i, m.lastIndex, m.lastTerm)", "Free(i, m)", _TERMS),
        _TWO_TERMS,
    ),
    ProtocolBug(
        "logs-compared-by-length-alone",
        _consensus(
            "lastTerm > LastTerm(l) \\/ (lastTerm = LastTerm(l) /\\ lastIndex >= Len(l))", "lastIndex >= Len(l)", _TERMS
        ),
        _THREE_TERMS_LED,
    ),
    ProtocolBug(
        "vote-requests-before-own-vote-is-durable",
        _consensus(
            '/\\ m.term = image.term\n    /\\ m.type = "RequestVote" => image.vote = i\n',
            '/\\ m.type = "RequestVote" \\/ m.term = image.term\n',
            _CRASH,
        ),
        Scope(name="a crash, one term", terms=1, timeouts=2, crashes=1),
    ),
    ProtocolBug("replies-before-the-write", None, Scope(name="a crash, one term", terms=1, timeouts=2, crashes=1)),
    ProtocolBug(
        "leader-counts-itself-before-its-write",
        _consensus(
            "disk[i].term = term[i] THEN Len(disk[i].log)",
            "disk[i].term = term[i] THEN Len(log[i])",
            _TERMS_CRASH,
        ),
        _CRASHES_LED,
    ),
    ProtocolBug(
        "commit-by-a-minority",
        _consensus(
            "IsMajority({j \\in config.voters : counted(j) >= index}, config.voters)",
            "(\\E j \\in config.voters : counted(j) >= index)",
            _TERMS,
        ),
        _TWO_TERMS,
    ),
    ProtocolBug(
        "elected-by-a-minority",
        _consensus(
            "IsMajority({j \\in yes : ballot[j].recovery = 0}, Newest(i).voters)",
            "(\\E j \\in yes : ballot[j].recovery = 0)",
            _SHORT,
        ),
        _ONE_TERM,
    ),
    ProtocolBug(
        "old-term-committed-by-counting",
        _consensus("/\\ log[i][index].term = term[i]\n", "\n", _TERMS),
        _THREE_TERMS,
    ),
    ProtocolBug(
        "truncation-without-conflict",
        _consensus("IF held THEN @ ELSE Prefix(of.log, last)", "Prefix(of.log, last)", _SHORT),
        _ONE_TERM,
    ),
    ProtocolBug(
        "commit-clamped-to-the-logs-end",
        _consensus("Max(@, Min(leaderCommit, last))", "Max(@, Min(leaderCommit, Len(log'[i])))", _TERMS),
        _TWO_TERMS,
    ),
    ProtocolBug(
        "heartbeat-commit-not-clamped",
        _consensus("through == Min(known.match, commit[i])", "through == commit[i]", _TERMS),
        _HEARTBEATS,
    ),
    ProtocolBug("heartbeat-reply-counted-as-an-acknowledgement", None, _HEARTBEATS),
    ProtocolBug(
        "conflict-acknowledged",
        _consensus(
            "last <= Len(log[i]) /\\ \\A n \\in (prev + 1)..last : log[i][n].term = of.log[n].term",
            "last <= Len(log[i])",
            _TERMS,
        ),
        _THREE_TERMS_LED,
    ),
    ProtocolBug(
        "wiped-disk-is-a-full-voter", _consensus("recovering |-> TRUE])", "recovering |-> FALSE])", _LOST), _LOSSES
    ),
    ProtocolBug(
        "recovering-votes-count-in-full",
        _consensus("IsMajority({j \\in yes : ballot[j].recovery = 0}", "IsMajority(yes", _LOST),
        _LOSSES,
    ),
    ProtocolBug(
        "recovering-acknowledgements-count-in-full",
        _consensus("IF m.recovery = 0 THEN Max(@, m.match) ELSE @", "Max(@, m.match)", _LOST),
        _LOSSES,
    ),
    ProtocolBug(
        "recovery-ends-at-the-first-heartbeat",
        _consensus("known.recovery # 0 /\\ through >= known.barrier", "known.recovery # 0", _LOST),
        _LOSSES_HEARTBEAT,
    ),
    ProtocolBug(
        "recovery-number-used-again-within-a-term",
        _consensus("IF image.recovering THEN drawn[i] + 1 ELSE 0", "IF image.recovering THEN 1 ELSE 0", _LOST),
        _LOSSES_AGAIN,
    ),
    ProtocolBug(
        "match-kept-over-a-recovery",
        _consensus("!.barrier = Len(log[i]) + 1, !.match = 0]", "!.barrier = Len(log[i]) + 1]", _LOST),
        Scope(name="a lost disk, a proposal", terms=1, timeouts=2, losses=1, proposals=1),
    ),
    # In the specification no answer outlives its asker. What comes closest is a member that stands without any.
    ProtocolBug(
        "pre-vote-of-an-earlier-life-counted",
        _consensus("/\\ recovery[i] = 0 \\/ PreWon(i)\n", "\n", _LOST),
        Scope(name="late pre-votes", terms=1, timeouts=2, losses=1, repeats=1, capacity=2, pre_votes=True),
    ),
    ProtocolBug("older-snapshot-installed", None, _SNAPSHOTS),
    ProtocolBug(
        "learners-vote",
        _consensus(
            "{j \\in yes : ballot[j].recovery = 0}, Newest(i).voters)",
            "{j \\in yes : ballot[j].recovery = 0}, MembersOf(Newest(i)))",
            _REMOVAL,
        ),
        _JOINED,
    ),
    ProtocolBug(
        "learners-acknowledge",
        _consensus("counted(j) >= index}, config.voters)", "counted(j) >= index}, MembersOf(config))", _REMOVAL),
        _JOINED,
    ),
    ProtocolBug(
        "change-before-the-one-before-is-committed",
        _consensus("/\\ Cardinality(ConfigIndexes(log[i], commit[i])) = 1     \\* R15\n", "\n", _REMOVALS),
        _CHANGES,
    ),
    ProtocolBug(
        "change-before-an-entry-of-its-own-term-is-committed",
        _consensus("/\\ TermAt(log[i], commit[i]) = term[i]\n", "\n", _REMOVAL),
        _CHANGES_TERMS,
    ),
    ProtocolBug("removed-leader-counts-itself", None, _CHANGES_TERMS),
    ProtocolBug(
        "weak-votes-need-the-voters-alone",
        _consensus("\\/ Everybody(i) \\subseteq yes\n", "\\/ Newest(i).voters \\subseteq yes\n", _LOST),
        Scope(name="a change, a lost disk", terms=2, timeouts=2, losses=1, changes=1),
    ),
    ProtocolBug("new-voter-counts-for-what-lies-before-its-promotion", None, _JOINING),
    ProtocolBug(
        "configuration-in-force-when-committed",
        _consensus(
            "NewestIndex(i) == MaxOf(ConfigIndexes(log[i], commit[i]))",
            "NewestIndex(i) == MaxOf({n \\in ConfigIndexes(log[i], commit[i]) : n <= commit[i]})",
            _REMOVALS,
        ),
        Scope(name="a change, led", terms=2, timeouts=2, changes=1, begins="led"),
    ),
    ProtocolBug("truncated-configuration-stays-in-force", None, _JOINED),
    ProtocolBug(
        "weak-voices-need-the-newest-configuration-alone",
        _consensus(
            "Everybody(i) == UNION {MembersOf(ConfigAt(log[i], n)) : n \\in ConfigIndexes(log[i], commit[i])}",
            "Everybody(i) == MembersOf(Newest(i))",
            _REMOVAL_LOST,
        ),
        Scope(name="a change, a lost disk", terms=2, timeouts=2, losses=1, changes=1),
    ),
    ProtocolBug(
        "a-voter-that-its-file-calls-a-learner-speaks-for-nobody",
        None,
        Scope(
            name="a promotion, torn",
            spares=1,
            terms=1,
            timeouts=1,
            changes=2,
            tears=1,
            losses=1,
            calm=1,
            begins="joined",
        ),
    ),
    ProtocolBug(
        "a-voter-whose-removal-is-undecided-speaks-for-nobody",
        None,
        Scope(
            name="a removal, torn", voters=4, terms=1, timeouts=1, changes=1, tears=2, losses=1, calm=1, begins="led"
        ),
    ),
    ProtocolBug("learner-that-is-ahead-gives-no-vote-as-a-voter", None, msgspec.structs.replace(_JOINED, calm=10)),
    ProtocolBug(
        "learner-grants-whatever-the-candidate-lacks",
        _consensus(
            "IF learns THEN Prefix(log[i], NewestIndex(i)) ELSE log[i])", "IF learns THEN <<>> ELSE log[i])", _REMOVALS
        ),
        _JOINED,
    ),
    ProtocolBug("successor-votes-for-the-former-owner-of-its-id", None, _JOINED),
    ProtocolBug(
        "answered-at-propose",
        Rule(
            "Allocation",
            "/\\ Apply(c)\n    /\\ LET place",
            "/\\ batch[c] # NoBatch /\\ UNCHANGED logVars\n    /\\ LET place",
            _ALLOCATION,
        ),
        unit=_UNIT_STATE,
    ),
    ProtocolBug(
        "answer-keyed-by-index-alone",
        Rule("ReplicatedLog", "/\\ SubSeq(committed, b.base + 1, last) = b.records\n", "\n", _ALLOCATION),
        unit=_UNIT_STATE,
    ),
    ProtocolBug(
        "broker-epoch-not-checked",
        Rule("Allocation", "/\\ r.epoch = EpochOf(Applied(c), BrokerOf[r.agent])", "/\\ TRUE", _ALLOCATION),
        unit=_UNIT_STATE,
    ),
    ProtocolBug(
        "served-from-unapplied-state",
        None,
        unit=_UNIT_STATE,
    ),
    ProtocolBug(
        "new-instance-gets-the-old-epoch",
        Rule("Transactions", "ELSE <<current[1], current[2] + 1>>", "ELSE current", _TRANSACTIONS),
        unit=_UNIT_STATE,
    ),
    ProtocolBug(
        "last-pair-compared-by-epoch-alone",
        None,
        unit=_UNIT_STATE,
    ),
    ProtocolBug(
        "claim-outlives-a-rollback",
        Rule(
            "Migration",
            "SamePhase(c) == work[c].since = PhaseIndex(Applied(c))",
            "SamePhase(c) == TRUE",
            _MIGRATION,
        ),
        unit=_UNIT_MIGRATION,
    ),
    ProtocolBug(
        "sealed-unconditionally",
        Rule(
            "Migration",
            "IF znode.version = w.version\n",
            "IF znode.version = w.version \\/ w.block = Seal\n",
            _SEAL,
        ),
        unit=_UNIT_MIGRATION,
    ),
    ProtocolBug(
        "unknown-outcome-taken-for-success",
        Rule(
            "Migration",
            '/\\ work[c].stage = "claiming"\n    /\\ work[c].write \\in acknowledged\n',
            '/\\ work[c].stage = "claiming"\n',
            _MIGRATION,
        ),
        unit=_UNIT_MIGRATION,
    ),
    ProtocolBug(
        "object-committed-before-it-is-stored",
        Rule("Logs", '/\\ Keeps("put first") => o \\in heard\n', "\n", _LOGS_SHORT),
        unit=_UNIT_DATA,
    ),
    ProtocolBug(
        "offered-object-discarded",
        Rule(
            "Logs",
            "o \\notin offered /\\ o \\notin discarded /\\ Cardinality",
            "o \\notin discarded /\\ Cardinality",
            _LOGS_SHORT,
        ),
        unit=_UNIT_DATA,
    ),
    ProtocolBug(
        "unreferenced-commit-takes-no-number",
        Rule(
            "Logs",
            'IF after.commits[o.name[2]].joined \\/ Keeps("refused takes its number")',
            "IF after.commits[o.name[2]].joined",
            _LOGS_REFUSED,
        ),
        unit=_UNIT_STATE,
    ),
    ProtocolBug(
        "batch-outside-of-its-transaction",
        Rule(
            "Logs",
            "(transaction.epoch # b.epoch \\/ ~transaction.ongoing)",
            "transaction.epoch # b.epoch",
            _LOGS_REFUSED,
        ),
        unit=_UNIT_STATE,
    ),
    ProtocolBug(
        "aborted-transactions-of-older-segments-forgotten",
        Rule("Logs", "UNION {Object(s.parts[n].name).aborted : n \\in older}", "{}", _LOGS_TWO_SEGMENTS),
        unit=_UNIT_DATA,
    ),
)
