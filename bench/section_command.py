"""A section of the benchmark as a command of its own: it prints its rows, and leaves nothing behind."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import click

from bench.machine import Bystanders, machine_facts
from bench.report import Report, Row, print_report
from pidkeeper.cli.local_cluster import import_root


class Section(Protocol):
    """What measures. `violations` are broken promises, `notes` what a reader has to know."""

    violations: list[str]
    notes: list[str]

    def measure(self) -> list[Row]:
        """The rows."""
        ...


def run_section(section: Callable[[Path, bool], Section]) -> None:
    """The command that measures `section(directory, quick)`."""

    @click.command()
    @click.option("--quick", is_flag=True, help="A small and short measurement.")
    def command(quick: bool) -> None:
        """Measure one section, and print it."""
        measure_and_print(lambda directory: section(directory, quick))

    command()


def measure_and_print(section: Callable[[Path], Section]) -> None:
    """Measure in a directory that is gone afterwards. Ends the process, with 1 if a promise was broken."""
    build = import_root() / "build"
    build.mkdir(exist_ok=True)
    bystanders = Bystanders()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=build) as directory:
        measured = section(Path(directory))
        machine = machine_facts(Path(directory))
        rows = measured.measure()
    busy = {"cores busy with other processes": f"{bystanders.cores():.2f}"}
    print_report(
        Report(machine=machine | busy, settings={}, rows=rows, violations=measured.violations, notes=measured.notes)
    )
    sys.exit(1 if measured.violations else 0)
