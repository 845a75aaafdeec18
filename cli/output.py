"""Output for people (tables) and for programs (JSON): data goes to stdout, everything else to stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click
import msgspec

from pidkeeper.protocol.founding import Succession

Command = TypeVar("Command", bound=Callable[..., Any])


def output_option(command: Command) -> Command:
    """Add `--output table|json`."""
    return click.option(
        "--output", "-o", type=click.Choice(["table", "json"]), default="table", help="Output format. Default: table."
    )(command)


def print_json(value: Any) -> None:
    """Print a value (or msgspec Struct) as one indented JSON document."""
    click.echo(msgspec.json.format(msgspec.json.encode(value)).decode())


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Print rows under their column names. Cells that are not text stand at the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    rows = [list(row) for row in rows]
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for position, column in enumerate(columns):
        texts = all(isinstance(row[position], str) for row in rows)
        table.add_column(column, justify="left" if texts else "right", no_wrap=True)
    for row in rows:
        table.add_row(*("-" if cell is None else str(cell) for cell in row))
    _console(Console).print(table)


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Print name-value pairs, one a line."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, "-" if value is None else str(value))
    _console(Console).print(table)


def described_succession(succession: Succession | None) -> list[tuple[str, object]]:
    """Whose place a quorum took, as facts; nothing if it took nobody's."""
    return [] if succession is None else [("Predecessor", succession.predecessor), ("Floor", succession.floor)]


def _console(console: Callable[..., Any]) -> Any:
    # A pipe has no width: without one, columns would be cut at 80 characters. The longest name takes 249.
    import sys

    # What is printed is data: rich would leave out what it takes for markup, as in a transactional id "[a]".
    return console(markup=False, emoji=False, width=None if sys.stdout.isatty() else 500)
