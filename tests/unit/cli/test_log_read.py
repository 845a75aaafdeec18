"""`pidkeeper log read`: coordinates from a member in memory, records from a listener that speaks the agents' codecs."""

from __future__ import annotations

import base64
import json
import ssl
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pidkeeper.broker_agent.kafka.wire.data import fetch
from pidkeeper.broker_agent.kafka.wire.data.record_batch import Compression, control_batch
from pidkeeper.cli.failures import ExitCode
from pidkeeper.cli.main import cli
from pidkeeper.controller.state.requests import CreateTopic
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.service.kafka.wire.versions import FETCH, INIT_PRODUCER_ID, Versions
from pidkeeper.service.tls import server_context
from tests.support.built_batches import TIME_MS, built
from tests.support.certificates import CertificateAuthority
from tests.support.fetch_server import FetchServer
from tests.support.memory_member import MemoryMember
from tests.support.served_member import ServedMember

BINARY = b"\x00\xfe"
END = 11
LAST_STABLE = 10
RECORDS = [0, 1, 2, 3, 4, 6, 8, 9, 10]
"""Offsets; the others are of markers."""
COMMITTED = [0, 1, 2, 3, 4, 8, 9]


def marker(offset: int, producer_id: int, *, committed: bool) -> bytes:
    return control_batch(
        producer_id, 0, committed=committed, base_offset=offset, timestamp_ms=TIME_MS, coordinator_epoch=0
    )


def batches() -> list[bytes]:
    """Records, a transaction that was committed, one that was aborted, compressed records, an open transaction."""
    return [
        built(0, (b"k0", b"v0"), (None, b"v1"), (b"k2", None)),
        built(3, (b"a", b"1"), (b"b", b"2"), producer=(7, 0, 0), transactional=True),
        marker(5, 7, committed=True),
        built(6, (b"gone", b"x"), producer=(8, 0, 0), transactional=True),
        marker(7, 8, committed=False),
        built(
            8,
            (BINARY, b"long " * 60),
            (b"z", b""),
            compression=Compression.ZSTD,
            headers=[("h", BINARY), ("e", b""), ("n", None)],
        ),
        built(10, (b"open", b"?"), producer=(9, 0, 0), transactional=True),
    ]


@pytest.fixture
def listener() -> Iterator[FetchServer]:
    server = FetchServer(batches())
    server.aborted = [fetch.AbortedTransaction(8, 6)]
    server.last_stable = LAST_STABLE
    yield server
    server.close()


@pytest.fixture
def served(listener: FetchServer) -> Iterator[ServedMember]:
    def prepare(member: MemoryMember) -> None:
        member.decide_on_logs(CreateTopic(uuid.UUID(int=7), "events", 2, -1, -1, None, False))
        log = member.log_machine.logs.log(0)
        assert log is not None
        log.end = END
        log.open[9] = LAST_STABLE
        member.epochs, member.kafka = {1: 1}, {1: listener.address}

    one = ServedMember("log", prepare)
    yield one
    one.close()


def documents(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def offsets(served: ServedMember, *options: str) -> list[int]:
    return [one["offset"] for one in documents(served.run("read", "events", *options, "-o", "json"))]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], RECORDS),
        (["--committed"], COMMITTED),
        (["--markers"], list(range(END))),
        (["--committed", "--markers"], [0, 1, 2, 3, 4, 5, 7, 8, 9]),
        (["--from", "1"], RECORDS[1:]),
        (["--from", "9", "--committed"], [9]),
        (["--from", "10", "--committed"], []),
        (["--from", str(END)], []),
        (["--tail", "3"], [8, 9, 10]),
        (["--tail", "3", "--committed"], [8, 9]),
        (["--tail", "1000"], RECORDS),
        (["--tail", "3", "--limit", "1"], [8]),
        (["--partition", "1"], []),
    ],
)
@pytest.mark.parametrize("per_answer", [1, 1000])
def test_what_is_read(
    served: ServedMember, listener: FetchServer, options: list[str], expected: list[int], per_answer: int
) -> None:
    listener.per_answer, listener.cut = per_answer, 70
    assert offsets(served, *options) == expected


