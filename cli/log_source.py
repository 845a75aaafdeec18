"""Where `log read` reads: an agent that answers Fetch, and the records of a partition from it."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, Self

import click

from pidkeeper.broker_agent.kafka.wire.data.decompression import MissingCodecError, UnreadableError
from pidkeeper.broker_agent.kafka.wire.data.fetch import FetchedPartition
from pidkeeper.broker_agent.kafka.wire.data.isolation import IsolationLevel
from pidkeeper.broker_agent.kafka.wire.data.records import Aborted, LogRecord, batches, records_of
from pidkeeper.cli.brokers import registered
from pidkeeper.cli.controllers import ATTEMPT_SECONDS, STEP_SECONDS, Controllers
from pidkeeper.cli.failures import CommandError, ExitCode, NobodyError, told
from pidkeeper.cli.kafka_client import KafkaClient, ListenerError
from pidkeeper.protocol.addresses import AddressError, HostPort, KafkaUrl
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.service.kafka.wire.primitives import WireError

WAIT_MS: Final = 500
"""How long an agent may wait for records that it does not know of yet: Java's `fetch.max.wait.ms`."""

MAX_PASSWORD_BYTES: Final = 1024

PASSING: Final = {
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_OR_FOLLOWER, ask another one (--agent)",
    7: "REQUEST_TIMED_OUT",
    56: "KAFKA_STORAGE_ERROR",
    78: "OFFSET_NOT_AVAILABLE",
}
"""Kafka's errors of a partition after which a consumer asks again."""

TOPIC_AUTHORIZATION_FAILED: Final = 29


class Login(NamedTuple):
    """A user of SASL."""

    user: str
    password: str

    @classmethod
    def of(cls, user: str, file: Path) -> Self:
        """With the password in a file's one line. Raises click.BadParameter."""
        try:
            with file.open("rb") as opened:
                data = opened.read(MAX_PASSWORD_BYTES + 1)
        except OSError as error:
            raise click.BadParameter(f"{file}: {error.strerror or error}", param_hint="--password-file") from error
        try:
            password = data.rstrip(b"\r\n").decode()
        except UnicodeDecodeError:
            password = ""
        if not password or len(data) > MAX_PASSWORD_BYTES or "\n" in password or "\0" in password:
            raise click.BadParameter(f"{file} does not hold one password in one line", param_hint="--password-file")
        return cls(user, password)


def places(members: Controllers, agent: str | None) -> list[KafkaUrl]:
    """The listeners that may be asked: the one that was given, or those of living agents. Raises CommandError."""
    if agent is not None:
        try:
            return [KafkaUrl.parse(agent, "--agent")]
        except AddressError as error:
            raise click.BadParameter(str(error), param_hint="--agent") from error
    known = [one for one in registered(members) if one.kafka is not None]
    found = []
    for one in sorted(known, key=lambda one: one.fenced):
        assert one.kafka is not None
        found.append(KafkaUrl(HostPort.parse(one.kafka, f"broker {one.broker_id}"), members.all_tls))
    if not found:
        reason = "no registered agent has told the address of its Kafka listener: name one with --agent"
        raise CommandError(reason, ExitCode.REFUSED)
    return found


def connected(members: Controllers, listeners: list[KafkaUrl], login: Login | None) -> KafkaClient:
    """A connection to the first one that serves Fetch. Raises CommandError, NobodyError if none does."""
    deadline = time.monotonic() + members.timeout
    reasons = []
    for one in listeners:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        if login is not None and not one.encrypted:
            reason = f"{one} has no TLS, and a password is not sent without: name it kafka+ssl://"
            raise CommandError(reason, ExitCode.USAGE)
        context = members.tls_context if one.encrypted else None
        try:
            return _opened(one.address, context, min(left, ATTEMPT_SECONDS), members.timeout, login)
        except ListenerError as error:
            if error.refused:
                raise CommandError(f"{one}: {error}", ExitCode.NOT_AUTHORISED) from error
            reasons.append(f"{one}: {error}")
        except (OSError, WireError) as error:
            reasons.append(f"{one}: {_reason(error)}")
    raise NobodyError(f"no agent to fetch from: {'; '.join(reasons)}")


def _opened(
    address: HostPort, context: ssl.SSLContext | None, seconds: float, patience: float, login: Login | None
) -> KafkaClient:
    client = KafkaClient.connect(address, context, seconds)
    try:
        client.negotiate()
        if login is not None:
            client.log_in(login.user, login.password)
        client.wait(patience)
    except BaseException:
        client.close()
        raise
    return client


class Source:
    """The records of one partition, from one agent. `seconds`: how long it may know nothing new of what there is."""

    def __init__(self, client: KafkaClient, topic: str, partition: int, level: IsolationLevel, seconds: float) -> None:
        self._client = client
        self._topic = topic
        self._partition = partition
        self._level = level
        self._seconds = seconds

    def records(self, first: int, end: int) -> Iterator[LogRecord]:
        """Those from `first` on and below `end`, markers among them. Raises CommandError."""
        at = first
        while at < end:
            answer, following = self._next(at)
            try:
                yield from self._records_in(answer, at, end)
            except (WireError, UnreadableError) as error:
                raise CommandError(f"{self._name} is damaged behind offset {at}: {error}") from error
            except MissingCodecError as error:
                raise CommandError(str(error)) from error
            at = following

    def _next(self, at: int) -> tuple[FetchedPartition, int]:
        """An answer with one batch at least, and the offset behind its last one."""
        deadline = time.monotonic() + self._seconds
        last = "it has no records"
        while time.monotonic() < deadline:
            try:
                answer = self._client.fetch(self._topic, self._partition, at, self._level, WAIT_MS)
                headers = list(batches(answer.records[0])) if answer.records else []
            except (OSError, WireError, ListenerError) as error:
                raise NobodyError(f"{self._name} cannot be read from offset {at} on: {_reason(error)}") from error
            if answer.error_code:
                last = self._checked(answer.error_code, at)
            elif headers and headers[-1].last_offset >= at:
                return answer, headers[-1].last_offset + 1
            time.sleep(STEP_SECONDS)
        raise NobodyError(f"no records of {self._name} from offset {at} on within {self._seconds:g} s: {last}")

    def _checked(self, error_code: int, at: int) -> str:
        """The name of an error that passes. Raises CommandError for another one."""
        if error_code == ErrorCode.OFFSET_OUT_OF_RANGE.kafka_code:
            raise CommandError(f"{self._name} has no offset {at} any more: ask again", ExitCode.REFUSED)
        if error_code == TOPIC_AUTHORIZATION_FAILED:
            raise CommandError(f"{self._name} may not be read by this user", ExitCode.NOT_AUTHORISED)
        if error_code not in PASSING:
            known = next((one.name for one in ErrorCode if one.kafka_code == error_code), f"Kafka's error {error_code}")
            raise CommandError(f"the agent refuses to read {self._name}: {known}", ExitCode.REFUSED)
        return PASSING[error_code]

    def _records_in(self, answer: FetchedPartition, first: int, end: int) -> Iterator[LogRecord]:
        data = answer.records[0]
        aborted = Aborted(answer.aborted_transactions or ())
        for header in batches(data):
            if aborted.has(header):
                continue
            for one in records_of(data, header):
                if one.type == "ABORT":
                    aborted.end(one.producer_id)
                if first <= one.offset < end:
                    yield one

    @property
    def _name(self) -> str:
        return f"{self._topic}-{self._partition}"


def _reason(error: Exception) -> str:
    return told(error) if isinstance(error, OSError) else str(error)
