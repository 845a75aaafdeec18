"""`pidkeeper transactions`: what kafka-transactions.sh shows and does, asked of the quorum (KIP-664)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

import click

from pidkeeper.cli.controllers import Controllers, asks_controllers
from pidkeeper.cli.output import TABLE, output_option, print_document, print_facts, print_table
from pidkeeper.cli.quorum import describe_best
from pidkeeper.cli.watch import watch_option
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.messages import (
    AbortTransactionRequest,
    TransactionDescription,
    TransactionResponse,
    TransactionsPage,
)

STATES: Final = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
UNFINISHED: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
PAGE: Final = 1000
PRODUCER_ID: Final = click.IntRange(0, MAX_PRODUCER_ID)
PRODUCER_EPOCH: Final = click.IntRange(0, 2**15 - 1)


@click.group()
def transactions() -> None:
    """List, describe and abort transactions, and find hanging ones."""


@transactions.command("list")
@click.option("--state", type=click.Choice(STATES, case_sensitive=False), help="Only ids in this state.")
@click.option("--producer-id", type=PRODUCER_ID, help="Only the transactional id that has this producer ID.")
@click.option(
    "--duration-filter", type=click.IntRange(0), metavar="MS", help="Only transactions open for longer than this."
)
@asks_controllers
@output_option
@watch_option
def list_(
    state: str | None,
    producer_id: int | None,
    duration_filter: int | None,
    members: Controllers,
    output: str,
) -> None:
    """List transactional ids, sorted by name."""
    found = list(_all(members, state, producer_id))
    if duration_filter is not None:
        now_ms = _now_ms()
        found = [one for one in found if one.start_ms is not None and now_ms - one.start_ms > duration_filter]
    if output != TABLE:
        print_document(found, output)
        return
    coordinator = describe_best(members).leader_id
    print_table(
        ("TransactionalId", "Coordinator", "ProducerId", "TransactionState"),
        [(one.transactional_id, coordinator, one.producer_id, one.state) for one in found],
    )


@transactions.command()
@click.argument("transactional_id")
@asks_controllers
@output_option
def describe(transactional_id: str, members: Controllers, output: str) -> None:
    """Describe TRANSACTIONAL_ID and its current transaction, if it has one."""
    query = f"transactional_id={quote(transactional_id, safe='')}"
    one = members.ask(TransactionDescription, "GET", f"/v1/transactions/describe?{query}")
    if output != TABLE:
        print_document(one, output)
        return
    print_facts(
        [
            ("CoordinatorId", describe_best(members).leader_id),
            ("TransactionalId", one.transactional_id),
            ("ProducerId", one.producer_id),
            ("ProducerEpoch", one.producer_epoch),
            ("TransactionState", one.state),
            ("TransactionTimeoutMs", one.timeout_ms),
            ("CurrentTransactionStartTimeMs", one.start_ms),
            ("TransactionDurationMs", None if one.start_ms is None else max(0, _now_ms() - one.start_ms)),
            ("TopicPartitions", ",".join(f"{topic}-{number}" for topic, number in _partitions(one))),
        ]
    )


@transactions.command()
@click.argument("transactional_id")
@click.option(
    "--producer-id", type=PRODUCER_ID, help="With --producer-epoch: abort only a transaction of this producer."
)
@click.option("--producer-epoch", type=PRODUCER_EPOCH, help="With --producer-id.")
@asks_controllers
@output_option
def abort(
    transactional_id: str, producer_id: int | None, producer_epoch: int | None, members: Controllers, output: str
) -> None:
    """Abort the current transaction of TRANSACTIONAL_ID and fence its producer."""
    if (producer_id is None) != (producer_epoch is None):
        raise click.UsageError("--producer-id and --producer-epoch must be given together")
    request = AbortTransactionRequest(
        transactional_id,
        -1 if producer_id is None else producer_id,
        -1 if producer_epoch is None else producer_epoch,
    )
    answer = members.ask(TransactionResponse, "POST", "/v1/transactions/abort", request)
    if output != TABLE:
        print_document(answer, output)
    else:
        click.echo(f"the transaction of {transactional_id} is aborted, and its producer is fenced")


@transactions.command("find-hanging")
@click.option(
    "--max-transaction-timeout",
    default=15,
    show_default=True,
    type=click.IntRange(0),
    metavar="MINUTES",
    help="Longest time that a transaction is allowed to take.",
)
@asks_controllers
@output_option
def find_hanging(max_transaction_timeout: int, members: Controllers, output: str) -> None:
    """Find transactions that are open for longer than allowed, one row per partition."""
    now_ms = _now_ms()
    latest = now_ms - max_transaction_timeout * 60_000
    hanging = [
        one
        for state in UNFINISHED
        for one in _all(members, state, None)
        if one.start_ms is not None and one.start_ms < latest
    ]
    if output != TABLE:
        print_document(hanging, output)
        return
    term = describe_best(members).term
    print_table(
        (
            "Topic",
            "Partition",
            "ProducerId",
            "ProducerEpoch",
            "CoordinatorEpoch",
            "StartOffset",
            "LastTimestamp",
            "Duration(min)",
        ),
        [
            # Of partitions that agents keep, `topics describe` has the offsets; the quorum knows no others.
            (topic, number, one.producer_id, one.producer_epoch, term, None, one.update_ms, _minutes(one, now_ms))
            for one in hanging
            for topic, number in _partitions(one)
        ],
    )


def _all(members: Controllers, state: str | None, producer_id: int | None) -> Iterator[TransactionDescription]:
    """All pages of the list."""
    filters = "" if state is None else f"&state={state}"
    filters += "" if producer_id is None else f"&producer_id={producer_id}"
    after: str | None = ""
    while after is not None:
        path = f"/v1/transactions?after={quote(after, safe='')}&limit={PAGE}{filters}"
        page = members.ask(TransactionsPage, "GET", path)
        yield from page.transactions
        after = page.next_after


def _partitions(one: TransactionDescription) -> Iterator[tuple[str, int]]:
    return ((topic.topic, number) for topic in one.topics for number in topic.partitions)


def _minutes(one: TransactionDescription, now_ms: int) -> int:
    return 0 if one.start_ms is None else (now_ms - one.start_ms) // 60_000


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
