"""A broker that has its blocks from the controllers, over HTTP, one after another whatever happens to them."""

from __future__ import annotations

import http.client
import threading
import time
from typing import Any, Final

from tests.support.http_calls import Answer, call

CALL_SECONDS: Final = 1.5
"""A controller that was paused does not answer; another one leads long before."""
PAUSE_SECONDS: Final = 0.002
WAIT_SECONDS: Final = 60.0


class Claimer:
    """Asks one controller after another until one grants a block, from now until `stop`.

    `blocks`: the first and the last ID of each that was acknowledged. `refusals`: how often each error was met.
    """

    def __init__(self, controllers: list[str], broker_id: int) -> None:
        self.broker_id: Final = broker_id
        self.blocks: list[tuple[int, int]] = []
        self.refusals: dict[str, int] = {}
        self._controllers = controllers
        self._asked = 0
        self._epoch: int | None = None
        self._error: Exception | None = None
        self._stopping = threading.Event()
        self._going_on = threading.Event()
        self._going_on.set()
        self._idle = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"claimer-{broker_id}")
        self._thread.start()

    def pause(self) -> None:
        """Have it ask for no further block; `wait_idle` says when the last answer is there."""
        self._going_on.clear()

    def wait_idle(self) -> None:
        """Return once it asks for nothing any more, after `pause`."""
        assert self._idle.wait(WAIT_SECONDS), f"claimer {self.broker_id} does not pause: {self._error}"

    def resume(self) -> None:
        """Go on after `pause`."""
        self._idle.clear()
        self._going_on.set()

    def stop(self) -> None:
        """End the loop. Raises what ended it early."""
        self._stopping.set()
        self._going_on.set()
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive(), f"claimer {self.broker_id} does not end"
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                if not self._going_on.is_set():
                    self._idle.set()
                    self._going_on.wait()
                self._step()
                time.sleep(PAUSE_SECONDS)
        except Exception as error:  # noqa: BLE001 - `stop` raises it
            self._error = error

    def _step(self) -> None:
        try:
            answer = self._ask()
        except (OSError, http.client.HTTPException):
            self._count("no answer")
            self._asked += 1
            return
        if answer.status == 200:
            self._take(answer.json())
            return
        problem = answer.json()
        self._count(problem["code"])
        assert problem["retryable"], f"a broker would give up: {problem}"
        if problem["code"] in {"STALE_BROKER_EPOCH", "BROKER_ID_NOT_REGISTERED"}:
            self._epoch = None
        elif problem["code"] in {"NOT_CONTROLLER", "REQUEST_TIMED_OUT"}:
            self._asked += 1

    def _ask(self) -> Answer:
        controller = self._controllers[self._asked % len(self._controllers)]
        path = "/v1/producer-ids/allocate"
        body: dict[str, Any] = {"broker_id": self.broker_id, "broker_epoch": self._epoch}
        if self._epoch is None:
            path, body = f"/v1/brokers/{self.broker_id}/register", {"incarnation_id": f"claimer-{self.broker_id}"}
        return call(controller, "POST", path, body, timeout=CALL_SECONDS)

    def _take(self, granted: dict[str, Any]) -> None:
        if self._epoch is None:
            self._epoch = granted["broker_epoch"]
            return
        first = granted["producer_id_start"]
        self.blocks.append((first, first + granted["producer_id_len"] - 1))

    def _count(self, what: str) -> None:
        self.refusals[what] = self.refusals.get(what, 0) + 1
