"""Bugs in quotas: who gets more than its share, who waits for another one's, and who waits for ever."""

from __future__ import annotations

from typing import Final

from tests.mutants.edits import delete, replace
from tests.mutants.planted import Planted

QUOTAS: Final = "broker_agent/kafka/quotas"
INTAKE: Final = "service/kafka/intake.py"
_BUCKETS: Final = "tests/unit/broker_agent/quotas/test_buckets.py"
_REQUESTS: Final = "tests/unit/broker_agent/quotas/test_requests.py"
_BYTES: Final = "tests/unit/broker_agent/quotas/test_bytes.py"
_HELD: Final = "tests/unit/service/kafka/test_held.py"
_TIME: Final = "tests/unit/broker_agent/wire/test_throttle_time.py"
_NO_CLIENTS: Final = "its clients have no quotas"

QUOTA_BUGS: Final = (
    Planted(
        "time-pays-twice",
        "no more than the rate and a burst",
        "a bucket that is filled since its begin at each look",
        (delete(QUOTAS, "Bucket._settle", "self._at_ns = _"),),
        (_BUCKETS,),
        unseen=_NO_CLIENTS,
    ),
    Planted(
        "a-debt-without-end",
        "nobody waits for longer than 11 s",
        "Kafka's byte quotas: a large request under a small quota holds for hours",
        (replace(QUOTAS, "Bucket.charge", "min(_1, most)", "self._level + amount * NANOSECONDS"),),
        (_BUCKETS,),
        unseen=_NO_CLIENTS,
    ),
    Planted(
        "each-connection-has-a-quota",
        "all connections of a principal share its quota",
        "a bucket in the connection, as a first draft has it",
        (replace(QUOTAS, "Accounts.of", "self._accounts.get(principal)", "None"),),
        (_REQUESTS,),
        unseen=_NO_CLIENTS,
    ),
    Planted(
        "told-and-not-held",
        "who does not wait is held",
        "a service that trusts its clients",
        (delete(QUOTAS, "Meter._throttle", "self._hold(_)"),),
        (_REQUESTS,),
        unseen=_NO_CLIENTS,
    ),
    Planted(
        "held-and-not-told",
        "who is held is told for how long",
        "Kafka before KIP-219: clients took the wait for a dead broker, and came again",
        (replace(QUOTAS, "Meter.throttle_time_ms", "max(0, _)", "0"),),
        (_REQUESTS,),
        unseen=_NO_CLIENTS,
    ),
    Planted(
        "a-fetch-while-it-owes",
        "who is over the quota gets no records",
        "a quota that is counted and not kept",
        (replace("broker_agent/data/fetching.py", "_room", "caller.meter.fetch_room()", "None"),),
        (_BYTES,),
        unseen=_NO_CLIENTS,
    ),
    Planted(
        "a-long-poll-has-room-for-ever",
        "no more than the rate and a burst",
        "room that was looked at before the wait for records",
        (
            replace(
                "broker_agent/data/fetching.py",
                "Fetcher._answer",
                "caller.meter is not None and not caller.meter.fetched(_)",
                "False",
            ),
        ),
        (_BYTES,),
        unseen=_NO_CLIENTS,
    ),
    Planted(
        "behind-the-tags",
        "the throttle time stands where clients read it",
        "an answer whose tagged fields were forgotten",
        (
            replace(
                "broker_agent/kafka/wire/throttle_time.py",
                "with_throttle_time",
                "len(frame) - 4 - flexible",
                "len(frame) - 4",
            ),
        ),
        (_TIME,),
        unseen=_NO_CLIENTS,
    ),
    Planted(
        "let-go-in-the-midst-of-a-call",
        "no answer overtakes another one",
        "one flag for all reasons not to read",
        (replace(INTAKE, "Intake._let_go", "self._stays_muted()", "False"),),
        (_HELD,),
        unseen=_NO_CLIENTS,
    ),
    Planted(
        "an-answer-lets-go",
        "who does not wait is held",
        "one flag for all reasons not to read",
        (replace("service/kafka/connection.py", "Connection._unmute", "self._stays_muted()", "False"),),
        (_HELD,),
        unseen=_NO_CLIENTS,
    ),
    Planted(
        "what-came-along-is-dropped",
        "every request is answered",
        "an over-reaction: whoever is refused is answered no more",
        (delete("service/kafka/connection.py", "Connection._leave", "self._hold_back(data)"),),
        (_HELD,),
        unseen=_NO_CLIENTS,
    ),
    Planted(
        "the-held-keep-their-places",
        "a crowd takes nobody's place who has asked",
        "a request each 11 s would keep a place",
        (replace("service/kafka/listener.py", "KafkaListener._sweep", "connection.is_busy()", "connection.muted"),),
        (_HELD,),
        unseen=_NO_CLIENTS,
    ),
)
