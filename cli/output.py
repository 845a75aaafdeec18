"""Output for people (tables) and for programs (JSON, YAML): data goes to stdout, everything else to stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import click
import msgspec

from pidkeeper.protocol.founding import Succession, founding_name

TABLE: Final = "table"
JSON: Final = "json"
YAML: Final = "yaml"

SCHEMA_VERSION: Final = 1
"""Of the documents for programs. It rises when a field goes away or changes its meaning, not when one is added."""

FOLDED_FROM: Final = 20
"""Characters of a cell up to which its column keeps its width: a producer ID of 19 digits, an address."""

Command = TypeVar("Command", bound=Callable[..., Any])


def output_option(command: Command) -> Command:
    """Add `--output table|json|yaml`."""
    return click.option(
        "--output",
        "-o",
        type=click.Choice([TABLE, JSON, YAML]),
        default=TABLE,
        show_default=True,
        help="Output format.",
    )(command)


def print_document(value: Any, output: str, *, one_of_many: bool = False) -> None:
    """Print a value (or msgspec Struct) as one document in JSON or YAML, with its `schema_version`.

    A list becomes the `items` of an object. `one_of_many`: JSON on one line, YAML with the mark that parts documents.
    """
    plain = msgspec.to_builtins(value, str_keys=True)
    document = {"schema_version": SCHEMA_VERSION, **({"items": plain} if isinstance(plain, list) else plain)}
    if output == YAML:
        text = msgspec.yaml.encode(document).decode()
        click.echo(f"---\n{text}" if one_of_many else text, nl=False)
    else:
        line = msgspec.json.encode(document)
        click.echo((line if one_of_many else msgspec.json.format(line)).decode())


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Print rows under their column names. Cells that are not text stand at the right.

    On a narrow terminal long cells are folded: names and numbers are never cut.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    rows = [list(row) for row in rows]
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for position, column in enumerate(columns):
        cells = [row[position] for row in rows if row[position] is not None]
        texts = bool(cells) and all(isinstance(cell, str) for cell in cells)
        table.add_column(
            column,
            justify="left" if texts else "right",
            no_wrap=max((len(str(cell)) for cell in cells), default=0) <= FOLDED_FROM,
            overflow="fold",
            min_width=len(column),
        )
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
    if succession is None:
        return []
    return [("Predecessor", founding_name(succession.predecessor)), ("Floor", succession.floor)]


def _console(console: Callable[..., Any]) -> Any:
    # A pipe has no width: without one, columns would be cut at 80 characters. The longest name takes 249.
    import sys

    # What is printed is data: rich would leave out what it takes for markup, as in a transactional id "[a]".
    return console(markup=False, emoji=False, width=None if sys.stdout.isatty() else 500)
