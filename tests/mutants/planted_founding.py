"""Bugs in how a quorum is founded: too easily, or not at all where it should be."""

from __future__ import annotations

from typing import Final

from tests.mutants.edits import delete, replace
from tests.mutants.planted import Planted

NODE: Final = "controller/node"
TRANSPORT: Final = "controller/transport"
_GATE: Final = ("tests/unit/controller/node/test_founding_gate.py",)
_BY_ITSELF: Final = "nothing founds by itself"
_SILENTLY: Final = "a quorum that begins anew from empty directories, and tells nobody that it lost the old ones"
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
        unseen="nobody asks a blank member for a vote but who is founded, and then it has joined before",
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
        (delete(NODE, "FoundingGate.found", "_check_peer(_, _, _)"),),
        _GATE,
        unseen="the simulated operator orders one founding alone, so whoever joins late joins that one",
    ),
    Planted(
        "every-voter-founds",
        _BY_ITSELF,
        "two members that bootstrap at the same time, each a cluster of its own",
        (replace(NODE, "FoundingGate._check_own", "own != voters[0]", "False"),),
        _GATE,
        unseen="the simulated operator gives each of its requests the same id",
    ),
    Planted(
        "founded-again-under-another-id",
        _BY_ITSELF,
        "a request that is sent again does its work twice",
        (replace(NODE, "FoundingGate.found", "begun.founding_id != wanted.founding_id", "False"),),
        _GATE,
        unseen="the simulated operator gives each of its requests the same id",
    ),
    Planted(
        "joins-the-founding-of-a-stranger",
        _BY_ITSELF,
        "a removed member that still runs",
        (replace(NODE, "FoundingGate.introduced", "peer not in named_voters(self._settings)", "False"),),
        _GATE,
        unseen="no removed member of another founding is in the simulation",
    ),
    Planted(
        "members-of-two-foundings-speak",
        "a quorum has one founding",
        "elastic/elasticsearch: two clusters that were bootstrapped apart are joined, and one loses its data",
        (replace(TRANSPORT, "PeerLinks.judge", "(reason := _) is not None", "False"),),
        _GATE,
        unseen="the simulation has one founding",
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
        (delete(NODE, "FoundingGate._founded", "self._links.introduce_as(_)"),),
        _GATE,
    ),
    Planted(
        "earlier-builds-are-strangers",
        "a quorum without a founding goes on",
        _OVER,
        (replace(TRANSPORT, "of_two_foundings", "not mine or not theirs or mine == theirs", "mine == theirs"),),
        _GATE,
    ),
    Planted(
        "directory-of-an-earlier-build-taken-for-blank",
        "a quorum without a founding goes on",
        _OVER,
        (replace(NODE, "founding_of", "machine.next_offset == 0 and _ and _", "True"),),
        ("tests/unit/controller/node/test_durable_voters.py",),
    ),
)