def test_a_log_begins_where_its_oldest_record_is(served: ServedMember, listener: FetchServer) -> None:
    log = served.member.log_machine.logs.log(0)
    assert log is not None
    log.start = 4
    for options in ([], ["--tail", "1000"], ["--from", "4"]):
        assert offsets(served, *options) == RECORDS[4:]
        assert listener.asked.pop(0)[1].topics[0].partitions[0].fetch_offset == 4
        listener.asked.clear()
    assert served.run("read", "events", "--from", "3").exit_code == ExitCode.REFUSED


def test_a_read_asks_for_what_follows_and_for_no_more(served: ServedMember, listener: FetchServer) -> None:
    listener.per_answer = 2
    listener.batches.append(built(END, (b"newer", b"than the read")))
    assert offsets(served, "--markers") == list(range(END))
    places = [request.topics[0].partitions[0].fetch_offset for _, request in listener.asked]
    assert places == [0, 5, 7, 10]
    assert {request.isolation_level for _, request in listener.asked} == {0}
    offsets(served, "--committed")
    assert listener.asked[-1][1].isolation_level == 1


def test_records_that_are_left_are_told_of(served: ServedMember) -> None:
    result = served.run("read", "events", "--limit", "5")
    assert result.exit_code == 0
    assert result.stderr == "more: --from 6\n"
    assert served.run("read", "events", "--limit", "9").stderr == ""


def test_a_table_has_a_row_for_each_record(served: ServedMember) -> None:
    columns, *rows = served.rows("read", "events", "--markers")
    assert columns == [
        "Offset", "Type", "Timestamp", "ProducerId", "Epoch", "Transactional", "Key", "Value", "Headers",
    ]  # fmt: skip
    first = "2023-11-14T22:13:20.000Z"
    assert rows[0] == ["0", "RECORD", first, "-", "-", "no", "k0", "v0", "-"]
    assert rows[1] == ["1", "RECORD", first.replace("000Z", "001Z"), "-", "-", "no", "-", "v1", "-"]
    assert rows[3] == ["3", "RECORD", first, "7", "0", "yes", "a", "1", "-"]
    assert rows[5] == ["5", "COMMIT", first, "7", "0", "yes", "-", "-", "-"]
    assert rows[7][:2] == ["7", "ABORT"]
    assert rows[8][6] == "0x00fe"
    assert rows[8][-5:] == ["(300", "characters)", "h=0x00fe,", "e=,", "n=-"]
    assert "long " * 40 + "… (300" in served.run("read", "events").stdout


def test_a_document_has_all_of_a_record(served: ServedMember) -> None:
    found = {one["offset"]: one for one in documents(served.run("read", "events", "-o", "json"))}
    assert found[0] == {
        "schema_version": 1,
        "offset": 0,
        "type": "RECORD",
        "timestamp_ms": TIME_MS,
        "producer_id": -1,
        "producer_epoch": -1,
        "transactional": False,
        "key": {"text": "k0"},
        "value": {"text": "v0"},
        "headers": [],
    }
    assert (found[1]["key"], found[2]["value"]) == (None, None)
    binary = {"base64": base64.b64encode(BINARY).decode()}
    assert found[8]["key"] == binary
    assert found[8]["value"] == {"text": "long " * 60}
    assert found[8]["headers"] == [
        {"key": {"text": "h"}, "value": binary},
        {"key": {"text": "e"}, "value": {"text": ""}},
        {"key": {"text": "n"}, "value": None},
    ]
    assert found[9]["value"] == {"text": ""}
    assert (found[10]["producer_id"], found[10]["producer_epoch"], found[10]["transactional"]) == (9, 0, True)


@pytest.mark.parametrize("highest", [*range(4, 13), 18])
def test_the_newest_version_that_both_know_is_spoken(served: ServedMember, listener: FetchServer, highest: int) -> None:
    listener.served = {FETCH: Versions(4, highest, 12)}
    assert offsets(served) == RECORDS
    assert {version for version, _ in listener.asked} == {min(highest, 12)}


