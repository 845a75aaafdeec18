"""Answers that are worked out once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, TypeVar

Question = TypeVar("Question", bound=Hashable)
Answer = TypeVar("Answer")

MOST_KEPT: Final = 1 << 20
"""Answers in one table. They are all forgotten then: each is found again in microseconds."""


class Table(dict[Question, Answer]):
    """Answers by question. A question that is new is passed on to `work_out`."""

    def __init__(self, work_out: Callable[[Question], Answer]) -> None:
        super().__init__()
        self._work_out = work_out

    def __missing__(self, question: Question) -> Answer:
        answer = self._work_out(question)
        if len(self) == MOST_KEPT:
            self.clear()
        self[question] = answer
        return answer
