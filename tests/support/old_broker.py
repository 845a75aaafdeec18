"""A broker of Kafka before 3.0: it takes its blocks from ZooKeeper itself, by KIP-730's loop ("Motivation")."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from typing import Final

from kazoo.exceptions import BadVersionError, KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from pidkeeper.controller.migration.zookeeper import BLOCK_PATH
from pidkeeper.protocol.ids import DEFAULT_BLOCK_SIZE, MAX_PRODUCER_ID, ProducerIdBlock
from tests.support.zookeeper import WAIT_SECONDS, zookeeper_client

REQUEST_SECONDS: Final = 2.0
SESSION_SECONDS: Final = 3.0
"""kazoo waits that long for a server that is starting, and accepts connections which it does not serve."""
RESTART_SECONDS: Final = 10.0
"""When whoever runs a broker without ZooKeeper restarts it. Once, after two elections in a row, no server took up a
client's session again for a minute, while others had theirs."""
START_SECONDS: Final = 5.0
"""After which such a start is given up, and made anew: a client may hang at one server for good."""
PAUSE_SECONDS: Final = 0.01
"""After a request that failed: ZooKeeper may be electing."""


class Exhausted(Exception):  # noqa: N818 - what a broker logs
    """There is no whole block left below 2^63."""


class OldBroker:
    """The part of `ZkProducerIdManager` that allocates. `connect` may end with a chroot.

    `unknown`: the first IDs of blocks that may be written, now or later, and that nobody was given.
    """

    def __init__(self, connect: str, broker_id: int) -> None:
        self.broker_id: Final = broker_id
        self.unknown: list[int] = []
        self._connect = connect
        self._client = zookeeper_client(connect, session_seconds=SESSION_SECONDS)

    def __str__(self) -> str:
        return f"old broker {self.broker_id} ({self._client.state})"

    def start_again(self) -> None:
        """With a new session. Raises KazooTimeoutError if there is none in time."""
        with contextlib.suppress(Exception):  # kazoo has no kind of error for what hangs and cannot be closed
            self.close()
        self._client = zookeeper_client(self._connect, session_seconds=SESSION_SECONDS, start_seconds=START_SECONDS)

    def allocate(self) -> ProducerIdBlock:
        """The next block, with no bound on how often another broker is faster.

        Raises Exhausted; KazooException or KazooTimeoutError if ZooKeeper does not answer, after which the block may be
        written but belongs to nobody; ValueError and ArithmeticError for a znode that no broker wrote, ValueError also
        for the topmost block, which ZooKeeper's bound allows and the broker's own check rejects.
        """
        while True:
            data, stat = self._client.get_async(BLOCK_PATH).get(timeout=REQUEST_SECONDS)
            first = 0 if data is None else self._after(data)
            try:
                self._client.set_async(BLOCK_PATH, self._block(first), stat.version).get(timeout=REQUEST_SECONDS)
            except (BadVersionError, NoNodeError):
                continue
            except (KazooException, KazooTimeoutError):
                self.unknown.append(first)
                raise
            return ProducerIdBlock(first, DEFAULT_BLOCK_SIZE)

    def _block(self, first: int) -> bytes:
        block = {
            "version": 1,
            "broker": self.broker_id,
            "block_start": str(first),
            "block_end": str(first + DEFAULT_BLOCK_SIZE - 1),
        }
        return json.dumps(block, separators=(",", ":")).encode()

    def _after(self, data: bytes) -> int:
        """The ID above the stored block."""
        block = json.loads(data)
        _, start, end = int(block["broker"]), _int64(block["block_start"]), _int64(block["block_end"])
        size = end - start + 1
        if not -(2**31) <= size < 2**31:
            raise ArithmeticError(f"a block of {size} IDs: integer overflow")
        if end > MAX_PRODUCER_ID - DEFAULT_BLOCK_SIZE:
            raise Exhausted(f"have exhausted all producer IDs: the last block ends at {end}")
        return end + 1

    def close(self) -> None:
        """End the session."""
        self._client.stop()
        self._client.close()


class OldBrokerThread:
    """An OldBroker that allocates without pause from now until `stop`, whatever ZooKeeper does meanwhile.

    `blocks`: each with the monotonic time, in seconds, at which it was acknowledged. `exhausted`: whether it ended
    because of that. `pause_seconds`: after each block, so that others get a turn.
    """

    def __init__(self, connect: str, broker_id: int, pause_seconds: float = 0.0) -> None:
        self.blocks: list[tuple[float, ProducerIdBlock]] = []
        self.exhausted = False
        self.failed_requests = 0
        self._error: Exception | None = None
        self._broker = OldBroker(connect, broker_id)
        self._pause_seconds = pause_seconds
        self._stopping = threading.Event()
        self._going_on = threading.Event()
        self._going_on.set()
        self._idle = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"old-broker-{broker_id}")
        self._thread.start()

    @property
    def unknown(self) -> list[int]:
        """See OldBroker."""
        return self._broker.unknown

    def pause(self) -> None:
        """Have it take no further block; `wait_idle` says when the last one is known."""
        self._going_on.clear()

    def wait_idle(self) -> None:
        """Return once it asks for nothing any more, after `pause` or because it ended."""
        deadline = time.monotonic() + 2 * WAIT_SECONDS
        while not self._idle.is_set() and self._thread.is_alive():
            assert time.monotonic() < deadline, f"old broker {self._broker.broker_id} does not pause"
            time.sleep(PAUSE_SECONDS)

    def resume(self) -> None:
        """Go on after `pause`."""
        self._idle.clear()
        self._going_on.set()

    def _wait_while_paused(self) -> None:
        if not self._going_on.is_set():
            self._idle.set()
            self._going_on.wait()

    def _run(self) -> None:
        answered = time.monotonic()
        while not self._stopping.is_set():
            self._wait_while_paused()
            try:
                block = self._broker.allocate()
            except Exhausted:
                self.exhausted = True
                return
            except (KazooException, KazooTimeoutError):
                self.failed_requests += 1
                if time.monotonic() - answered > RESTART_SECONDS:
                    with contextlib.suppress(KazooException, KazooTimeoutError):
                        self._broker.start_again()
                        answered = time.monotonic()
                self._stopping.wait(PAUSE_SECONDS)
            except Exception as error:  # noqa: BLE001 - `stop` raises it
                self._error = error
                return
            else:
                answered = time.monotonic()
                self.blocks.append((answered, block))
                self._stopping.wait(self._pause_seconds)

    def __str__(self) -> str:
        if self.exhausted:
            doing = "exhausted"
        elif not self._thread.is_alive():
            doing = f"ended by {self._error!r}"
        else:
            doing = "asking" if self._going_on.is_set() else "paused"
        return f"{self._broker} is {doing}: {len(self.blocks)} blocks, {self.failed_requests} failed requests"

    def stop(self) -> None:
        """End the loop and the session. Raises what ended the loop early, unless that was Exhausted."""
        self._stopping.set()
        self._going_on.set()
        self._thread.join(2 * WAIT_SECONDS)  # it may wait for a session
        assert not self._thread.is_alive(), f"old broker {self._broker.broker_id} does not end"
        self._broker.close()
        if self._error is not None:
            raise self._error


def _int64(text: object) -> int:
    """Java's `toLong` of a JSON string."""
    if not isinstance(text, str) or not -(2**63) <= (number := int(text)) < 2**63:
        raise ValueError(f"{text!r} is not the decimal text of an int64")
    return number
