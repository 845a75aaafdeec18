"""A controller asked by brokers of other systems: in Kafka's protocol, with a codec that is not ours."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.controller.kafka import application as application_module
from pidkeeper.controller.kafka.application import SERVED
from pidkeeper.controller.state.requests import AllocateProducerIds, RegisterBroker
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.service.kafka import listener as listener_module
from pidkeeper.service.kafka.wire.primitives import MAX_FRAME_BYTES
from pidkeeper.service.throttle import Rate
from pidkeeper.service.token_hashes import digest_of
from pidkeeper.service.token_list import ListedToken
from tests.support.foreign_broker import ForeignBroker
from tests.support.kafka_oracles import kio_request, kio_response
from tests.support.memory_member import CLUSTER_ID
from tests.support.sasl_users import plain
from tests.support.waiting import until
from tests.unit.controller.kafka.conftest import Serve, Served

T = TypeVar("T")

TOKENS = {"secret-7": ("seven", ("broker:7",)), "secret-v": ("graphs", ("viewer",)), "secret-b": ("any", ("broker",))}


async def asking(served: Served, ask: Callable[[ForeignBroker], T]) -> T:
    """What `ask` gives, which runs beside the event loop, on a connection of its own."""

    def run() -> T:
        with ForeignBroker(served.address) as broker:
            return ask(broker)

    return await asyncio.to_thread(run)


def log_in(broker: ForeignBroker, password: str) -> int:
    """The error of an attempt with PLAIN."""
    assert broker.ask("sasl_handshake", 1, mechanism="PLAIN").error_code == 0
    return int(broker.ask("sasl_authenticate", 2, auth_bytes=plain("whoever", password)).error_code)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    file = tmp_path / "tokens"
    lines = [ListedToken(name, roles, digest_of(secret.encode())).line for secret, (name, roles) in TOKENS.items()]
    file.write_text("\n".join(lines))
    return file


async def test_a_broker_takes_its_blocks(serve: Serve) -> None:
    served = await serve()

    def life(broker: ForeignBroker) -> list[Any]:
        served_keys = {one.api_key: (one.min_version, one.max_version) for one in versions(broker)}
        assert served_keys == {key: (one.lowest, one.highest) for key, one in SERVED.items()}
        answers = [broker.register(5, CLUSTER_ID)]
        epoch = answers[0].broker_epoch
        answers += [broker.heartbeat(5, epoch), *(broker.allocate(5, epoch) for _ in range(2))]
        return [*answers, broker.heartbeat(5, epoch, want_shut_down=True), broker.allocate(5, epoch)]

    registered, alive, first, second, ended, after = await asking(served, life)
    assert [int(one.error_code) for one in (registered, alive, first, second, ended)] == [0] * 5
    assert (alive.is_caught_up, alive.is_fenced, alive.should_shut_down) == (True, False, False)
    assert [(one.producer_id_start, one.producer_id_len) for one in (first, second)] == [(0, 1000), (1000, 1000)]
    assert (ended.is_fenced, ended.should_shut_down) == (True, True)
    assert (int(after.error_code), after.producer_id_start, after.producer_id_len) == (102, -1, 0)
    assert {(api, outcome): count for (api, outcome), count in outcomes(served).items() if api.startswith("A")} == {
        ("AllocateProducerIds", "success"): 2,
        ("AllocateProducerIds", "BROKER_ID_NOT_REGISTERED"): 1,
    }


def versions(broker: ForeignBroker) -> Any:
    return broker.ask("api_versions", 3, client_software_name="x", client_software_version="1").api_keys


def outcomes(served: Served) -> dict[tuple[str, str], float]:
    requests = next(family for family in served.interface.collect() if family.name == "pidkeeper_kafka_requests")
    return {(one.labels["api"], one.labels["outcome"]): one.value for one in requests.samples}


@pytest.mark.parametrize("version", range(5))
async def test_a_registration_names_a_process_and_no_coordinator(serve: Serve, version: int) -> None:
    """Its listeners are those of another system: agents must not send transactional producers there."""
    served, incarnation = await serve(), uuid.uuid4()
    answer = await asking(
        served, lambda broker: broker.register(5, CLUSTER_ID, version=version, incarnation=incarnation)
    )
    assert int(answer.error_code) == 0
    assert served.member.submitted == [RegisterBroker(5, str(incarnation), None, None)]


async def test_refusals_are_those_of_http(serve: Serve) -> None:
    served = await serve(limits=ApiLimits(broker_allocations=Rate(1.0, 1)))

    def refused(broker: ForeignBroker) -> list[int]:
        epoch = broker.register(5, CLUSTER_ID).broker_epoch
        answers = [
            broker.register(6, "another-cluster"),
            broker.register(6, ""),
            broker.heartbeat(6, epoch),
            broker.heartbeat(5, epoch + 1),
            broker.allocate(6, epoch),
            broker.register(-5, CLUSTER_ID),
            broker.heartbeat(-5, epoch),
            broker.allocate(-5, epoch),
        ]
        return [int(answer.error_code) for answer in answers]

    assert await asking(served, refused) == [104, 104, 102, 77, 102, 42, 42, 42]
    throttled = await asking(served, lambda broker: [broker.allocate(8, 1) for _ in range(2)][1])
    assert int(throttled.error_code) == ErrorCode.THROTTLING_QUOTA_EXCEEDED.kafka_code
    assert timedelta(0) < throttled.throttle_time <= timedelta(seconds=1)
    served.member.leader_id = 2
    elsewhere = await asking(served, lambda broker: broker.allocate(9, 1))
    assert int(elsewhere.error_code) == ErrorCode.NOT_CONTROLLER.kafka_code


async def test_a_follower_and_a_loss_of_leadership_give_no_block(serve: Serve) -> None:
    served = await serve()
    served.member.hold = True
    asked = asyncio.create_task(asking(served, lambda broker: broker.allocate(5, 1)))
    await until(lambda: bool(served.member.held))
    served.member.leader_id = None
    served.member.held[0].set_exception(RequestError(ErrorCode.NOT_CONTROLLER, "lost"))
    answer = await asked
    assert (int(answer.error_code), answer.producer_id_start) == (41, -1)


async def test_what_a_gone_broker_asked_is_not_submitted(serve: Serve) -> None:
    """Its frames lie in the socket of a controller that stood still."""
    served = await serve()

    # The event loop stands still meanwhile.
    with ForeignBroker(served.address) as broker:
        broker.send(kio_request("allocate_producer_ids", 0, 1, None, broker_id=5, broker_epoch=1))
    await until(lambda: served.interface.listener.accepted > 0)
    await until(lambda: not served.interface.listener.connections)
    assert served.member.submitted == []


async def test_whoever_brings_no_token_is_not_served(serve: Serve, tokens: Path) -> None:
    served = await serve(tokens=tokens)
    with pytest.raises(ConnectionError):
        await asking(served, lambda broker: broker.allocate(7, 1))
    assert await asking(served, lambda broker: log_in(broker, "wrong")) == 58
    assert await asking(served, lambda broker: log_in(broker, "secret-v")) == 58, "a viewer is no broker"
    assert served.member.submitted == []
    assert served.interface.listener.authentications == {("PLAIN", "failure"): 2}


async def test_a_token_lets_in_the_broker_that_it_names_alone(serve: Serve, tokens: Path) -> None:
    served = await serve(tokens=tokens)

    def ask(broker: ForeignBroker) -> list[int]:
        assert log_in(broker, "secret-7") == 0
        return [int(broker.register(number, CLUSTER_ID).error_code) for number in (7, 8)]

    assert await asking(served, ask) == [0, 31]


async def test_the_token_of_all_callers_is_a_password_too(serve: Serve) -> None:
    served = await serve(token="of all")
    assert await asking(served, lambda broker: log_in(broker, "of al")) == 58
    registered = await asking(
        served, lambda broker: (log_in(broker, "of all"), int(broker.register(9, CLUSTER_ID).error_code))
    )
    assert registered == (0, 0)


def leave_out(tokens: Path, name: str) -> None:
    lines = tokens.read_text().splitlines()
    tokens.write_text("\n".join(line for line in lines if not line.startswith(name)))


async def test_a_token_that_is_revoked_ends_its_connections(
    serve: Serve, tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "_SWEEP_SECONDS", 0.02)
    served = await serve(tokens=tokens)
    brokers = [ForeignBroker(served.address) for _ in range(2)]
    for broker, secret in zip(brokers, ("secret-7", "secret-b"), strict=True):
        assert await asyncio.to_thread(log_in, broker, secret) == 0
    leave_out(tokens, "seven")
    assert served.tokens is not None
    served.tokens.refresh()
    await until(lambda: len(served.interface.listener.connections) == 1)
    assert served.interface.listener.cut["revoked"] == 1
    assert int((await asyncio.to_thread(brokers[1].register, 9, CLUSTER_ID)).error_code) == 0
    for broker in brokers:
        broker.close()


async def test_whoever_needs_no_token_is_told_so(serve: Serve) -> None:
    served = await serve()
    assert (
        int((await asking(served, lambda broker: broker.ask("sasl_handshake", 1, mechanism="PLAIN"))).error_code) == 34
    )
    late = await asking(served, lambda broker: broker.ask("sasl_authenticate", 2, auth_bytes=b""))
    assert (int(late.error_code), bool(late.error_message)) == (34, True)


@pytest.mark.parametrize(
    "data",
    [
        (MAX_FRAME_BYTES + 1).to_bytes(4, "big"),
        b"\xff\xff\xff\xff",
        (10).to_bytes(4, "big") + b"\x00\x43\x00\x09" + bytes(6),
        (12).to_bytes(4, "big") + b"\x00\x16\x00\x04" + bytes(8),
        (11).to_bytes(4, "big") + b"\x00\x43\x00\x00" + bytes(4) + b"\xff\xff\x00",
    ],
    ids=["long", "negative", "version", "another API", "no body"],
)
async def test_whoever_sends_what_is_none_is_closed(serve: Serve, data: bytes) -> None:
    served = await serve()
    host, port = served.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    writer.close()
    assert served.interface.listener.malformed == 1
    assert served.member.submitted == []


async def test_what_is_remembered_of_a_request_is_that_request(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer has the number of its own request, and the memory has an end."""
    monkeypatch.setattr(application_module, "MAX_MEMO_FRAMES", 3)
    served = await serve()
    for broker_id in range(4):
        served.member.epochs[broker_id] = broker_id

    def ask(broker: ForeignBroker) -> list[tuple[int, int]]:
        answers = []
        for number in (-(2**31), -1, 0, 2**31 - 1):
            for broker_id in range(4):
                fields = {"broker_id": broker_id, "broker_epoch": broker_id}
                broker.send(kio_request("allocate_producer_ids", 0, number, None, **fields))
                correlation_id, answer = kio_response("allocate_producer_ids", 0, broker.receive())
                assert (correlation_id, int(answer.error_code)) == (number, 0)
                answers.append((broker_id, answer.producer_id_start))
        return answers

    given = await asking(served, ask)
    assert [start for _, start in given] == [1000 * number for number in range(16)]
    assert [block.broker_id for block in served.member.history] == [broker_id for broker_id, _ in given]


