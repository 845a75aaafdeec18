"""Makes malformed inputs out of valid ones. Seeded: the same seed gives the same inputs.

An input is a tuple of parts (frames, rows, a header and a body). A mutation is applied to one part before the target
puts lengths and checksums around the parts, so that it reaches the code behind those checks; or to the whole input
after that, so that lengths and checksums lie.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

Parts = tuple[bytes, ...]

MAX_INPUT_BYTES: Final = 64 * 1024
"""Longer inputs are cut: the limits of the product that lie above are met by lies about lengths."""

_EXTREMES: Final[tuple[bytes, ...]] = tuple(
    (value % 2 ** (8 * size)).to_bytes(size, "big")
    for size in (1, 2, 4, 8)
    for value in (0, 1, -1, -2, 2 ** (8 * size - 1), 2 ** (8 * size - 1) - 1, 2 ** (8 * size - 2), 4096, 65536)
)
_VARINTS: Final = (b"\x00", b"\x01", b"\x7f", b"\x80\x01", b"\x80\x80\x00", b"\xff\xff\xff\xff\x0f", b"\xff" * 5)
_MSGPACK: Final = tuple(
    [bytes([kind]) for kind in (0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xC3, 0xE0, 0xFF)]
    + [b"\xc4\xff", b"\xc5\xff\xff", b"\xc6" + b"\xff" * 4, b"\xc7\x01\xff", b"\xc9" + b"\xff" * 5]
    + [b"\xca\x7f\xc0\x00\x00", b"\xcb\x7f\xf0" + bytes(6), b"\xcc\xff", b"\xcd\xff\xff", b"\xce" + b"\xff" * 4]
    + [b"\xcf" + b"\xff" * 8, b"\xcf\x7f" + b"\xff" * 7, b"\xd0\x80", b"\xd3\x80" + bytes(7), b"\xd4\xff\x00"]
    + [b"\xd9\xff", b"\xda\xff\xff", b"\xdb" + b"\xff" * 4, b"\xdc\xff\xff", b"\xdd" + b"\xff" * 4]
    + [b"\xdd\x7f" + b"\xff" * 3, b"\xde\xff\xff", b"\xdf" + b"\xff" * 4, b"\xa2\xff\xfe", b"\xa3\xed\xa0\x80"]
)
_NESTS: Final = (b"\x91", b"\x81\xa1x", b"[", b'{"x":', b"\x92\x01")
_NEST_DEPTHS: Final = (2, 64, 1500)


class Mutator:
    """Draws inputs from `corpus`; `assemble` turns parts into the bytes of an input."""

    def __init__(self, seed: str, corpus: Sequence[Parts], assemble: Callable[[Parts], bytes]) -> None:
        self._random = random.Random(seed).random
        self._corpus = corpus
        self._assemble = assemble
        self._operations: tuple[Callable[[bytes], bytes], ...] = (
            self._flip,
            self._flip,
            self._overwrite,
            self._overwrite,
            self._extreme,
            self._truncate,
            self._insert,
            self._remove,
            self._repeat,
            self._splice,
            self._length,
            self._nest,
        )

    def next(self) -> bytes:
        """The next input."""
        parts = self._choose(self._corpus)
        if self._random() < 0.75:
            assembled = self._assemble(self._mutate_parts(parts))
            return assembled[:MAX_INPUT_BYTES]
        return self._mutate(self._assemble(parts))

    def _below(self, limit: int) -> int:
        return int(self._random() * limit)

    def _choose(self, among: Sequence[Parts]) -> Parts:
        return among[int(self._random() * len(among))]

    def _mutate_parts(self, parts: Parts) -> Parts:
        changed = list(parts)
        at = self._below(len(changed))
        shape = self._random()
        if shape < 0.08:
            changed.insert(at, changed[self._below(len(changed))])
        elif shape < 0.14 and len(changed) > 1:
            del changed[at]
        elif shape < 0.20:
            other = self._choose(self._corpus)
            changed[at] = other[self._below(len(other))]
        else:
            changed[at] = self._mutate(changed[at])
        return tuple(changed)

    def _mutate(self, data: bytes) -> bytes:
        data = self._operations[self._below(len(self._operations))](data)
        while self._random() < 0.3:
            data = self._operations[self._below(len(self._operations))](data)
        return data[:MAX_INPUT_BYTES]

    def _flip(self, data: bytes) -> bytes:
        if not data:
            return data
        at = self._below(len(data))
        return data[:at] + bytes((data[at] ^ (1 << self._below(8)),)) + data[at + 1 :]

    def _overwrite(self, data: bytes) -> bytes:
        """A msgpack head or a varint in place of a byte, or of as many bytes as it is long."""
        among: Sequence[bytes] = _MSGPACK if self._random() < 0.8 else _VARINTS
        value = among[self._below(len(among))]
        at = self._below(len(data) + 1)
        return data[:at] + value + data[at + (1 if self._random() < 0.5 else len(value)) :]

    def _extreme(self, data: bytes) -> bytes:
        value = _EXTREMES[self._below(len(_EXTREMES))]
        at = self._below(len(data) + 1)
        return data[:at] + value + data[at + len(value) :]

    def _truncate(self, data: bytes) -> bytes:
        return data[: self._below(len(data) + 1)]

    def _insert(self, data: bytes) -> bytes:
        at = self._below(len(data) + 1)
        return data[:at] + bytes([self._below(256) for _ in range(1 + self._below(8))]) + data[at:]

    def _remove(self, data: bytes) -> bytes:
        at = self._below(len(data) + 1)
        return data[:at] + data[at + 1 + self._below(8) :]

    def _repeat(self, data: bytes) -> bytes:
        start = self._below(len(data) + 1)
        end = start + 1 + self._below(32)
        return data[:end] + data[start:]

    def _splice(self, data: bytes) -> bytes:
        other = self._choose(self._corpus)
        piece = other[self._below(len(other))]
        return data[: self._below(len(data) + 1)] + piece[self._below(len(piece) + 1) :]

    def _length(self, data: bytes) -> bytes:
        """A lie of a few bytes at the front, where lengths are."""
        if len(data) < 4:
            return data
        told = int.from_bytes(data[:4], "big") + self._below(9) - 4
        return (told % 2**32).to_bytes(4, "big") + data[4:]

    def _nest(self, data: bytes) -> bytes:
        depth = _NEST_DEPTHS[0 if (chance := self._random()) < 0.6 else 1 if chance < 0.95 else 2]
        at = self._below(len(data) + 1)
        return data[:at] + _NESTS[self._below(len(_NESTS))] * depth + data[at:]
