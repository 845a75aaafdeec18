"""`pidkeeper log read`: the records of a topic's partition, fetched from an agent as Kafka's consumers fetch them."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator
from typing import Final, Literal

import click
import msgspec

from pidkeeper.broker_agent.kafka.wire.data.isolation import IsolationLevel
from pidkeeper.broker_agent.kafka.wire.data.records import Header, LogRecord
from pidkeeper.cli.agent_options import AgentChoice, asks_agent
from pidkeeper.cli.controllers import Controllers, asks_controllers
from pidkeeper.cli.failures import CommandError, ExitCode
from pidkeeper.cli.log_source import Source
from pidkeeper.cli.output import TABLE, output_option, print_document, print_table
from pidkeeper.cli.topics import described_page
from pidkeeper.protocol.log_messages import PartitionDescription
from pidkeeper.protocol.logs import MAX_PARTITIONS

DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 10_000
"""Rows of one table, which takes 1 KiB of memory for each at most."""

SHOWN_CHARACTERS: Final = 200
"""Of a key, a value or all headers in a table; documents have all."""


COLUMNS: Final = (
    "Offset",
    "Type",
    "Timestamp",
    "ProducerId",
    "Epoch",
    "Transactional",
    "Key",
    "Value",
    "Headers",
)


class Shown(msgspec.Struct, frozen=True, omit_defaults=True):
    """Bytes: as `text` if they are UTF-8 that can be printed, else in `base64`."""

    text: str | None = None
    base64: bytes | None = None


class ShownHeader(msgspec.Struct, frozen=True):
    """One header of a record."""

    key: Shown | None
    value: Shown | None


class ShownRecord(msgspec.Struct, frozen=True):
    """One record in a document; see LogRecord."""

    offset: int
    type: Literal["RECORD", "COMMIT", "ABORT", "CONTROL"]
    timestamp_ms: int
    producer_id: int
    producer_epoch: int
    transactional: bool
    key: Shown | None
    value: Shown | None
    headers: list[ShownHeader]


@click.command()
@click.argument("topic")
@click.option(
    "--partition",
    default=0,
    show_default=True,
    type=click.IntRange(0, MAX_PARTITIONS - 1),
    help="Partition of the topic.",
)
@click.option(
    "--from",
    "start",
    type=click.IntRange(0, 2**63 - 1),
    metavar="OFFSET",
    help="First offset. Default: that of the log.",
)
@click.option("--tail", type=click.IntRange(1, MAX_LIMIT), metavar="N", help="Begin N offsets before the end.")
@click.option("--committed", is_flag=True, help="Only what is committed, as with Kafka's read_committed.")
@click.option("--markers", is_flag=True, help="Also the ends of transactions, as COMMIT and ABORT.")
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_LIMIT),
    metavar="N",
    help=f"Most rows to print. Default: {DEFAULT_LIMIT}, or what --tail says.",
)
@asks_agent
@asks_controllers
@output_option
def read(
    topic: str,
    partition: int,
    start: int | None,
    tail: int | None,
    committed: bool,
    markers: bool,
    limit: int | None,
    agent: AgentChoice,
    members: Controllers,
    output: str,
) -> None:
    """Print the records of one partition of TOPIC; JSON and YAML have a document for each.

    Fetches from an agent what Kafka's consumers would get, up to the end that the log has at first: with --committed,
    up to the last stable offset. Markers take offsets, so --tail may show fewer records. For the quorum's own log, see
    `log dump`.
    """
    if start is not None and tail is not None:
        raise click.UsageError("--from and --tail cannot be given together")
    log = _partition(members, topic, partition)
    end = log.last_stable if committed else log.end
    first = _first(log, end, start, tail)
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    if first >= end:
        _print(iter(()), output)
        return
    with contextlib.closing(agent.connect(members)) as client:
        source = Source(client, topic, partition, level, members.timeout)
        wanted = (one for one in source.records(first, end) if markers or one.type == "RECORD")
        following = _print(wanted, output, limit or tail or DEFAULT_LIMIT)
    if following is not None:
        click.echo(f"more: --from {following}", err=True)


def _partition(members: Controllers, topic: str, partition: int) -> PartitionDescription:
    page = described_page(members, topic, partition - 1, 1)
    if not page.partitions:
        reason = f"topic {topic} has no partition {partition}: the last one is {page.topic.partitions - 1}"
        raise CommandError(reason, ExitCode.REFUSED)
    return page.partitions[0]


def _first(log: PartitionDescription, end: int, start: int | None, tail: int | None) -> int:
    if tail is not None:
        return max(log.start, end - tail)
    if start is not None and not log.start <= start <= log.end:
        raise CommandError(f"there is no offset {start}: the log goes from {log.start} to {log.end}", ExitCode.REFUSED)
    return log.start if start is None else start


def _print(records: Iterator[LogRecord], output: str, limit: int = 0) -> int | None:
    """Print at most `limit` records; the offset of the next one, if there is one."""
    if output == TABLE:
        return _print_table(records, limit)
    for count, one in enumerate(records):
        if count == limit:
            return one.offset
        print_document(_document(one), output, one_of_many=True)
    return None


def _print_table(records: Iterator[LogRecord], limit: int) -> int | None:
    rows: list[tuple[object, ...]] = []
    following = failure = None
    try:
        for one in records:
            if len(rows) == limit:
                following = one.offset
                break
            rows.append(_row(one))
    except CommandError as error:
        failure = error
    if rows or failure is None:
        print_table(COLUMNS, rows)
    if failure is not None:
        raise failure
    return following


def _row(one: LogRecord) -> tuple[object, ...]:
    is_record = one.type == "RECORD"
    return (
        one.offset,
        one.type,
        _time(one.timestamp_ms),
        None if one.producer_id < 0 else one.producer_id,
        None if one.producer_id < 0 else one.producer_epoch,
        "yes" if one.transactional else "no",
        _cut(_told(one.key)) if is_record else None,
        _cut(_told(one.value)) if is_record else None,
        _cut(", ".join(map(_header, one.headers))) if one.headers else None,
    )


def _time(timestamp_ms: int) -> str:
    """As ISO 8601, or the number itself if no calendar has it."""
    try:
        moment = dt.datetime.fromtimestamp(timestamp_ms / 1000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _header(one: Header) -> str:
    value = _told(one.value)
    return f"{_told(one.key)}={'-' if value is None else value}"


def _told(data: bytes | None) -> str | None:
    if data is None:
        return None
    return text if (text := _text(data)) is not None else f"0x{data.hex()}"


def _cut(text: str | None) -> str | None:
    if text is None or len(text) <= SHOWN_CHARACTERS:
        return text
    return f"{text[:SHOWN_CHARACTERS]}… ({len(text)} characters)"


def _text(data: bytes) -> str | None:
    """As text, if that can be printed on one line."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


def _document(one: LogRecord) -> ShownRecord:
    headers = [ShownHeader(_shown(each.key), _shown(each.value)) for each in one.headers]
    return ShownRecord(
        one.offset,
        one.type,
        one.timestamp_ms,
        one.producer_id,
        one.producer_epoch,
        one.transactional,
        _shown(one.key),
        _shown(one.value),
        headers,
    )


def _shown(data: bytes | None) -> Shown | None:
    if data is None:
        return None
    text = _text(data)
    return Shown(base64=data) if text is None else Shown(text)
