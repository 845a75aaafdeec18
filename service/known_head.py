"""Requests whose head came before, byte for byte, at this server.

Brokers send the same heads again and again; to have them parsed, and the answers written by a framework, takes longer
than most calls. Only a chunk that is exactly one request counts: whether it is, and what its head says, was found out
by aiohttp's parser for the first one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import HttpVersion11, hdrs, web
from yarl import URL

from pidkeeper.service.access import Principal
from pidkeeper.service.exchange import HttpRequest, HttpResponse

MAX_HEADS: Final = 1024
"""Heads remembered: one for each call, length of its body and token. Emptied when full: that costs one parse each."""

MAX_HEAD_BYTES: Final = 1024
"""Of a head that is remembered: without a long token none is longer. All together take 4 MiB at most."""

_END: Final = b"\r\n\r\n"
_PARSER_NEEDED: Final = (hdrs.EXPECT, hdrs.UPGRADE, hdrs.TRANSFER_ENCODING)
"""Headers that say more than where the body ends."""


class KnownHead(msgspec.Struct, frozen=True):
    """What a head says. `whole`: bytes of head and body."""

    whole: int
    method: str
    url: URL
    headers: Mapping[str, str]

    def request(self, chunk: bytes, certified: Principal | None, has_hung_up: Callable[[], bool]) -> HttpRequest:
        """What `chunk`, which begins with the head, asks."""
        body = chunk[chunk.index(_END) + len(_END) :]
        return HttpRequest(self.method, self.url, self.headers, body, certified, has_hung_up)


class KnownHeads:
    """The heads of one server."""

    def __init__(self) -> None:
        self._heads: dict[bytes, KnownHead] = {}

    def __len__(self) -> int:
        return len(self._heads)

    def find(self, chunk: bytes) -> KnownHead | None:
        """The head of `chunk`, if that is one request whose head is known."""
        end = chunk.find(_END, 0, MAX_HEAD_BYTES) + len(_END)
        known = self._heads.get(chunk[:end])
        return known if known is not None and known.whole == len(chunk) else None

    def learn(self, chunk: bytes, request: web.BaseRequest) -> bool:
        """Whether `chunk`, with which `request` began, ends where it ends; its head is known from now on."""
        if hdrs.TRANSFER_ENCODING in request.headers or hdrs.UPGRADE in request.headers:
            return False
        end = chunk.find(_END) + len(_END)
        if end < len(_END) or end + (request.content_length or 0) != len(chunk):
            return False
        if _is_simple(request) and end <= MAX_HEAD_BYTES:
            if len(self._heads) >= MAX_HEADS:
                self.forget()
            self._heads[chunk[:end]] = KnownHead(len(chunk), request.method, request.rel_url, request.headers)
        return True

    def forget(self) -> None:
        """Forget all heads: they may hold tokens."""
        self._heads.clear()


def _is_simple(request: web.BaseRequest) -> bool:
    """Whether the next one with the same head needs no parser."""
    usual = request.method == hdrs.METH_POST and request.version == HttpVersion11 and request.keep_alive
    return usual and not any(name in request.headers for name in _PARSER_NEEDED)


def encode_answer(answer: HttpResponse, *, close: bool) -> bytes:
    """Head and body of an answer (RFC 9112). `close`: it is the last one of its connection."""
    head = _head(answer.status, tuple(answer.headers.items()), close, int(time.time()))
    return b"%b%d\r\n\r\n%b" % (head, len(answer.body), answer.body)


@lru_cache(maxsize=64)
def _head(status: int, fields: tuple[tuple[str, str], ...], close: bool, second: int) -> bytes:
    """All of a head but the length that ends it: the same for most answers of a second."""
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in fields)]
    if close:
        lines.append("Connection: close")
    lines += [f"Date: {formatdate(second, usegmt=True)}", "Content-Length: "]
    head = "\r\n".join(lines)
    if head.count("\r") != len(lines) - 1 or head.count("\n") != len(lines) - 1:
        raise ValueError(f"a line break in {fields}")
    return head.encode()
