"""What is fuzzed: a decoder behind one call, what it may raise, and valid inputs to start from."""

from __future__ import annotations

import gc
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import FrameType
from typing import Any, Self

from tests.fuzz.mutator import Parts


class Violation(Exception):  # noqa: N818 - the finding itself
    """A target did what no input may make it do."""


class Target(ABC):
    """One decoder. `refusals`: what `feed` may raise for malformed input; anything else is a violation.

    `steps` and `steps_per_byte`: bound on the lines of Python that one input may run.
    """

    name: str
    refusals: tuple[type[Exception], ...]
    corpus: Sequence[Parts]
    steps: int
    steps_per_byte: int

    @abstractmethod
    def assemble(self, parts: Parts) -> bytes:
        """The input made of `parts`, with lengths and checksums as they should be."""

    @abstractmethod
    def feed(self, data: bytes) -> None:
        """Decode `data` and check what came of it. The same input always takes the same course."""

    def close(self) -> None:  # noqa: B027 - most targets hold nothing that has to be given back
        """Give back sockets and loops."""


class StepCount:
    """Counts the lines of Python that run inside, in `steps`. Raises Violation once they are more than `limit`.

    The garbage collector waits meanwhile: it would run finalizers of whatever else the process has left behind, whose
    lines are not the input's.
    """

    def __init__(self, limit: int) -> None:
        self.steps = 0
        self._limit = limit
        self._before: Any = None
        self._collecting = True

    def __enter__(self) -> Self:
        self._before, self._collecting = sys.gettrace(), gc.isenabled()
        gc.disable()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(self._before)
        if self._collecting:
            gc.enable()

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.steps += 1
            if self.steps > self._limit:
                raise Violation(f"more than {self._limit} steps, now in {frame.f_code.co_qualname}:{frame.f_lineno}")
        return self._trace
