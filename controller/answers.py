"""Where answers go, and the part of an event loop that deciding needs; the simulator has its own of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from pidkeeper.protocol.errors import ErrorCode, RequestError


class Answer(Protocol):
    """Where an answer goes. `asyncio.Future` is one."""

    def done(self) -> bool:
        """Whether it is answered, or nobody waits for it any more."""

    def set_result(self, result: Any, /) -> None:
        """Answer."""

    def set_exception(self, exception: RequestError, /) -> None:
        """Refuse."""


class Loop(Protocol):
    """The part of an event loop that deciding needs."""

    def create_future(self) -> Any:
        """A new Answer that a caller can wait for."""

    def call_soon(self, callback: Callable[[], None], /) -> object:
        """Call back after everything that has already arrived."""


class Callback:
    """An answer that goes to a function: `done(result, refusal)`, one of them None, is called once."""

    def __init__(self, done: Callable[[Any, RequestError | None], None]) -> None:
        self._done = done

    def done(self) -> bool:
        """Somebody always waits for it."""
        return False

    def set_result(self, result: Any, /) -> None:
        """Answer."""
        self._done(result, None)

    def set_exception(self, exception: RequestError, /) -> None:
        """Refuse."""
        self._done(None, exception)


def release(answer: Answer, outcome: Any) -> None:
    """Give `outcome`, a refusal if it is a RequestError, to whoever still waits."""
    if answer.done():  # the caller hung up
        return
    if isinstance(outcome, RequestError):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


def not_controller() -> RequestError:
    """The refusal of a member that does not lead."""
    return RequestError(ErrorCode.NOT_CONTROLLER)
