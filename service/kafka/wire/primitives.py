"""The primitive types of Kafka's wire protocol, read with every bound checked before memory is taken.

Source: the protocol guide's "Protocol Primitive Types", KIP-482 for compact types and tagged fields.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final
from uuid import UUID

MAX_FRAME_BYTES: Final = 64 * 1024
"""Largest request after its length field. The largest lawful one, a Metadata request for 1000 topics of 249 characters
each, would be larger, but none of those topics exists here; the requests that matter take under 600 bytes."""

MAX_STRING_BYTES: Final = 32_767
"""The protocol's own limit: the length of a STRING is an INT16."""

MAX_ARRAY_LENGTH: Final = 4096
"""Elements in an array. One that takes a single byte can cost 14 in the response, so this keeps a response to one frame
under 64 KiB (the names, echoed) + 4096 x 14 = 120 KiB, and 73 KiB of brokers in Metadata; real clients ask for a
handful."""

MAX_TAGS: Final = 16
"""Tagged fields in one section. The APIs served here define at most four, all unknown ones are skipped."""

MAX_VARINT_BYTES: Final = 5
"""An unsigned varint carries 32 bits, seven in a byte."""

NULL_UUID: Final = UUID(int=0)

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


class WireError(ValueError):
    """Bytes that are not a lawful request of a version served here. The connection that sent them is closed."""