async def test_requests_in_one_packet_are_answered_in_order(serve: Serve) -> None:
    served = await serve()
    served.member.epochs[5] = 3

    def ask(broker: ForeignBroker) -> list[int]:
        for number in range(20):
            broker.send(kio_request("allocate_producer_ids", 0, number, None, broker_id=5, broker_epoch=3))
        return [kio_response("allocate_producer_ids", 0, broker.receive())[0] for _ in range(20)]

    assert await asking(served, ask) == list(range(20))
    assert served.member.submitted == [AllocateProducerIds(5, 3)] * 20


async def test_a_thousand_refusals_in_one_packet_are_given_one_after_another(serve: Serve) -> None:
    """Each lets the next request be answered, and none from within the answer before it."""
    served, count = await serve(), 1500

    def ask(broker: ForeignBroker) -> list[tuple[int, int]]:
        frames = [
            kio_request("allocate_producer_ids", 0, number, None, broker_id=5, broker_epoch=3)
            for number in range(count)
        ]
        broker.send(*frames)
        answers = [kio_response("allocate_producer_ids", 0, broker.receive()) for _ in range(count)]
        return [(number, int(answer.error_code)) for number, answer in answers]

    served.member.leader_id = 2
    assert await asking(served, ask) == [(number, 41) for number in range(count)]
    assert served.member.submitted == []


async def test_a_block_that_is_waited_for_too_long_is_refused(serve: Serve) -> None:
    served = await serve()
    served.member.hold = True
    asked = asyncio.create_task(asking(served, lambda broker: broker.allocate(5, 1)))
    await until(lambda: bool(served.member.held))
    pending = served.app.operations.pending
    assert len(pending) == 1
    pending.expire(time.monotonic_ns() + 3600 * 10**9)
    answer = await asked
    assert (int(answer.error_code), answer.producer_id_start) == (ErrorCode.REQUEST_TIMED_OUT.kafka_code, -1)
    assert len(pending) == 0


async def test_whatever_breaks_ends_the_connection_that_asked(serve: Serve) -> None:
    served = await serve()
    served.member.fault = ZeroDivisionError("broken")
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    with pytest.raises(ConnectionError):
        await asking(served, lambda broker: broker.allocate(5, 1))
    assert [type(report["exception"]) for report in reports] == [ZeroDivisionError]
    served.member.fault = None
    served.member.epochs[5] = 1
    answer = await asking(served, lambda broker: broker.allocate(5, 1))
    assert int(answer.error_code) == 0
