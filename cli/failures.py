"""Exit codes and the one way in which a command fails: a clear line on stderr, no stack trace."""

from __future__ import annotations

import enum

import click


class ExitCode(enum.IntEnum):
    """What the exit code of any command means."""

    GOOD = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_AUTHORISED = 4
    REFUSED = 5
    INCOMPLETE = 6
    UNHEALTHY = 10
    INTERRUPTED = 130


class CommandError(click.ClickException):
    """Ends the command with `message` on stderr and `exit_code`."""

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.exit_code = int(exit_code)  # type: ignore[misc]
