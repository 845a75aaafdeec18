"""Bugs in the broker agent. The simulator runs its reserve and policy; the rest is for directed tests."""

from __future__ import annotations

from typing import Final

from tests.mutants.planted import Planted, one

RESERVE: Final = "broker_agent/reserve.py"
_UNIT: Final = "tests/unit/broker_agent/"

AGENT: Final = (
    Planted(
        "block-that-starts-at-the-highest-id-taken",
        "no ID twice",
        "KAFKA-20031: `<` instead of `<=`",
        one(RESERVE, "if block.first <= self.highest_held:", "if block.first < self.highest_held:"),
        (_UNIT + "test_reserve.py",),
        unseen="it takes a controller that repeats an ID",
    ),
    Planted(
        "id-behind-the-block-claimed",
        "only IDs of own blocks are handed out",
        "librdkafka's mock broker hands out IDs twice",
        one(RESERVE, "        if claimed < self._stop:\n", "        if claimed <= self._stop and self._stop:\n"),
    ),
    Planted(
        "id-at-the-threshold-claimed-twice",
        "no ID twice",
        "librdkafka's mock broker: 4,983 distinct of 5,000",
        one(
            RESERVE,
            "        self._last_claimed = claimed\n        self._next = claimed + 1\n",
            "        self._last_claimed = claimed\n        self._next = claimed + (claimed == current.first)\n",
        ),
    ),
    Planted(
        "blocks-offered-as-they-arrive",
        "no block of a round is thrown away",
        "KAFKA-14694: two prefetched blocks race, one is dropped",
        one("broker_agent/agent.py", "sorted(answers, key=lambda one: one.producer_id_start)", "answers[::-1]"),
        (_UNIT + "test_agent.py",),
        unseen="its agents have a loop of their own around the real reserve and policy",
    ),
    Planted(
        "empty-reserve-answers-a-fatal-code",
        "no client error while the reserve is empty",
        "KAFKA-14417: REQUEST_TIMED_OUT killed clients",
        one(
            "broker_agent/kafka_responder.py",
            "_LOADING: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.kafka_code",
            "_LOADING: Final = ErrorCode.REQUEST_TIMED_OUT.kafka_code",
        ),
        (_UNIT + "test_kafka_responder.py",),
        unseen="it speaks no Kafka wire protocol",
    ),
    Planted(
        "back-off-forgotten",
        "a failed round waits before the next",
        "KAFKA-20114: back-off race",
        one("broker_agent/prefetch.py", "        if now < self._not_before:\n            return 0\n", ""),
        (_UNIT + "test_prefetch.py",),
        unseen="asking too often breaks no promise",
    ),
)
