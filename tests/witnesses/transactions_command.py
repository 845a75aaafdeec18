"""Kafka's TransactionsCommand, asked about one transaction that was committed and one that is under way."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import confluent_kafka

from tests.clients.record_witnesses import SECONDS, Record, confluent_producer, confluent_sent
from tests.witnesses.judgement import Known, Outcome, Outcomes, passed
from tests.witnesses.places import Place
from tests.witnesses.programs import observed, refusal, tool

WITNESS: Final = "TransactionsCommand"
TOPIC: Final = "transactions"
COMMITTED: Final = "committed"
OPEN: Final = "open"

_BY_CONSOLE: Final = "served by `pidkeeper transactions` alone"
KNOWN: Final = {
    "list": Known(f"agents do not serve ListTransactions: {_BY_CONSOLE}", "LIST_TRANSACTIONS"),
    "describe": Known(f"agents do not serve DescribeTransactions: {_BY_CONSOLE}", "DESCRIBE_TRANSACTIONS"),
    "describe an unknown one": Known("agents do not serve DescribeTransactions", "node", ours="passed"),
    "describe producers": Known("agents do not serve DescribeProducers", "DESCRIBE_PRODUCERS"),
    "find hanging": Known("agents do not serve DescribeProducers; nothing can hang here", "DESCRIBE_PRODUCERS"),
    "abort": Known(f"agents do not serve WriteTxnMarkers: {_BY_CONSOLE}", "DESCRIBE_PRODUCERS"),
}


def outcomes(place: Place) -> Outcomes:
    """Of each subcommand."""
    producers = [_transaction(place, name) for name in (COMMITTED, OPEN)]
    producers[0].commit_transaction(SECONDS)
    cases: dict[str, Callable[[], Outcome]] = {
        "list": lambda: passed(str(sorted(set(_listed(_command(place, "list")))))),
        "describe": lambda: passed(_described(_command(place, "describe", "--transactional-id", OPEN))),
        "describe an unknown one": lambda: passed(
            refusal(_command(place, "describe", "--transactional-id", "unknown", code=1)).split("Enable")[0]
        ),
        "describe producers": lambda: passed(
            str(len(_command(place, "describe-producers", "--topic", TOPIC, "--partition", "0").splitlines()))
        ),
        "find hanging": lambda: passed(_command(place, "find-hanging", "--topic", TOPIC)),
        "abort": lambda: passed(_command(place, "abort", "--topic", TOPIC, "--partition", "0", "--start-offset", "1")),
    }
    return {name: observed(case) for name, case in cases.items()}


def _transaction(place: Place, transactional_id: str) -> confluent_kafka.Producer:
    producer = confluent_producer(place.bootstrap, transactional_id)
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    confluent_sent(producer, TOPIC, [Record(0, 1, "key", transactional_id, ("header", "x"))])
    return producer


def _command(place: Place, *arguments: str, code: int = 0) -> str:
    return tool("TransactionsCommand", "--bootstrap-server", place.bootstrap, *arguments, code=code)


def _listed(text: str) -> list[tuple[str, str]]:
    """Id and state of those that are of this witness."""
    return re.findall(rf"^({COMMITTED}|{OPEN})\s+\d+\s+\d+\s+(\w+)", text, re.MULTILINE)


def _described(text: str) -> str:
    return str(re.findall(r"Ongoing|transactions-0", text))
