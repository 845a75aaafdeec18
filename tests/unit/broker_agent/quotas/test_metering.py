"""The front that counts answers what is behind it, however requests come in, and counts each of them once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidkeeper.broker_agent.coordinator.caller import Caller
from pidkeeper.broker_agent.coordinator.directory import Directory, Node
from pidkeeper.broker_agent.ids.reserve import BlockReserve
from pidkeeper.broker_agent.kafka.application import AgentApplication
from pidkeeper.broker_agent.kafka.quotas.application import MeteredApplication
from pidkeeper.broker_agent.kafka.quotas.bucket import NANOSECONDS
from pidkeeper.broker_agent.kafka.quotas.meter import REQUESTS, Meters
from pidkeeper.broker_agent.kafka.responder import MAX_RESPONSE_BYTES, KafkaResponder
from pidkeeper.broker_agent.security.quota import Quota
from pidkeeper.protocol.ids import ProducerIdBlock
from pidkeeper.service.access import Principal
from pidkeeper.service.exchange import never
from pidkeeper.service.kafka.wire.primitives import WireError
from tests.support.sasl_users import api_versions
from tests.unit.broker_agent.test_kafka_listener import init, init_transaction

ALICE = Principal("alice", frozenset())
KINDS: Sequence[Callable[[int], bytes]] = (
    init,
    init,
    api_versions,
    init_transaction,
    lambda number: b"\0\0\0\x0a\0\x7f\0\0" + number.to_bytes(4, "big") + b"\xff\xff",
)
"""The last one asks what nobody serves."""


class OneQuota:
    """Everybody's."""

    def __init__(self, quota: Quota | None) -> None:
        self.quota = quota
        self.on_change: Callable[[], None] = lambda: None

    def find(self, _: str) -> Quota | None:
        return self.quota


class Front:
    """`held`: for how many seconds its one client was. Time stands still."""

    def __init__(self, quota: Quota | None) -> None:
        self.held: list[float] = []
        self.meters = Meters(OneQuota(quota), lambda: NANOSECONDS)
        self.application = MeteredApplication(_plain(), self.meters)
        self.caller = self.application.caller(ALICE, "host", never, self.held.append)


def _plain() -> AgentApplication:
    reserve = BlockReserve()
    reserve.offer(ProducerIdBlock(0, 1_000_000))

    async def nobody(_: Any) -> bytes:
        raise AssertionError("nobody is asked")

    return AgentApplication(KafkaResponder(reserve, Directory(Node(1, "127.0.0.1", 1)), lambda: None), nobody)


def told(respond: Callable[[bytes, Caller], tuple[Any, int]], data: bytes, caller: Caller) -> list[Any]:
    """Bytes, and the correlation ids of calls, until nothing more is used; at last what was raised."""
    found: list[Any] = [b""]
    while data:
        try:
            answer, used = respond(data, caller)
        except WireError as error:
            return [*found, str(error)]
        if not used:
            break
        data = data[used:]
        if isinstance(answer, bytes):
            found[-1] += answer
        else:
            found += [answer.header.correlation_id, b""]
    return found


@pytest.mark.parametrize(
    "quota", [None, Quota("*", 1 << 40, 1 << 40, 1 << 40), Quota("*", 1), Quota("*", None, None, 3)]
)
@settings(max_examples=40)
@given(st.lists(st.sampled_from(range(len(KINDS))), max_size=80), st.integers(0, 30))
def test_it_answers_as_without_it(quota: Quota | None, kinds: list[int], cut: int) -> None:
    """But for the throttle time."""
    data = b"".join(KINDS[kind](number) for number, kind in enumerate(kinds))
    data = data[: max(0, len(data) - cut)]
    front, plain = Front(quota), _plain()
    with_it = told(front.application.respond, data, front.caller)
    without = told(plain.respond, data, plain.caller(ALICE, "host", never, front.held.append))
    if quota is None or quota.requests_per_second != 3:
        assert with_it == without and front.held == []
        return
    assert [len(one) if isinstance(one, bytes) else one for one in with_it] == [
        len(one) if isinstance(one, bytes) else one for one in without
    ]
    # Those above three, while time stands still.
    answered = sum(KINDS[kind] in (init, api_versions, init_transaction) for kind in kinds)
    assert front.meters.throttled.answers[REQUESTS] == len(front.held) <= max(0, answered - 3)


@pytest.mark.parametrize("count", [3, 4, 100])
def test_each_request_counts_once_whichever_way_it_is_answered(count: int) -> None:
    front = Front(Quota("*", None, None, 1000))
    for number in range(3):
        told(front.application.respond, b"".join(init(number) for number in range(count)), front.caller)
        room = front.meters.accounts.of("alice", NANOSECONDS).requests.room(1000, NANOSECONDS)
        assert room == 1000 - (number + 1) * count


def test_what_stops_because_of_its_size_counts_for_what_was_answered() -> None:
    front = Front(Quota("*", None, None, 100_000))
    data = b"".join(api_versions(number) for number in range(5000))
    answer, used = front.application.respond(data, front.caller)
    assert isinstance(answer, bytes) and len(answer) > MAX_RESPONSE_BYTES and used < len(data)
    room = front.meters.accounts.of("alice", NANOSECONDS).requests.room(100_000, NANOSECONDS)
    assert room == 100_000 - used // len(api_versions(0))