class Reader:
    """Reads one frame from front to back. Every method raises WireError instead of reading past the end.

    `start`, `end`: where the frame is in `data`.
    """

    __slots__ = ("_data", "_end", "_position")

    def __init__(self, data: bytes, limit: int = MAX_FRAME_BYTES, start: int = 0, end: int | None = None) -> None:
        self._data = data
        self._position = start
        self._end = len(data) if end is None else end
        if self._end - start > limit:
            raise WireError(f"a frame of {self._end - start} bytes is larger than {limit}")

    def _take(self, size: int) -> int:
        """Move past `size` bytes and return where they begin."""
        start = self._position
        if size > self._end - start:
            raise WireError(f"{size} bytes wanted at {start}, the frame ends at {self._end}")
        self._position = start + size
        return start

    def int8(self) -> int:
        value = self._data[self._take(1)]
        return value - 256 if value > 127 else value

    def boolean(self) -> bool:
        return self._data[self._take(1)] != 0

    def int16(self) -> int:
        return int(_INT16.unpack_from(self._data, self._take(2))[0])

    def int32(self) -> int:
        return int(_INT32.unpack_from(self._data, self._take(4))[0])

    def int64(self) -> int:
        return int(_INT64.unpack_from(self._data, self._take(8))[0])

    def uuid(self) -> UUID:
        start = self._take(16)
        return UUID(bytes=self._data[start : start + 16])

    def varint(self) -> int:
        """An unsigned varint of at most 32 bits."""
        value = 0
        for index in range(MAX_VARINT_BYTES):
            byte = self._data[self._take(1)]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                if value > 0xFFFF_FFFF:
                    break
                return value
        raise WireError(f"the varint that ends at {self._position} does not fit in 32 bits")

    def nullable_string(self, *, flexible: bool) -> str | None:
        """A NULLABLE_STRING, or a COMPACT_NULLABLE_STRING where `flexible`."""
        length = self.varint() - 1 if flexible else self.int16()
        if length == -1:
            return None
        if not 0 <= length <= MAX_STRING_BYTES:
            raise WireError(f"a string of {length} bytes at {self._position}")
        start = self._take(length)
        try:
            return self._data[start : start + length].decode("utf-8", "strict")
        except UnicodeDecodeError as error:
            raise WireError(f"the string at {start} is not UTF-8") from error

    def string(self, *, flexible: bool) -> str:
        """A STRING, or a COMPACT_STRING where `flexible`."""
        value = self.nullable_string(flexible=flexible)
        if value is None:
            raise WireError(f"the string that ends at {self._position} must not be null")
        return value

    def byte_string(self, *, flexible: bool) -> bytes:
        """BYTES, or COMPACT_BYTES where `flexible`."""
        length = self.varint() - 1 if flexible else self.int32()
        if length < 0:
            raise WireError(f"bytes of length {length} at {self._position}")
        start = self._take(length)
        return self._data[start : start + length]

    def nullable_array_length(self, *, flexible: bool, min_element_bytes: int) -> int | None:
        """The count of a nullable array whose elements take at least `min_element_bytes`; None for null."""
        count = self.varint() - 1 if flexible else self.int32()
        if count == -1:
            return None
        if not 0 <= count <= min(MAX_ARRAY_LENGTH, (self._end - self._position) // min_element_bytes):
            raise WireError(
                f"an array of {count} elements at {self._position}: the frame ends at {self._end}, "
                f"and at most {MAX_ARRAY_LENGTH} are taken"
            )
        return count

    def array_length(self, *, flexible: bool, min_element_bytes: int) -> int:
        """As nullable_array_length, for an array that must not be null."""
        count = self.nullable_array_length(flexible=flexible, min_element_bytes=min_element_bytes)
        if count is None:
            raise WireError(f"the array that ends at {self._position} must not be null")
        return count

    def skip(self, size: int) -> None:
        """Pass over fields of a fixed size."""
        self._take(size)

    def skip_tags(self) -> None:
        """Pass over one section of tagged fields: none that a client sends matters here (KIP-482)."""
        self.tagged(None)

    def tagged(self, wanted: int | None) -> bytes | None:
        """Read one section of tagged fields; the content of the one that is wanted, None if it is not there."""
        count = self.varint()
        if count > MAX_TAGS:
            raise WireError(f"{count} tagged fields at {self._position}, at most {MAX_TAGS} are taken")
        previous, found = -1, None
        for _ in range(count):
            tag = self.varint()
            if tag <= previous:
                raise WireError(f"tag {tag} follows tag {previous}: tags must rise")
            previous = tag
            length = self.varint()
            start = self._take(length)
            if tag == wanted:
                found = self._data[start : start + length]
        return found

    def finish(self, spare: int = 0) -> None:
        """Raise WireError unless the whole frame was read, or all of it but `spare` bytes."""
        if self._end - self._position not in {0, spare}:
            raise WireError(f"{self._end - self._position} bytes are left over at {self._position}")


def int16(value: int) -> bytes:
    return _INT16.pack(value)


def int32(value: int) -> bytes:
    return _INT32.pack(value)


def int64(value: int) -> bytes:
    return _INT64.pack(value)


def varint(value: int) -> bytes:
    """An unsigned varint."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def string(value: str | None, *, flexible: bool) -> bytes:
    """A (nullable) string, compact where `flexible`. Raises ValueError above MAX_STRING_BYTES."""
    if value is None:
        return b"\x00" if flexible else b"\xff\xff"
    encoded = value.encode()
    if len(encoded) > MAX_STRING_BYTES:
        raise ValueError(f"a string of {len(encoded)} bytes cannot be sent: the limit is {MAX_STRING_BYTES}")
    return (varint(len(encoded) + 1) if flexible else int16(len(encoded))) + encoded


def byte_string(value: bytes, *, flexible: bool) -> bytes:
    """Bytes, compact where `flexible`."""
    return (varint(len(value) + 1) if flexible else int32(len(value))) + value


def array(elements: list[bytes], *, flexible: bool) -> bytes:
    """An array of encoded elements, compact where `flexible`."""
    return (varint(len(elements) + 1) if flexible else int32(len(elements))) + b"".join(elements)


def tags(*, flexible: bool) -> bytes:
    """An empty section of tagged fields, where the version has one."""
    return b"\x00" if flexible else b""


def tagged_fields(fields: Mapping[int, bytes]) -> bytes:
    """A section of tagged fields (KIP-482): the encoded values by their tags, ascending."""
    values = [varint(tag) + varint(len(value)) + value for tag, value in fields.items()]
    return varint(len(fields)) + b"".join(values)
