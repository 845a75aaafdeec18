"""Frames on a peer link, and the handshake that opens it.

A frame is its length (u32, big endian) and a msgpack value. The dialling member says Hello, the accepting one answers
Welcome or Refused, the dialler proves itself with Proof; then Raft messages flow from the dialler to the acceptor
alone, so each pair of members keeps two connections. With a cluster key, Welcome and Proof carry an HMAC-SHA256 over
both nonces and identities, so neither side speaks to a stranger and no handshake can be replayed.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import uuid
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec

from pidkeeper.controller.raft.messages import Message, NodeId
from pidkeeper.protocol.founding import Succession
from pidkeeper.protocol.metadata_version import BASE, MetadataVersion
from pidkeeper.protocol.records import MAX_MEMBERS, QuorumMember
from pidkeeper.protocol.releases import MAX_RELEASE_LENGTH

_HELLO_TAG: Final = 101
_PROVED_FIELDS: Final = 8
"""Fields of a Hello that the MACs cover: those that every build knows, for nobody can prove what it does not read."""

MAX_HANDSHAKE_BYTES: Final = 2048
"""Of a frame of the handshake, in every build. Nine voters fit with 170 bytes each for both addresses."""

MAX_FRAME_BYTES: Final = 1024 * 1024
"""The largest message is an AppendEntries of 256 KiB or of one 256 KiB entry, with 1,024 entry headers of 24 bytes."""

PROTOCOL_VERSION: Final = 1
NONCE_BYTES: Final = 16

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Nonce = Annotated[bytes, msgspec.Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
Mac = Annotated[bytes, msgspec.Meta(max_length=32)]

_LENGTH: Final = struct.Struct(">I")
_ENCODER: Final = msgspec.msgpack.Encoder()
T = TypeVar("T")


class FrameError(ValueError):
    """A peer sent something that is not a frame of this protocol; the link is closed and nothing is changed."""


class FoundingTerms(msgspec.Struct, frozen=True, array_like=True):
    """On what all who are founded together have to agree: the ids of the voters, ascending, and the settings.

    `block_size`, `bridge`: as of FoundingRecord.
    """

    voters: Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=MAX_MEMBERS)]
    block_size: int
    bridge: bool


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=_HELLO_TAG):
    """The dialler: who it is, whom it means, which cluster and data directory it has, its own `address`, what it reads.

    An acceptor that does not have the dialler among its members dials back there, once the dialler has proved that it
    knows the cluster key (docs/decisions/0009). `founding_id`: of the founding of its directory; null where that is
    blank or began without one. `blank`: of a directory that waits for a founding, what its configuration file says
    (docs/decisions/0026). `succession`: whose place the founding takes, if it takes any (docs/decisions/0027).
    `voters`: the newest that the dialler knows to be committed, for a blank acceptor, without the directories; empty
    from earlier builds, and where they do not fit. `release`: of the dialler's build; empty from those that tell none.
    """

    version: int
    cluster_id: Name
    sender: NodeId
    to: NodeId
    directory_id: Name
    nonce: Nonce
    address: Annotated[str, msgspec.Meta(max_length=264)] = ""
    metadata_version: MetadataVersion = BASE
    founding_id: uuid.UUID | None = None
    blank: FoundingTerms | None = None
    succession: Succession | None = None
    voters: Annotated[tuple[QuorumMember, ...], msgspec.Meta(max_length=MAX_MEMBERS)] = ()
    release: Annotated[str, msgspec.Meta(max_length=MAX_RELEASE_LENGTH)] = ""


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag=102):
    """The acceptor takes the link."""

    sender: NodeId
    directory_id: Name
    nonce: Nonce
    mac: Mac


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=103):
    """The acceptor does not take the link; `reason` says what was wrong and what to do."""

    reason: Annotated[str, msgspec.Meta(max_length=512)]


class Proof(msgspec.Struct, frozen=True, array_like=True, tag=104):
    """The dialler knows the cluster key too."""

    mac: Mac


def frame(value: Any) -> bytes:
    """`value` as one frame."""
    body = _ENCODER.encode(value)
    return _LENGTH.pack(len(body)) + body


class FrameReader(Generic[T]):
    """Cuts a byte stream into frames and decodes each as one value. Holds one partial frame at most."""

    __slots__ = ("_buffer", "_decoder", "_limit", "_position")

    def __init__(self, decoder: msgspec.msgpack.Decoder[T], limit: int = MAX_FRAME_BYTES) -> None:
        self._buffer = b""
        self._position = 0
        self._decoder = decoder
        self._limit = limit

    def push(self, data: bytes) -> None:
        """Add received bytes."""
        self._buffer = self.rest() + data
        self._position = 0

    def pop(self) -> T | None:
        """The value of the next complete frame, or None. Raises FrameError on anything malformed."""
        start = self._position + 4
        if len(self._buffer) < start:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer, self._position)
        if length > self._limit:
            raise FrameError(f"a frame of {length} bytes is over the limit of {self._limit}")
        if len(self._buffer) < start + length:
            return None
        self._position = start + length
        try:
            return self._decoder.decode(memoryview(self._buffer)[start : self._position])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise FrameError(f"malformed frame: {error}") from error

    def rest(self) -> bytes:
        """The bytes that are not popped yet."""
        return self._buffer[self._position :]


def message_reader() -> FrameReader[Message]:
    """A reader of Raft messages."""
    return FrameReader(_MESSAGE_DECODER)


def handshake_reader() -> FrameReader[Hello | Welcome | Refused | Proof]:
    """A reader of handshake values; none of them is large."""
    return FrameReader(_HANDSHAKE_DECODER, limit=MAX_HANDSHAKE_BYTES)


def hello_frame(hello: Hello) -> bytes:
    """`hello` as one frame that every build reads: without the voters if they would make it too large."""
    whole = frame(hello)
    if len(whole) <= MAX_HANDSHAKE_BYTES:
        return whole
    return frame(msgspec.structs.replace(hello, voters=()))


_MESSAGE_DECODER: Final[msgspec.msgpack.Decoder[Message]] = msgspec.msgpack.Decoder(Message)
_HANDSHAKE_DECODER: Final = msgspec.msgpack.Decoder(Hello | Welcome | Refused | Proof)


def acceptor_mac(key: bytes | None, hello: Hello, acceptor: int, nonce: bytes) -> bytes:
    """What the acceptor proves itself with; empty without a key."""
    return _mac(key, b"acceptor", hello, acceptor, nonce)


def dialler_mac(key: bytes | None, hello: Hello, acceptor: int, nonce: bytes) -> bytes:
    """What the dialler proves itself with; empty without a key."""
    return _mac(key, b"dialler", hello, acceptor, nonce)


def _mac(key: bytes | None, role: bytes, hello: Hello, acceptor: int, nonce: bytes) -> bytes:
    if key is None:
        return b""
    said = _ENCODER.encode((role, (_HELLO_TAG, *msgspec.structs.astuple(hello)[:_PROVED_FIELDS]), acceptor, nonce))
    return hmac.new(key, said, hashlib.sha256).digest()


def same_mac(left: bytes, right: bytes) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(left, right)
