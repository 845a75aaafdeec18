"""A seed step by step on a terminal: the trace stops after each line until somebody says how to go on."""

from __future__ import annotations

from typing import Final, TextIO

HELP: Final = "Enter: one step; a number: so many; text: to the next line with it; c: to the end; q: quit"


class Quit(BaseException):
    """Somebody has seen enough. Not an Exception: nothing in between may take it for a fault."""


class Stepper:
    """Takes the lines of a trace, shows them on `out`, and reads from `answers` how to go on."""

    def __init__(self, answers: TextIO, out: TextIO) -> None:
        self._answers = answers
        self._out = out
        self._left: int | None = 1
        self._until: str | None = None
        print(HELP, file=out)

    def __call__(self, line: str) -> None:
        """Show a line; stop behind it if its time has come. Raises Quit."""
        print(line, file=self._out)
        if self._until is not None:
            if self._until not in line:
                return
        elif self._left is None:
            return
        else:
            self._left -= 1
            if self._left > 0:
                return
        self._ask()

    def _ask(self) -> None:
        print("> ", end="", file=self._out, flush=True)
        answer = self._answers.readline()
        if not answer:
            raise Quit
        self._left, self._until = 1, None
        match answer.strip():
            case "":
                return
            case "q":
                raise Quit
            case "c":
                self._left = None
            case number if number.isdecimal() and int(number):
                self._left = int(number)
            case text:
                self._until = text
