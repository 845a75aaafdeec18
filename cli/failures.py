"""Exit codes and the one way in which a command fails: a clear line on stderr, no stack trace."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Final

import click

OF_KAFKA: Final = {"meta.properties": "the log directory of a Kafka broker"}
OF_A_MEMBER: Final = {"meta.json": "the data directory of a member"}
"""By which file a directory is known as somebody's, and whose it is then."""


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


class RefusedError(CommandError):
    """A controller refuses: `code` is the name of the ErrorCode."""

    def __init__(self, message: str, exit_code: ExitCode, code: str) -> None:
        super().__init__(message, exit_code)
        self.code = code


class NobodyError(CommandError):
    """No controller answered, which may pass by itself.

    It ends with UNREACHABLE, but with NOT_AUTHORISED if `misnamed`: if no address that was given is a controller's.
    """

    def __init__(self, message: str, *, misnamed: bool = False) -> None:
        super().__init__(message, ExitCode.NOT_AUTHORISED if misnamed else ExitCode.UNREACHABLE)
        self.misnamed = misnamed


def failure_at(place: Path, error: Exception) -> str:
    """What went wrong in a directory, or with a file, and what to do about it."""
    if not isinstance(error, OSError):
        return str(error) if str(place) in str(error) else f"{place}: {error}"
    reason = told(error) if error.filename else f"{place}: {told(error)}"
    if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError):
        return f"{reason}; is {place} the right one?"
    if isinstance(error, PermissionError):
        return f"{reason}; run this as the user whose files these are"
    return reason


def told(error: OSError) -> str:
    """What the system says of a file, without its numbers."""
    if error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"


def check_not_anothers(directory: Path, others: dict[str, str]) -> None:
    """Raise CommandError (REFUSED) if a directory that is to be written to is one of `others`, such as OF_KAFKA."""
    for name, whose in others.items():
        if (directory / name).exists():
            raise CommandError(f"{directory} has {name}: it is {whose}; name another directory", ExitCode.REFUSED)
