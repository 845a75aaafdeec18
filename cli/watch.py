"""`--watch`: print what a command prints again and again, until Ctrl-C."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import io
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import click
import msgspec

from pidkeeper.cli.failures import NobodyError
from pidkeeper.cli.output import JSON, TABLE, YAML

DEFAULT_SECONDS: Final = 2
SECONDS: Final = click.FloatRange(0.1, 86_400)

Show = Callable[[str], None]
"""Shows what the command has printed; nobody keeps it."""


def watch_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--watch [SECONDS]` to a command that has `--output`. It goes below the decorators of all other options."""

    @functools.wraps(command)
    def watched(*args: Any, watch: float | None, **rest: Any) -> Any:
        look = functools.partial(command, *args, **rest)
        return look() if watch is None else _repeat(look, watch, rest["output"])

    return click.option(
        "--watch",
        is_flag=False,
        flag_value=DEFAULT_SECONDS,
        type=SECONDS,
        callback=_number,
        metavar="[SECONDS]",
        help=f"Print again every so many seconds, {DEFAULT_SECONDS} by default, until Ctrl-C. "
        "Goes on while the quorum is unhealthy or does not answer.",
    )(watched)


def _number(_: click.Context, __: click.Parameter, seconds: float | None) -> float | None:
    """A range lets pass what is neither below nor above it."""
    if seconds is not None and math.isnan(seconds):
        raise click.BadParameter("nan is no number of seconds")
    return seconds


def _repeat(look: Callable[[], Any], seconds: float, output: str) -> None:
    """Show what `look` prints, for ever. Raises what it raises, but for what may pass by itself."""
    at_terminal = output == TABLE and sys.stdout.isatty()
    with _screen(seconds) if at_terminal else contextlib.nullcontext(functools.partial(_print, output)) as show:
        while True:
            show(_looked(look, at_terminal=at_terminal))
            time.sleep(seconds)


def _looked(look: Callable[[], Any], *, at_terminal: bool) -> str:
    """What one look printed. At a terminal all of it is shown in one place, errors too."""
    printed = _Printed(at_terminal=at_terminal)
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed if at_terminal else sys.stderr):
        try:
            look()
        except click.exceptions.Exit:
            pass  # An unhealthy quorum is what one watches for.
        except NobodyError as error:
            click.echo(f"{_now()}: {error.format_message()}", err=True)
    return printed.getvalue()


class _Printed(io.StringIO):
    """Text that is meant for a terminal, or not: tables are as wide as it, and have its styles."""

    def __init__(self, *, at_terminal: bool) -> None:
        super().__init__()
        self._at_terminal = at_terminal

    def isatty(self) -> bool:
        """Whether it is."""
        return self._at_terminal


@contextlib.contextmanager
def _screen(seconds: float) -> Iterator[Show]:
    """Each look in the place of the one before it, cut at the height of the terminal."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    title = f"every {seconds:g} s: {click.get_current_context().command_path}"
    live = Live(console=Console(), auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
    with live:
        yield lambda text: live.update(Group(Text(f"{title}  {_now()}"), Text.from_ansi(text)), refresh=True)


def _print(output: str, text: str) -> None:
    """One look after the other: JSON on one line, YAML with the mark that parts documents, tables with their time."""
    if not text:
        return
    if output == JSON:
        text = msgspec.json.format(text, indent=-1) + "\n"
    else:
        text = f"---\n{text}" if output == YAML else f"{_now()}\n{text}\n"
    click.echo(text, nl=False)
    sys.stdout.flush()


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
