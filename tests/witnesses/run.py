"""`make witnesses`: each witness against Kafka's broker and then against agents. Writes build/witnesses.json."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tests.support.kafka_broker import why_unavailable
from tests.witnesses import (
    franz_go,
    kafka_commands,
    kafka_python,
    kafka_streams,
    librdkafka,
    places,
    transactions_command,
    verifiable_consumer,
    verifiable_producer,
)
from tests.witnesses.judgement import Known, Outcomes, Verdict, faults, judge, left_out

OUTPUT: Final = Path("build/witnesses.json")
WIDTH: Final = 160
"""Of the table: a case and why it differs in one line each."""

STYLES: Final = {"same": "green", "known": "yellow", "left out": "dim", "differs": "bold red"}


class Witness(NamedTuple):
    """One suite or tool: what runs it, what is stated to differ, what is not run, and why it cannot be here."""

    name: str
    outcomes: Callable[[places.Place], Outcomes]
    known: Mapping[str, Known]
    left_out: Mapping[str, str]
    why_unavailable: Callable[[], str | None]


WITNESSES: Final = {
    "commands": Witness(kafka_commands.WITNESS, kafka_commands.outcomes, kafka_commands.KNOWN, {}, why_unavailable),
    "transactions": Witness(
        transactions_command.WITNESS, transactions_command.outcomes, transactions_command.KNOWN, {}, why_unavailable
    ),
    "producer": Witness(verifiable_producer.WITNESS, verifiable_producer.outcomes, {}, {}, why_unavailable),
    "consumer": Witness(verifiable_consumer.WITNESS, verifiable_consumer.outcomes, {}, {}, why_unavailable),
    "kafka-python": Witness(
        kafka_python.WITNESS,
        kafka_python.outcomes,
        kafka_python.KNOWN,
        kafka_python.LEFT_OUT,
        kafka_python.why_unavailable,
    ),
    "streams": Witness(kafka_streams.WITNESS, kafka_streams.outcomes, {}, {}, kafka_streams.why_unavailable),
    "franz-go": Witness(franz_go.WITNESS, franz_go.outcomes, franz_go.KNOWN, {}, franz_go.why_unavailable),
    "librdkafka": Witness(librdkafka.WITNESS, librdkafka.outcomes, librdkafka.KNOWN, {}, librdkafka.why_unavailable),
}


class Report(msgspec.Struct, frozen=True):
    """`counts`: verdicts by kind. `missing`: witnesses that are not here, and why. `seconds`: of each at both."""

    counts: dict[str, int]
    missing: dict[str, str]
    seconds: dict[str, dict[str, float]]
    verdicts: list[Verdict]


def run(chosen: Sequence[str], directory: Path) -> Report:
    """Each of `chosen` at both places, one place after the other: they share the machine with nothing else."""
    missing = {name: why for name in chosen if (why := WITNESSES[name].why_unavailable()) is not None}
    here = [name for name in chosen if name not in missing]
    seconds: dict[str, dict[str, float]] = {name: {} for name in here}
    found: dict[str, list[Outcomes]] = {name: [] for name in here}
    started: list[AbstractContextManager[places.Place]] = [
        places.kafka(directory / "kafka"),
        places.ours(directory / "ours"),
    ]
    for start in started if here else []:
        with start as place:
            for name in here:
                began = time.monotonic()
                found[name].append(WITNESSES[name].outcomes(place))
                seconds[name][place.name] = round(time.monotonic() - began, 1)
                print(f"{WITNESSES[name].name} at {place.name}: {seconds[name][place.name]:.0f} s", file=sys.stderr)
    verdicts: list[Verdict] = []
    for name in here:
        one = WITNESSES[name]
        kafka, ours = found[name]
        verdicts += judge(one.name, kafka, ours, one.known) + left_out(one.name, one.left_out)
    return Report(dict(Counter(one.kind for one in verdicts)), missing, seconds, verdicts)


def print_report(report: Report, console: Console) -> None:
    """A row for each case, then what is wrong in full."""
    table = Table("witness", "case", "result", "why", box=box.SIMPLE_HEAD)
    for one in report.verdicts:
        table.add_row(one.witness, Text(one.name), Text(one.kind, STYLES[one.kind]), Text(one.why))
    console.print(table)
    for one in faults(report.verdicts):
        for place, outcome in (("Kafka", one.kafka), ("pidkeeper", one.ours)):
            console.print(Text(f"{one.witness}, {one.name}, {place}: {outcome.state} {outcome.shown}"))
    for name, why in report.missing.items():
        console.print(Text(f"not run: {name}: {why}"))
    console.print(", ".join(f"{count} {kind}" for kind, count in sorted(report.counts.items())))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=WITNESSES, action="append", help="this witness alone; may be repeated")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pidkeeper-witnesses-") as directory:
        report = run(options.only or list(WITNESSES), Path(directory))
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    print_report(report, Console(width=WIDTH))
    if report.missing:
        return 2
    return 1 if faults(report.verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
