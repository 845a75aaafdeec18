"""What a member's code takes for the event loop, and its threads: calls, tasks and jobs as events of the world.

The keeper, the ledger and the storage worker are the product's own. They ask asyncio for the running loop and find
this one, which knows just the few methods that they use.
"""

from __future__ import annotations

from asyncio import _set_running_loop
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Final, cast

from pidkeeper.protocol.errors import RequestError

if TYPE_CHECKING:
    from tests.simulation.process import Process


class Answer:
    """Stands in for the future of a request; `callback(result, error)` is called once."""

    __slots__ = ("callback", "result")

    def __init__(self) -> None:
        self.callback: Callable[[Any, RequestError | None], None] | None = _ignore
        self.result: Any = None

    def listen(self, callback: Callable[[Any, RequestError | None], None]) -> None:
        """Call back with the answer, at once if it is there. A refusal that nobody waited for is lost."""
        if self.done():
            callback(self.result, None)
        else:
            self.callback = callback

    def done(self) -> bool:
        """Whether it is answered."""
        return self.callback is None

    def set_result(self, result: Any) -> None:
        """Answer."""
        self._answer(result, None)

    def set_exception(self, exception: RequestError) -> None:
        """Refuse."""
        self._answer(None, exception)

    def abandon(self) -> None:
        """The process is gone, so no answer comes any more."""
        self.callback = _ignore

    def _answer(self, result: Any, error: RequestError | None) -> None:
        callback, self.callback = self.callback, None
        self.result = result
        assert callback is not None, f"answered twice, now with {result or error}"
        callback(result, error)


class Job:
    """Work for a thread: awaited by a task, executed as one event when its time has come."""

    __slots__ = ("args", "function")

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.function = function
        self.args = args

    def __await__(self) -> Generator[Job, Any, Any]:
        return (yield self)


class Task:
    """Drives a coroutine whose only awaits are jobs."""

    __slots__ = ("_coroutine", "_process")

    def __init__(self, process: Process, coroutine: Coroutine[Job, Any, Any]) -> None:
        self._process = process
        self._coroutine = coroutine

    def step(self, result: Any = None, error: Exception | None = None) -> None:
        """Go on until the next job, or the end."""
        try:
            job = self._coroutine.send(result) if error is None else self._coroutine.throw(error)
        except StopIteration:
            self._process.tasks.remove(self)
            return
        self._process.start_job(job, self)

    def close(self) -> None:
        """The process is gone."""
        self._coroutine.close()


class ProcessLoop:
    """The loop of one process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def create_future(self) -> Answer:
        """Where the decider puts an answer."""
        answer = Answer()
        self._process.answers.append(answer)
        return answer

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> None:
        """Call back as an event of its own."""
        self._process.soon(callback, *args)

    call_soon_threadsafe = call_soon

    def create_task(self, coroutine: Coroutine[Job, Any, Any], *, name: str) -> Task:
        """Begin a task, as an event of its own."""
        task = Task(self._process, coroutine)
        self._process.tasks.append(task)
        self._process.soon(task.step)
        return task

    def run_in_executor(self, executor: object, function: Callable[..., Any], *args: Any) -> Job:
        """Work for another thread."""
        return Job(function, args)


enter: Final = cast("Callable[[ProcessLoop | None], None]", _set_running_loop)
"""Make a loop the one that asyncio names as running; None at the end."""


def _ignore(result: Any, error: RequestError | None) -> None:
    """Nobody waits."""