@pytest.mark.parametrize(
    ("tells", "reason"),
    [
        ({INIT_PRODUCER_ID: Versions(0, 5, 2)}, "it serves no Fetch, so it keeps no partition logs"),
        ({FETCH: Versions(0, 3, 12)}, "it serves Fetch 0-3, and 4-12 are spoken here"),
        ({FETCH: Versions(13, 18, 12)}, "it serves Fetch 13-18"),
    ],
)
def test_an_agent_that_cannot_be_asked_says_why(
    served: ServedMember, listener: FetchServer, tells: dict[int, Versions], reason: str
) -> None:
    listener.served = tells
    result = served.run("read", "events")
    assert result.exit_code == ExitCode.UNREACHABLE
    assert f"kafka://{listener.address}: {reason}" in result.stderr


def test_another_agent_is_asked_where_one_does_not_answer(served: ServedMember, listener: FetchServer) -> None:
    served.member.epochs, served.member.kafka = {0: 1, 1: 1, 2: 1}, {0: None, 1: "127.0.0.1:1", 2: listener.address}
    assert offsets(served) == RECORDS
    nobody = served.run("read", "events", "--agent", "kafka://127.0.0.1:1")
    assert nobody.exit_code == ExitCode.UNREACHABLE
    assert "kafka://127.0.0.1:1: Connection refused" in nobody.stderr
    served.member.kafka = {}
    nobody = served.run("read", "events")
    assert nobody.exit_code == ExitCode.REFUSED
    assert "name one with --agent" in nobody.stderr
    assert offsets(served, "--agent", f"kafka://{listener.address}") == RECORDS


@pytest.mark.parametrize(
    ("options", "exit_code", "reason"),
    [
        (["others"], ExitCode.REFUSED, "there is no topic 'others'"),
        (["events", "--partition", "2"], ExitCode.REFUSED, "topic events has no partition 2: the last one is 1"),
        (["events", "--from", "12"], ExitCode.REFUSED, "there is no offset 12: the log goes from 0 to 11"),
        (["events", "--from", "1", "--tail", "1"], ExitCode.USAGE, "--from and --tail"),
        (["events", "--user", "u"], ExitCode.USAGE, "--user and --password-file"),
        (["events", "--agent", "127.0.0.1:9092"], ExitCode.USAGE, "is no address like kafka://"),
    ],
)
def test_what_cannot_be_read_is_refused(
    served: ServedMember, options: list[str], exit_code: ExitCode, reason: str
) -> None:
    result = served.run("read", *options)
    assert result.exit_code == exit_code, result.output
    assert reason in result.stderr


@pytest.mark.parametrize(
    ("code", "exit_code", "reason"),
    [
        (ErrorCode.OFFSET_OUT_OF_RANGE.kafka_code, ExitCode.REFUSED, "events-0 has no offset 0 any more"),
        (29, ExitCode.NOT_AUTHORISED, "events-0 may not be read by this user"),
        (ErrorCode.INVALID_REQUEST.kafka_code, ExitCode.REFUSED, "INVALID_REQUEST"),
        (100, ExitCode.REFUSED, "Kafka's error 100"),
    ],
)
@pytest.mark.parametrize("whole", [False, True])
def test_an_error_of_the_agent_is_told(
    served: ServedMember, listener: FetchServer, code: int, exit_code: ExitCode, reason: str, whole: bool
) -> None:
    if whole:
        listener.error_of_all = code
    else:
        listener.errors = [code]
    result = served.run("read", "events")
    assert result.exit_code == exit_code, result.output
    assert reason in result.stderr


def test_what_was_read_before_an_error_is_printed(served: ServedMember, listener: FetchServer) -> None:
    listener.batches[2] = listener.batches[2][:-1] + b"\xff"
    result = served.run("read", "events")
    assert result.exit_code == ExitCode.FAILED
    assert [line.split()[0] for line in result.stdout.splitlines()[2:]] == ["0", "1", "2", "3", "4"]
    listener.error_of_all = 29
    assert served.run("read", "events").stdout == ""


