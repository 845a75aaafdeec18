"""Callers that wait until a log goes on. Pure: no event loop, and whoever waits in vain gives up by itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pidkeeper.controller.answers import Answer, not_controller, release
from pidkeeper.controller.state.logs.state import LogsState
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.log_messages import WatchedLog, WatchLogsResponse

MAX_WATCHES: Final = 4096
"""Calls that wait at a time: each agent has a few."""

MAX_WATCHED: Final = 200_000
"""Logs in all of them together, each with an entry of some hundred bytes."""


class _Watch:
    """One call. `logs`: what it knows of each log."""

    __slots__ = ("answer", "logs")

    def __init__(self, answer: Answer, logs: dict[int, WatchedLog]) -> None:
        self.answer = answer
        self.logs = logs


class LogWatch:
    """Answers each call with the logs that have gone on, or are gone, as soon as there is one."""

    def __init__(self) -> None:
        self._watches: dict[Answer, _Watch] = {}
        self._by_log: dict[int, dict[_Watch, None]] = {}
        self._watched = 0

    def __len__(self) -> int:
        """Calls that wait."""
        return len(self._watches)

    def add(self, logs: LogsState, watched: Iterable[WatchedLog], answer: Answer) -> None:
        """Answer at once, or later. Raises THROTTLING_QUOTA_EXCEEDED if too many wait."""
        watch = _Watch(answer, {one.log: one for one in watched})
        if gone_on := [log for log in watch.logs if _has_gone_on(logs, watch.logs[log])]:
            release(answer, WatchLogsResponse(gone_on))
            return
        if len(self._watches) >= MAX_WATCHES or self._watched + len(watch.logs) > MAX_WATCHED:
            raise RequestError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{len(self._watches)} calls watch logs already")
        self._watches[answer] = watch
        self._watched += len(watch.logs)
        for log in watch.logs:
            self._by_log.setdefault(log, {})[watch] = None

    def remove(self, answer: Answer) -> None:
        """Nobody waits for it any more."""
        watch = self._watches.pop(answer, None)
        if watch is None:
            return
        self._watched -= len(watch.logs)
        for log in watch.logs:
            of_log = self._by_log[log]
            del of_log[watch]
            if not of_log:
                del self._by_log[log]

    def applied(self, logs: LogsState) -> None:
        """Something was applied: tell who watches the logs that have gone on by it."""
        if not logs.gone_on:
            return
        told: dict[_Watch, list[int]] = {}
        for log in logs.gone_on:
            for watch in self._by_log.get(log, ()):
                if _has_gone_on(logs, watch.logs[log]):
                    told.setdefault(watch, []).append(log)
        logs.gone_on.clear()
        for watch, gone_on in told.items():
            self.remove(watch.answer)
            release(watch.answer, WatchLogsResponse(gone_on))

    def deposed(self) -> None:
        """Another member knows more from now on."""
        for answer in list(self._watches):
            self.remove(answer)
            release(answer, not_controller())


def _has_gone_on(logs: LogsState, known: WatchedLog) -> bool:
    log = logs.log(known.log)
    return log is None or log.end > known.end or log.last_stable > known.last_stable
