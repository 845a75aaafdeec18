"""Options that several commands of `pidkeeper audit` have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from cli.output import Command

DEFAULT_OUT: Final = Path("build/audit")


def out_option(help_text: str) -> Callable[[Command], Command]:
    """Add `--out DIR`."""
    return click.option(
        "--out",
        default=DEFAULT_OUT,
        show_default=True,
        type=click.Path(path_type=Path, file_okay=False),
        help=help_text,
    )
