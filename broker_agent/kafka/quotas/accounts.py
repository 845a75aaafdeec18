"""The buckets of all principals, and how many of them are kept. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from pidkeeper.broker_agent.kafka.quotas.bucket import Bucket

MAX_ACCOUNTS: Final = 16_384
"""Principals with an account: four for each place of the listener. One takes 0.7 KiB, so all of them take 11 MiB.
Whoever owes nothing needs none, so only that many that were served within the last 12 s can fill this up."""


class Account:
    """What one principal has used."""

    __slots__ = ("fetch", "produce", "requests")

    def __init__(self) -> None:
        self.produce = Bucket()
        self.fetch = Bucket()
        self.requests = Bucket()

    @property
    def idle_at(self) -> int:
        """When all is paid off."""
        return max(self.produce.idle_at, self.fetch.idle_at, self.requests.idle_at)


class Accounts:
    """Accounts by principal. Those that are paid off are dropped, which changes nothing."""

    def __init__(self, limit: int = MAX_ACCOUNTS) -> None:
        self._limit = limit
        self._accounts: OrderedDict[str, Account] = OrderedDict()
        self._shared = Account()

    def __len__(self) -> int:
        return len(self._accounts)

    def of(self, principal: str, now_ns: int) -> Account:
        """The account of a principal. While there are too many, those that have none share one."""
        account = self._accounts.get(principal)
        if account is not None:
            self._accounts.move_to_end(principal)
            return account
        self._drop_idle(now_ns)
        if len(self._accounts) >= self._limit:
            return self._shared
        account = self._accounts[principal] = Account()
        return account

    def _drop_idle(self, now_ns: int) -> None:
        """Drop those that are paid off, the longest unused ones first, up to the first that is not."""
        while self._accounts and next(iter(self._accounts.values())).idle_at <= now_ns:
            self._accounts.popitem(last=False)
