"""Where the throttle time stands, in every answer that there is: a codec that is not ours writes it there."""

from __future__ import annotations

import pytest

from pidkeeper.broker_agent.kafka.dispatch import WITH_DATA
from pidkeeper.broker_agent.kafka.features import features_at
from pidkeeper.broker_agent.kafka.wire.throttle_time import with_throttle_time
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.service.kafka.wire.api_versions import api_versions_response
from pidkeeper.service.kafka.wire.headers import RequestHeader, frame_response
from pidkeeper.service.kafka.wire.versions import API_VERSIONS, PRODUCE
from tests.support.kafka_oracles import KAFKA_PYTHON, KEYS
from tests.support.plain_messages import response

NAMES = {key: name for name, key in KEYS.items()}
MS = 0x01020304
ANSWERS = [
    (key, version)
    for key, versions in sorted(WITH_DATA.advertised.items())
    for version in range(versions.lowest, versions.highest + 1)
]


def frame(key: int, version: int, throttle_ms: int) -> bytes:
    """The answer without anything else in it."""
    kind = KAFKA_PYTHON[NAMES[key]][1]
    fields = {"throttle_time_ms": throttle_ms} if "throttle_time_ms" in kind._struct.fields else {}
    header = RequestHeader(key, version, 77, None)
    return frame_response(header, WITH_DATA.advertised[key], bytes(kind(version=version, **fields).encode()))


@pytest.mark.parametrize(("key", "version"), ANSWERS, ids=str)
def test_it_is_written_where_another_codec_writes_it(key: int, version: int) -> None:
    without, expected = frame(key, version, 0), frame(key, version, MS)
    assert with_throttle_time(without, key, version, WITH_DATA.advertised, MS) == expected


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_what_the_cluster_has_agreed_on_stands_behind_it(version: int) -> None:
    body = api_versions_response(version, WITH_DATA.advertised, features_at(LATEST))
    answer = frame_response(RequestHeader(API_VERSIONS, version, 77, None), WITH_DATA.advertised[API_VERSIONS], body)
    told = with_throttle_time(answer, API_VERSIONS, version, WITH_DATA.advertised, MS)
    before = response("api_versions", version, answer[4:])
    assert response("api_versions", version, told[4:]) == before | {"throttle_time_ms": MS}


def test_most_answers_have_room_for_it() -> None:
    """Else the test above would say nothing."""
    without = [one for one in ANSWERS if frame(*one, 0) == frame(*one, MS)]
    assert len(without) < len(ANSWERS) / 4


@pytest.mark.parametrize(
    ("answer", "key", "version"),
    [(b"", PRODUCE, 9), (frame(API_VERSIONS, 0, 0), API_VERSIONS, 99), (b"\0\0\0\4abcd", 999, 0)],
    ids=["no answer", "a version that nobody knows", "an API that is not served"],
)
def test_where_there_is_none_nothing_is_written(answer: bytes, key: int, version: int) -> None:
    assert with_throttle_time(answer, key, version, WITH_DATA.advertised, MS) == answer
