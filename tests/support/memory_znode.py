"""ZooKeeper's znode in memory, whose calls wait until a test carries them out and answers them, and a loop beside it.

What may happen to a real call can be told apart here: it is carried out or not, and its answer comes, comes late, or is
lost. A call that is given up may still be carried out afterwards, as a write that was sent before a session broke.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from pidkeeper.controller.migration.zookeeper import Cause, Failure, LiveBrokers, Znode
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.ids import MAX_PRODUCER_ID

MAX_TURNS = 10_000
"""Callbacks of one `MemoryLoop.run`; more than this goes round for ever."""

LOST = Failure(Cause.UNAVAILABLE, "no answer in time")
Outcome = Znode | LiveBrokers | Failure


class Call(msgspec.Struct):
    """A call under way. `outcome`: what the server made of it, None before. `version`: None for a read."""

    done: Callable[[Any], None]
    data: bytes | None = None
    version: int | None = None
    outcome: Outcome | None = None
    of_brokers: bool = False


class MemoryZnode:
    """`BlockZnode`. `reads` and `writes` count what the server carried out, refused writes included.

    `live`: the brokers that are registered now.
    """

    def __init__(self, data: bytes | None = None, version: int = 0) -> None:
        self.data = data
        self.version = version
        self.calls: deque[Call] = deque()
        self.lost: list[Call] = []
        self.trouble: str | None = None
        self.reads = 0
        self.writes = 0
        self.live = LiveBrokers(())

    def read(self, done: Callable[[Znode | Failure], None]) -> None:
        """Wait for a test to answer."""
        self.calls.append(Call(done))

    def write(self, data: bytes | None, version: int, done: Callable[[Znode | Failure], None]) -> None:
        """Wait for a test to answer."""
        self.calls.append(Call(done, data, version))

    def brokers(self, done: Callable[[LiveBrokers | Failure], None]) -> None:
        """Wait for a test to answer."""
        self.calls.append(Call(done, of_brokers=True))

    def disconnected(self) -> str | None:
        """What the test says."""
        return self.trouble

    def carry_out(self) -> None:
        """The server does the oldest call that it has not seen yet, if any; nobody hears of it."""
        call = next((one for one in self.calls if one.outcome is None), None)
        if call is not None:
            self._serve(call)

    def answer(self) -> None:
        """The oldest call gets its answer; the server does it now if it has not yet."""
        call = self.calls[0]
        if call.outcome is None:
            self._serve(call)
        self.calls.popleft()
        assert call.outcome is not None
        call.done(call.outcome)

    def fail(self, failure: Failure = LOST) -> None:
        """The oldest call fails. If the server has not done it, `land` can make it so still."""
        call = self.calls.popleft()
        if call.outcome is None:
            self.lost.append(call)
        call.done(failure)

    def land(self) -> None:
        """The server does a call that was given up."""
        self._serve(self.lost.pop(0))

    def put(self, data: bytes | None) -> None:
        """Somebody else writes the znode, whatever its version is."""
        self.data = data
        self.version += 1

    def allocate(self, broker_id: int = 7, size: int = 1000) -> range:
        """An old broker takes its next block (`ZooKeeperProducerIdManager`); it looks at nothing but `block_end`.

        Raises ArithmeticError if no block is left.
        """
        first = 0 if self.data is None else int(json.loads(self.data)["block_end"]) + 1
        if first > MAX_PRODUCER_ID - size + 1:
            raise ArithmeticError("Have exhausted all producerIds")
        self.put(kafka_block(broker_id, first, first + size - 1))
        return range(first, first + size)

    def _serve(self, call: Call) -> None:
        if call.of_brokers:
            call.outcome = self.live
            return
        if call.version is None:
            self.reads += 1
        else:
            self.writes += 1
            if call.version != self.version:
                call.outcome = Failure(Cause.CONFLICT, f"version {self.version}, not {call.version}")
                return
            self.put(call.data)
        call.outcome = Znode(self.data, self.version)


def kafka_block(broker_id: int, first: int, last: int) -> bytes:
    """The bytes that a broker writes."""
    return f'{{"version":1,"broker":{broker_id},"block_start":"{first}","block_end":"{last}"}}'.encode()


class MemoryAnswer:
    """A future without an event loop."""

    def __init__(self) -> None:
        self._done = False
        self._result: Any = None
        self.refusal: RequestError | None = None

    def done(self) -> bool:
        """Whether it is answered or cancelled."""
        return self._done

    def cancel(self) -> None:
        """Nobody waits any more."""
        self._done = True

    def set_result(self, result: Any, /) -> None:
        """Answer, once."""
        assert not self._done, "answered twice"
        self._done, self._result = True, result

    def set_exception(self, exception: RequestError, /) -> None:
        """Refuse, once."""
        assert not self._done, "answered twice"
        self._done, self.refusal = True, exception

    def result(self) -> Any:
        """The answer. Raises the refusal; AssertionError if there is neither."""
        assert self._done, "not answered yet"
        if self.refusal is not None:
            raise self.refusal
        return self._result


class MemoryLoop:
    """`Loop`: what is called soon runs when a test says so."""

    def __init__(self) -> None:
        self._soon: deque[Callable[[], None]] = deque()

    def create_future(self) -> MemoryAnswer:
        """An answer to wait for."""
        return MemoryAnswer()

    def call_soon(self, callback: Callable[[], None], /) -> None:
        """Remember it."""
        self._soon.append(callback)

    def run(self) -> bool:
        """Run all that is due, and what becomes due by it; whether there was any."""
        for turn in range(MAX_TURNS):
            if not self._soon:
                return turn > 0
            self._soon.popleft()()
        raise AssertionError(f"still busy after {MAX_TURNS} callbacks")
