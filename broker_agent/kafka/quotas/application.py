"""A front of what answers Kafka's clients: it counts what they ask against their quotas.

An answer that goes beyond a quota leaves at once. It tells its client how long to wait, and the connection is not read
from for as long, so that a client which does not wait is held too (KIP-219).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pidkeeper.broker_agent.coordinator.caller import Caller
from pidkeeper.broker_agent.kafka.application import AgentApplication
from pidkeeper.broker_agent.kafka.quotas.meter import Meter, Meters
from pidkeeper.broker_agent.kafka.wire.throttle_time import with_throttle_time
from pidkeeper.service.access import Principal
from pidkeeper.service.kafka.wire.versions import PRODUCE

_PRODUCE: Final = PRODUCE.to_bytes(2, "big")


class MeteredApplication:
    """`service.kafka.application.Application`: `application`, within the quotas of `meters`."""

    def __init__(self, application: AgentApplication, meters: Meters) -> None:
        self.served: Final = application.served
        self.features: Final = application.features
        self._respond = application.respond
        self._answer_soon = application.answer_soon
        self._application = application
        self._meters = meters

    def caller(
        self, principal: Principal, host: str, has_hung_up: Callable[[], bool], hold: Callable[[float], None]
    ) -> Caller:
        """Whoever asks, with a meter."""
        caller = self._application.caller(principal, host, has_hung_up, hold)
        return caller._replace(meter=self._meters.add(principal.name, hold))

    def respond(self, data: bytes, caller: Caller) -> tuple[Any, int]:
        """See `KafkaResponder.respond`. What exceeds a quota is answered alone."""
        # Every read comes by here, so what has no quota goes on at once.
        meter: Meter = caller.meter  # type: ignore[assignment]
        if (quota := meter.quota) is None:
            return self._respond(data, caller)
        if (rate := quota.requests_per_second) is not None:
            data = _front(data, meter.request_room(rate))
        answer, used = self._respond(data, caller)
        if not used:
            return answer, used
        if not isinstance(answer, bytes):
            meter.requested(quota, 1, used if data[4:6] == _PRODUCE else 0)
            return answer, used
        meter.requested(quota, _count(data, used), 0)
        if ms := meter.throttle_time_ms():
            answer = self._told(answer, int.from_bytes(data[4:6], "big"), int.from_bytes(data[6:8], "big"), ms)
        return answer, used

    def answer_soon(self, call: Any, done: Callable[[bytes | None], None]) -> bool:
        """What `application` answers so."""
        if call.caller.meter.is_free():
            return self._answer_soon(call, done)
        return self._answer_soon(call, lambda frame: done(None if frame is None else self._throttled(call, frame)))

    async def answer(self, call: Any) -> bytes:
        """That of `application`."""
        return self._throttled(call, await self._application.answer(call))

    def _throttled(self, call: Any, frame: bytes) -> bytes:
        ms = call.caller.meter.throttle_time_ms()
        return self._told(frame, call.header.api_key, call.header.api_version, ms) if ms else frame

    def _told(self, frame: bytes, key: int, version: int, ms: int) -> bytes:
        return with_throttle_time(frame, key, version, self.served, ms)


def _front(data: bytes, count: int) -> bytes:
    """At most `count` whole frames at the front of `data`; `data` if there is none."""
    end = _end(data, count, len(data))[1]
    return data[:end] if end else data


def _count(data: bytes, used: int) -> int:
    """How many frames are in the first `used` bytes."""
    return _end(data, used, used)[0]


def _end(data: bytes, count: int, limit: int) -> tuple[int, int]:
    """How many whole frames, `count` at most, are in the first `limit` bytes, and where the last one ends."""
    found = end = 0
    while found < count and limit - end >= 4:
        following = end + 4 + int.from_bytes(data[end : end + 4], "big")
        if following > limit:
            break
        found, end = found + 1, following
    return found, end