def test_an_agent_that_does_not_lead_is_told_of(served: ServedMember, listener: FetchServer) -> None:
    listener.errors = [6] * 1000
    result = CliRunner().invoke(cli, ["log", "read", "events", "-c", served.url, "--timeout", "0.3"])
    assert result.exit_code == ExitCode.UNREACHABLE
    assert "NOT_LEADER_OR_FOLLOWER, ask another one (--agent)" in result.stderr


def test_an_error_that_passes_is_waited_for(served: ServedMember, listener: FetchServer) -> None:
    listener.errors = [6, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.kafka_code]
    assert offsets(served) == RECORDS


@pytest.mark.parametrize("error", [0, 6])
def test_records_that_do_not_come_are_not_waited_for_for_ever(
    served: ServedMember, listener: FetchServer, error: int
) -> None:
    if error:
        listener.errors = [error] * 1000
    else:
        del listener.batches[2:]
    asked = ["log", "read", "events", "-c", served.url, "--timeout", "0.4", "-o", "json"]
    result = CliRunner().invoke(cli, asked)
    assert result.exit_code == ExitCode.UNREACHABLE
    assert f"no records of events-0 from offset {0 if error else 5} on within 0.4 s" in result.stderr
    assert len(result.stdout.splitlines()) == (0 if error else 5)


def test_damage_is_told(served: ServedMember, listener: FetchServer) -> None:
    listener.batches[1] = listener.batches[1][:-1] + b"\xff"
    result = served.run("read", "events")
    assert result.exit_code == ExitCode.FAILED
    assert "events-0 is damaged" in result.stderr
    assert "CRC" in result.stderr


class Secure:
    """A listener with TLS and a user, and how to ask it."""

    def __init__(self, directory: Path) -> None:
        authority = CertificateAuthority(directory)
        files = authority.issue("agent")
        context = server_context(type(files)(certificate_file=files.certificate_file, key_file=files.key_file))
        assert isinstance(context, ssl.SSLContext)
        self.listener = FetchServer(batches(), context=context)
        self.listener.login = FetchServer.plain("u", "secret")
        self.password = directory / "password"
        self.password.write_text("secret\n")
        self.ca = ["--ca-file", str(authority.path)]
        self.agent = ["--agent", f"kafka+ssl://{self.listener.address}"]
        self.user = ["--user", "u", "--password-file", str(self.password)]


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Secure]:
    one = Secure(tmp_path)
    yield one
    one.listener.close()


def test_a_user_reads_over_tls(served: ServedMember, secure: Secure) -> None:
    assert offsets(served, *secure.agent, *secure.ca, *secure.user) == RECORDS


@pytest.mark.parametrize(
    ("password", "exit_code", "reason"),
    [
        ("wrong", ExitCode.NOT_AUTHORISED, "it refuses user 'u' or the password"),
        ("", ExitCode.USAGE, "does not hold one password"),
        ("a\nb", ExitCode.USAGE, "does not hold one password"),
        ("x" * 2000, ExitCode.USAGE, "does not hold one password"),
    ],
)
def test_another_password_is_refused(
    served: ServedMember, secure: Secure, password: str, exit_code: ExitCode, reason: str
) -> None:
    secure.password.write_text(password)
    result = served.run("read", "events", *secure.agent, *secure.ca, *secure.user)
    assert result.exit_code == exit_code, result.output
    assert reason in result.stderr


def test_a_password_is_not_sent_without_tls(served: ServedMember, secure: Secure, listener: FetchServer) -> None:
    result = served.run("read", "events", *secure.user)
    assert result.exit_code == ExitCode.USAGE
    assert "a password is not sent without" in result.stderr
    assert listener.asked == []


def test_who_is_not_let_in_is_told_what_may_be_missing(served: ServedMember, secure: Secure) -> None:
    nobody = served.run("read", "events", *secure.agent, *secure.ca)
    assert nobody.exit_code == ExitCode.UNREACHABLE
    assert "does it want TLS, or a user of SASL (--user)?" in nobody.stderr
    stranger = served.run("read", "events", *secure.agent, *secure.user)
    assert stranger.exit_code == ExitCode.UNREACHABLE
    assert "certificate verify failed" in stranger.stderr.lower()
