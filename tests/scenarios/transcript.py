"""The form of a transcript: prose, commands, and the trace that each command printed.

A line that starts with `> ` is a command, the lines under it that are indented by four blanks are its trace, and all
else is prose. Rewriting a transcript replaces traces and keeps every other line as it is.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable

import msgspec

COMMAND = "> "
INDENT = "    "


class ScenarioError(Exception):
    """A transcript that cannot be run: says which line, what is wrong with it and what would be right."""


class Args:
    """The words after a command: plain ones in order, and options written `key=value` or as a bare flag."""

    def __init__(self, text: str) -> None:
        words = text.split()
        self.verb = words[0] if words else ""
        self.words = [word for word in words[1:] if "=" not in word]
        self._options = dict(word.split("=", 1) for word in words[1:] if "=" in word)

    def option(self, key: str) -> str | None:
        """The text of an option, None if it is not there; an option that nobody asks for is an error."""
        return self._options.pop(key, None)

    def number(self, key: str, default: int) -> int:
        """An option that is a whole number."""
        text = self.option(key)
        return default if text is None else parse_int(text)

    def flag(self, word: str) -> bool:
        """Whether the bare word is there; it is taken out of `words`."""
        if word not in self.words:
            return False
        self.words.remove(word)
        return True

    def numbers(self) -> list[int]:
        """All plain words, as numbers."""
        return [parse_int(word) for word in self.words]

    def finish(self) -> None:
        """Raise ScenarioError if an option was left over."""
        if self._options:
            raise ScenarioError(f"{self.verb} has no option {', '.join(sorted(self._options))}")


class Line(msgspec.Struct, frozen=True):
    """A line of prose, or a command with its trace left out."""

    number: int
    text: str
    is_command: bool


def parse_int(text: str) -> int:
    """A whole number, not negative; raises ScenarioError for anything else."""
    if not text.isdigit():
        raise ScenarioError(f"{text!r} is not a number")
    return int(text)


def parse(text: str) -> list[Line]:
    """The lines of a transcript without the traces; raises ScenarioError for a trace that belongs to no command."""
    lines: list[Line] = []
    under_command = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(INDENT):
            if not under_command:
                raise ScenarioError(f"line {number}: a trace without a command above it; prose is not indented")
            continue
        under_command = line.startswith(COMMAND)
        lines.append(Line(number, line, under_command))
    return lines


def rerun(text: str, execute: Callable[[str], list[str]]) -> str:
    """The transcript with the traces that `execute` returns, called for each command in order."""
    out: list[str] = []
    for line in parse(text):
        out.append(line.text)
        if line.is_command:
            try:
                trace = execute(line.text.removeprefix(COMMAND))
            except ScenarioError as error:
                raise ScenarioError(f"line {line.number}, {line.text!r}: {error}") from error
            out += [INDENT + entry for entry in trace]
    return "\n".join(out) + "\n"


def difference(golden: str, actual: str) -> str:
    """What changed, as a unified diff; empty if nothing did."""
    return "\n".join(difflib.unified_diff(golden.splitlines(), actual.splitlines(), "golden", "actual", "", "", 4, ""))
