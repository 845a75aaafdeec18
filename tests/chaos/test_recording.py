"""What the journal says became of a request, by what came back; and which errors of a Kafka client count as fatal."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import aiokafka.errors
import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException

from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.messages import Problem
from tests.chaos.load.actor import directly
from tests.chaos.load.client_errors import passes
from tests.chaos.load.journal import ActorJournal, Entry, Outcome, entries
from tests.chaos.load.kafka_process import Producers, Spec
from tests.chaos.load.kinds import ALLOCATE, FATAL, FENCED, INIT, REGISTER, ZOMBIE
from tests.chaos.load.recording import RecordingTransport
from tests.clients.java_witness import JavaError
from tests.clients.transactional_witnesses import FencedError, GroupRefusedError, Pair
from tests.clients.witnesses import KafkaPythonError

ALLOCATED = b'{"error_code":0,"producer_id_start":7000,"producer_id_len":1000}'


class Answering:
    """A transport that gives the same answer, or raises the same error, and knows where it was sent."""

    def __init__(self, answer: tuple[int, bytes] | BaseException) -> None:
        self.asked: list[str] = []
        self._answer = answer

    async def exchange(
        self, method: str, base_url: str, path: str, body: bytes | None, timeout_seconds: float
    ) -> tuple[int, bytes]:
        self.asked.append(base_url)
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer


def problem(code: ErrorCode) -> tuple[int, bytes]:
    status = code.http_status
    return status, msgspec.json.encode(Problem("about:blank", "t", status, "d", code.name, code.kafka_code, True))


async def recorded(directory: Path, answer: tuple[int, bytes] | BaseException, path: str = "/v1/x/allocate") -> Entry:
    with ActorJournal(directory, "one") as journal:
        transport = RecordingTransport(Answering(answer), journal, directly)
        with contextlib.suppress(OSError, ValueError, asyncio.CancelledError):
            await transport.exchange("POST", "http://a", path, b'{"broker_id":1,"broker_epoch":2}', 1.0)
    (entry,) = entries(directory)
    return entry


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ((200, ALLOCATED), Outcome.OK),
        ((200, b"nonsense"), Outcome.UNKNOWN),
        (problem(ErrorCode.STALE_BROKER_EPOCH), Outcome.REFUSED),
        (problem(ErrorCode.THROTTLING_QUOTA_EXCEEDED), Outcome.REFUSED),
        (problem(ErrorCode.NOT_CONTROLLER), Outcome.UNKNOWN),
        (problem(ErrorCode.REQUEST_TIMED_OUT), Outcome.UNKNOWN),
        (problem(ErrorCode.KAFKA_STORAGE_ERROR), Outcome.UNKNOWN),
        (problem(ErrorCode.UNKNOWN_SERVER_ERROR), Outcome.UNKNOWN),
        ((502, b"a proxy's page"), Outcome.UNKNOWN),
        (TimeoutError(), Outcome.UNKNOWN),
        (ConnectionResetError(), Outcome.UNKNOWN),
        (ValueError("too long"), Outcome.UNKNOWN),
        (asyncio.CancelledError(), Outcome.UNKNOWN),
    ],
)
async def test_only_who_says_that_nothing_was_done_is_believed(
    tmp_path: Path, answer: tuple[int, bytes] | BaseException, outcome: Outcome
) -> None:
    entry = await recorded(tmp_path, answer)
    assert (entry.kind, entry.outcome) == (ALLOCATE, outcome)
    assert entry.arguments == {"broker_id": 1, "broker_epoch": 2, "member": "http://a"}
    assert (entry.result.get("producer_id_start") == 7000) is (outcome is Outcome.OK)


async def test_how_many_blocks_are_asked_for_is_kept(tmp_path: Path) -> None:
    entry = await recorded(tmp_path, (200, ALLOCATED), "/v1/producer-ids/allocate?blocks=3")
    assert (entry.kind, entry.arguments["blocks"]) == (ALLOCATE, 3)


async def test_the_broker_of_a_registration_is_that_of_its_path(tmp_path: Path) -> None:
    entry = await recorded(tmp_path, (200, b'{"broker_epoch":3}'), "/v1/brokers/9/register")
    assert (entry.kind, entry.arguments["broker_id"], entry.result["broker_epoch"]) == (REGISTER, 9, 3)


async def test_a_request_goes_where_the_route_leads_and_keeps_the_name_of_the_member(tmp_path: Path) -> None:
    inner = Answering((200, ALLOCATED))
    with ActorJournal(tmp_path, "one") as journal:
        transport = RecordingTransport(inner, journal, lambda base_url: base_url.replace("a", "proxy"))
        await transport.exchange("POST", "http://a", "/v1/producer-ids/allocate", b"{" * 5_000, 1.0)
    (entry,) = entries(tmp_path)
    assert (inner.asked, entry.arguments["member"]) == (["http://proxy"], "http://a")
    assert len(entry.arguments["body"]) < 1_000


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TimeoutError(), True),
        (ConnectionResetError(), True),
        (aiokafka.errors.CoordinatorNotAvailableError(), True),
        (aiokafka.errors.KafkaTimeoutError(), True),
        (aiokafka.errors.ProducerFenced(), False),
        (aiokafka.errors.UnknownError(), False),
        (KafkaPythonError(), False),
        (KafkaException(KafkaError(KafkaError._TIMED_OUT)), True),
        (KafkaException(KafkaError(KafkaError.UNKNOWN, "x", retriable=True)), True),
        (KafkaException(KafkaError(KafkaError.UNKNOWN, "x", txn_requires_abort=True)), True),
        (KafkaException(KafkaError(KafkaError._TIMED_OUT, "x", fatal=True)), False),
        (KafkaException(KafkaError(KafkaError.INVALID_TXN_STATE)), False),
        (JavaError("init: KafkaException: x TimeoutException: y"), True),
        (JavaError("init: InvalidTxnStateException: x"), False),
        (JavaError("init: the process ended"), False),
        (FencedError(), False),
        (KeyError("x"), False),
    ],
)
def test_only_errors_after_which_a_client_may_go_on_are_forgiven(error: BaseException, expected: bool) -> None:
    assert passes(error) is expected


class Scripted:
    """A client whose steps do what is in `script`, by the number of the instance and the name of the step."""

    library: ClassVar[str] = "scripted"
    adds_partitions: ClassVar[bool] = False
    remembers_offsets: ClassVar[bool] = True
    survives_dead_coordinator: ClassVar[bool] = True

    def __init__(self, number: int, script: dict[tuple[int, str], Exception]) -> None:
        self._number = number
        self._script = script
        self._inits = 0

    def _step(self, name: str) -> None:
        if (error := self._script.get((self._number, name))) is not None:
            raise error

    async def init(self) -> Pair:
        self._step("init")
        return Pair(1, self._number)

    async def begin(self) -> None:
        self._step("begin")

    async def add_offsets(self, group: str) -> None:
        self._step("add")
        raise GroupRefusedError

    async def add_partition(self) -> None:
        raise AssertionError("it does not add partitions")

    async def end(self, *, committed: bool) -> None:
        self._step("end")

    async def close(self) -> None:
        self._script[self._number, "begin"] = FencedError()


def opened_in_turn(script: dict[tuple[int, str], Exception]) -> Callable[[str, str | None], Scripted]:
    numbers: Iterator[int] = iter(range(1_000))
    return lambda bootstrap, transactional_id: Scripted(next(numbers), script)


async def worked(directory: Path, script: dict[tuple[int, str], Exception]) -> list[Entry]:
    """What three instances of one transactional id leave in the journal."""
    with ActorJournal(directory, "scripted") as journal:
        producers = Producers(Spec("scripted", "", "scripted", "", []), journal, opened_in_turn(script))
        old = None
        for _ in range(3):
            old = await producers._next(old, "t")
    return list(entries(directory))


async def test_the_newest_instance_must_not_be_fenced(tmp_path: Path) -> None:
    told = await worked(tmp_path, {(0, "end"): FencedError()})
    (fatal,) = [one for one in told if one.kind == FATAL]
    assert "FencedError" in fatal.arguments["text"]


async def test_who_gave_up_may_be_heard_later_and_fence_the_newest_one(tmp_path: Path) -> None:
    told = await worked(tmp_path, {(0, "init"): TimeoutError(), (1, "end"): FencedError()})
    assert not [one for one in told if one.kind == FATAL]
    assert [one.outcome for one in told if one.kind == INIT] == [Outcome.UNKNOWN, Outcome.OK, Outcome.OK]


async def test_a_step_that_is_late_is_no_fatal_error_and_one_that_is_nonsense_is(tmp_path: Path) -> None:
    told = await worked(tmp_path, {(0, "end"): TimeoutError(), (1, "end"): KeyError("x")})
    assert len([one for one in told if one.kind == FATAL]) == 1


async def test_a_zombie_that_is_heard_is_told_of(tmp_path: Path) -> None:
    zombies = [one for one in await worked(tmp_path, {}) if one.kind == ZOMBIE]
    assert [one.outcome for one in zombies] == [Outcome.OK, Outcome.OK]


async def test_a_zombie_that_is_fenced_is_told_of(tmp_path: Path) -> None:
    script: dict[tuple[int, str], Exception] = {}
    with ActorJournal(tmp_path, "scripted") as journal:
        producers = Producers(Spec("scripted", "", "scripted", "", []), journal, opened_in_turn(script))
        old = await producers._next(None, "t")
        script[0, "add"] = FencedError()
        await producers._next(old, "t")
    assert [one.code for one in entries(tmp_path) if one.kind == ZOMBIE] == [FENCED]
