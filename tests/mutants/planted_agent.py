"""Bugs in the broker agent. The simulator runs it as it ships, but for its listeners: those are for directed tests."""

from __future__ import annotations

from typing import Final

from tests.mutants.edits import delete, replace
from tests.mutants.planted import Planted

AGENT: Final = "broker_agent"
_UNIT: Final = "tests/unit/broker_agent/"

AGENT_BUGS: Final = (
    Planted(
        "block-that-starts-at-the-highest-id-taken",
        "no ID twice",
        "KAFKA-20031: `<` instead of `<=`",
        (replace(AGENT, "offer", "_1 <= self.highest_held", "_1 < self.highest_held"),),
        (_UNIT + "test_reserve.py",),
        unseen="it takes a controller that repeats an ID",
    ),
    Planted(
        "id-behind-the-block-claimed",
        "only IDs of own blocks are handed out",
        "librdkafka's mock broker hands out IDs twice",
        (replace(AGENT, "BlockReserve.claim", "_1 < self._stop", "_1 <= self._stop and self._stop"),),
    ),
    Planted(
        "id-at-the-threshold-claimed-twice",
        "no ID twice",
        "librdkafka's mock broker: 4,983 distinct of 5,000",
        (replace(AGENT, "_claim_at_stop", "self._next = _1 + 1", "self._next = _1 + (_1 == current.first)"),),
    ),
    Planted(
        "ids-that-were-passed-on-are-no-evidence",
        "what was handed out is known to somebody",
        "docs/decisions/0026: the quorum's own blocks are in no agent's reserve",
        (delete(AGENT, "Transactions._init_producer_id", "self.highest_given = _"),),
        (_UNIT + "test_transactions.py",),
    ),
    Planted(
        "blocks-offered-as-they-arrive",
        "no block of a round is thrown away",
        "KAFKA-14694: two prefetched blocks race, one is dropped",
        (replace(AGENT, "_offer", "sorted(_1, ...)", "_1[::-1]"),),
        (_UNIT + "test_agent.py",),
    ),
    Planted(
        "a-round-offered-beyond-what-was-asked-for",
        "an agent takes what it asked for",
        "an answer of any length fills the reserve beyond its bound",
        (delete(AGENT, "Prefetcher._offer", "if place >= wanted:"),),
        (_UNIT + "test_agent.py",),
        unseen="its controllers give what is asked for",
    ),
    Planted(
        "block-offered-after-a-newer-registration",
        "A5: a block is offered only under the registration that it was asked for under",
        "KAFKA-14694: an answer of an older epoch is taken as if nothing had happened since",
        (replace(AGENT, "Prefetcher._check", "epoch != _", "False"),),
        (_UNIT + "test_agent.py",),
    ),
    Planted(
        "transactional-producers-come-again-for-ever",
        "who needs an ID when none is left is told so for good",
        "this project: COORDINATOR_LOAD_IN_PROGRESS until the end of time",
        (replace(AGENT, "_TOLD_AS_THEY_ARE", "ErrorCode.PRODUCER_IDS_EXHAUSTED", "ErrorCode.MESSAGE_TOO_LARGE"),),
        (_UNIT + "test_transactions.py",),
        unseen="no judge asks whether a producer that comes again will ever be served",
    ),
    Planted(
        "unknown-outcome-called-certain",
        "a candidate ID is in one request at most",
        "a retry of an InitProducerId is counted as its only attempt",
        (replace(AGENT, "ControllerClient.init_producer_id", "attempts == 1 and _1", "_1"),),
    ),
    Planted(
        "epoch-refused-and-kept",
        "an agent whose epoch is stale registers anew",
        "KAFKA-9144: a broker goes on under a registration that is gone",
        (
            delete(AGENT, "Session.heartbeat_forever", "await self.register_anew(_, _)"),
            delete(AGENT, "Prefetcher._handle_refusal", "await self._session.register_anew(_, _)"),
        ),
        (_UNIT + "test_agent.py",),
    ),
    Planted(
        "empty-reserve-answers-a-fatal-code",
        "no client error while the reserve is empty",
        "KAFKA-14417: REQUEST_TIMED_OUT killed clients",
        (
            replace(
                AGENT, "BlockReserve.refusal", "ErrorCode.COORDINATOR_LOAD_IN_PROGRESS", "ErrorCode.REQUEST_TIMED_OUT"
            ),
        ),
        (_UNIT + "test_kafka_responder.py",),
        unseen="it speaks no Kafka wire protocol",
    ),
    Planted(
        "back-off-forgotten",
        "a failed round waits before the next",
        "KAFKA-20114: back-off race",
        (delete(AGENT, "blocks_to_ask", "if _ < self._not_before:"),),
        (_UNIT + "test_prefetch.py",),
        unseen="asking too often breaks no promise",
    ),
    Planted(
        "rejected-block-counts-as-success",
        "a failed round waits before the next",
        "KAFKA-20031's class: a controller that went back is asked as fast as it answers",
        (replace(AGENT, "Prefetcher._round", "accepted < _", "False"),),
        (_UNIT + "test_agent.py",),
        unseen="asking too often breaks no promise",
    ),
    Planted(
        "exhaustion-taken-for-good",
        "what is there is handed out",
        "a leader that was cut off calls the IDs exhausted",
        (delete(AGENT, "BlockReserve.offer", "self.exhausted = False"),),
        (_UNIT + "test_agent.py",),
        unseen="the simulated IDs that are used up are used up for good",
    ),
)
