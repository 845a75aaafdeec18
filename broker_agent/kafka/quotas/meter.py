"""What one connection uses of its principal's quotas, and for how long that holds it. Pure."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from pidkeeper.broker_agent.kafka.quotas.accounts import Account, Accounts
from pidkeeper.broker_agent.kafka.quotas.bucket import NANOSECONDS
from pidkeeper.broker_agent.security.quota import Quota

PRODUCE: Final = "produce"
FETCH: Final = "fetch"
REQUESTS: Final = "request"
KINDS: Final = (PRODUCE, FETCH, REQUESTS)
"""Of quotas, as Kafka's metrics call them."""

_NS_PER_MS: Final = 1_000_000


class Throttled:
    """How often, and for how many milliseconds, clients were held, by the kind of quota."""

    def __init__(self) -> None:
        self.answers: Final = Counter(dict.fromkeys(KINDS, 0))
        self.ms: Final = Counter(dict.fromkeys(KINDS, 0))


class Quotas(Protocol):
    """Those of all principals. `security.quota_list.QuotaList` has them. `on_change`: called when there are others."""

    on_change: Callable[[], None]

    def find(self, principal: str) -> Quota | None:
        """That of a principal, None if it may use as much as it can."""
        ...


class Meters:
    """The meters of all connections, and what they have in common. `clock()`: monotonic nanoseconds."""

    def __init__(self, quotas: Quotas, clock: Callable[[], int]) -> None:
        self.clock: Final = clock
        self.accounts: Final = Accounts()
        self.throttled: Final = Throttled()
        self._quotas = quotas
        self._meters: weakref.WeakSet[Meter] = weakref.WeakSet()
        quotas.on_change = self._look_again

    def add(self, principal: str, hold: Callable[[float], None]) -> Meter:
        """That of one more connection."""
        meter = Meter(self, principal, hold)
        meter.quota = self._quotas.find(principal)
        self._meters.add(meter)
        return meter

    def _look_again(self) -> None:
        for meter in self._meters:
            meter.quota = self._quotas.find(meter.principal)


class Meter:
    """That of one connection: `coordinator.caller.FetchMeter`. `hold`: have it not read for so many seconds. `quota`:
    that in force. It is kept here because each read asks for it."""

    __slots__ = ("__weakref__", "_hold", "_meters", "_until_ns", "principal", "quota")

    def __init__(self, meters: Meters, principal: str, hold: Callable[[float], None]) -> None:
        self.principal: Final = principal
        self.quota: Quota | None = None
        self._meters = meters
        self._hold = hold
        self._until_ns = 0

    def is_free(self) -> bool:
        """Whether it has no quota, and was never held."""
        return self.quota is None and not self._until_ns

    def request_room(self, rate: int) -> int:
        """How many requests may be answered at once; one may in any case, and is held for if it is too many."""
        now, account = self._now()
        return max(1, account.requests.room(rate, now))

    def requested(self, quota: Quota, count: int, produced: int) -> None:
        """So many requests came, with so many bytes of a Produce, and count from now on."""
        now, account = self._now()
        if (rate := quota.requests_per_second) is not None:
            account.requests.charge(count, rate, now)
            self._throttle(REQUESTS, account.requests.wait_ns(rate, now), now)
        if produced and (rate := quota.produce_bytes_per_second) is not None:
            account.produce.charge(produced, rate, now)
            self._throttle(PRODUCE, account.produce.wait_ns(rate, now), now)

    def fetch_room(self) -> int | None:
        """See `FetchMeter.fetch_room`."""
        if self.quota is None or (rate := self.quota.fetch_bytes_per_second) is None:
            return None
        now, account = self._now()
        if (wait := account.fetch.wait_ns(rate, now)) > 0:
            self._throttle(FETCH, wait, now)
            return 0
        return max(1, account.fetch.room(rate, now))

    def fetched(self, size: int) -> bool:
        """See `FetchMeter.fetched`."""
        if not size or self.quota is None or (rate := self.quota.fetch_bytes_per_second) is None:
            return True
        now, account = self._now()
        if (wait := account.fetch.wait_ns(rate, now)) > 0:
            # Another connection of the principal was answered while this one waited for records.
            self._throttle(FETCH, wait, now)
            return False
        account.fetch.charge(size, rate, now)
        self._throttle(FETCH, account.fetch.wait_ns(rate, now), now)
        return True

    def throttle_time_ms(self) -> int:
        """For how long the connection is held from now on; what its client is told."""
        return max(0, -(-(self._until_ns - self._meters.clock()) // _NS_PER_MS)) if self._until_ns else 0

    def _now(self) -> tuple[int, Account]:
        now = self._meters.clock()
        return now, self._meters.accounts.of(self.principal, now)

    def _throttle(self, kind: str, wait_ns: int, now: int) -> None:
        """Hold the connection for so long, in whole milliseconds: a client is told no others."""
        ms = -(-wait_ns // _NS_PER_MS)
        until = now + ms * _NS_PER_MS
        if not ms or until <= self._until_ns:
            return
        throttled = self._meters.throttled
        throttled.answers[kind] += 1
        throttled.ms[kind] += (until - max(now, self._until_ns)) // _NS_PER_MS
        self._until_ns = until
        self._hold(ms * _NS_PER_MS / NANOSECONDS)
