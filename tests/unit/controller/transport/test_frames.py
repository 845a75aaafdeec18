"""Frames: cut anywhere, bounded, refused when malformed; and what the handshake proves."""

from __future__ import annotations

import struct
import uuid

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.controller.raft.messages import (
    MAX_CHUNK_BYTES,
    MAX_ENTRIES_PER_MESSAGE,
    MAX_ENTRY_BYTES,
    AppendEntries,
    AppendEntriesReply,
    Entry,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    InstallSnapshotReply,
    Message,
    PreVote,
    PreVoteReply,
    RequestVote,
    RequestVoteReply,
    TimeoutNow,
)
from pidkeeper.controller.transport.frames import (
    MAX_FRAME_BYTES,
    NONCE_BYTES,
    FoundingTerms,
    FrameError,
    Hello,
    Proof,
    Refused,
    Welcome,
    acceptor_mac,
    dialler_mac,
    frame,
    handshake_reader,
    hello_frame,
    message_reader,
    same_mac,
)
from pidkeeper.protocol.founding import Succession
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.protocol.records import QuorumMember
from pidkeeper.snapshots.snapshot_id import SnapshotId

NONCE = bytes(range(NONCE_BYTES))
HELLO = Hello(1, "cluster", 1, 2, "dir", NONCE)

MESSAGES: list[Message] = [
    PreVote(1, 1, 2, 5, 1),
    PreVoteReply(1, 1, 2, True, False),
    RequestVote(2, 1, 2, 5, 1, False),
    RequestVoteReply(2, 1, 2, True, 0),
    AppendEntries(2, 1, 2, 5, 1, 4, [Entry(2, 6, b"six"), Entry(2, 7, b"")]),
    AppendEntriesReply(2, 1, 2, False, 7, 0, 0, 0, 0),
    Heartbeat(2, 1, 2, 4, 0),
    HeartbeatReply(2, 1, 2, 7),
    InstallSnapshot(2, 1, 2, SnapshotId(5, 1), 0, b"chunk", True),
    InstallSnapshotReply(2, 1, 2, SnapshotId(5, 1), 5, False),
    TimeoutNow(2, 1, 2),
]


def test_every_message_comes_back_as_it_went() -> None:
    reader = message_reader()
    reader.push(b"".join(frame(message) for message in MESSAGES))
    assert [reader.pop() for _ in MESSAGES] == MESSAGES
    assert reader.pop() is None
    assert reader.rest() == b""


@pytest.mark.parametrize(
    ("message", "body"),
    [
        (
            InstallSnapshot(7, 1, 2, SnapshotId(300, 4), 65_536, b"chunk", True),
            "980907010292cd012c04ce00010000c4056368756e6bc3",
        ),
        (InstallSnapshotReply(7, 2, 1, SnapshotId(300, 4), 65_541, False), "970a07020192cd012c04ce00010005c2"),
    ],
)
def test_the_bytes_on_the_wire_never_change(message: Message, body: str) -> None:
    assert frame(message)[4:].hex() == body


@given(st.lists(st.integers(1, 60), max_size=40))
def test_a_stream_may_be_cut_anywhere(pieces: list[int]) -> None:
    stream = b"".join(frame(message) for message in MESSAGES)
    reader, found, position = message_reader(), [], 0
    for size in [*pieces, len(stream)]:
        reader.push(stream[position : position + size])
        position += size
        while (message := reader.pop()) is not None:
            found.append(message)
    assert found == MESSAGES


def test_the_largest_messages_fit_into_a_frame() -> None:
    full = AppendEntries(2**60, 1, 2, 2**60, 2**60, 2**60, [Entry(2**60, 2**60, bytes(MAX_ENTRY_BYTES))])
    page = bytes(256 * 1024 // MAX_ENTRIES_PER_MESSAGE)
    many = AppendEntries(2**60, 1, 2, 0, 0, 0, [Entry(2**60, 2**60, page)] * MAX_ENTRIES_PER_MESSAGE)
    chunk = InstallSnapshot(2**60, 1, 2, SnapshotId(2**60, 2**60), 2**60, bytes(MAX_CHUNK_BYTES), False)
    for message in (full, many, chunk):
        data = frame(message)
        assert len(data) - 4 <= MAX_FRAME_BYTES
        reader = message_reader()
        reader.push(data)
        assert reader.pop() == message


def test_a_giant_frame_is_refused_by_its_length_alone() -> None:
    reader = message_reader()
    reader.push(struct.pack(">I", MAX_FRAME_BYTES + 1))
    with pytest.raises(FrameError, match=f"{MAX_FRAME_BYTES + 1} bytes is over the limit of {MAX_FRAME_BYTES}"):
        reader.pop()


@pytest.mark.parametrize(("length", "told"), [(60, True), (264, False)])
def test_a_hello_never_outgrows_what_every_build_reads(length: int, told: bool) -> None:
    """Else a member would reach nobody. All fields but the voters are as large as they may be."""
    voters = tuple(QuorumMember(one, None, "p" * length, "h" * length, True) for one in range(1, 10))
    place = Succession(uuid.UUID(int=2**128 - 1), 2**63 - 1)
    named = FoundingTerms(tuple(range(2**31 - 10, 2**31 - 1)), 2**31, True)
    said = (2**31 - 1, 2**31 - 1, "d" * 64, NONCE, "a" * 264, LATEST, uuid.UUID(int=2**128 - 1))
    largest = Hello(1, "é" * 64, *said, named, place, voters)
    reader = handshake_reader()
    reader.push(hello_frame(largest))
    read = reader.pop()
    assert isinstance(read, Hello)
    assert read.voters == (voters if told else ())
    assert msgspec.structs.replace(read, voters=voters) == largest


def test_a_handshake_frame_has_a_smaller_limit() -> None:
    reader = handshake_reader()
    reader.push(struct.pack(">I", 2049))
    with pytest.raises(FrameError, match="2049 bytes is over the limit of 2048"):
        reader.pop()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x91\x07",  # a heartbeat without fields
        b"\x91\x63",  # no such tag
        frame(Entry(1, 1, b""))[4:],
        frame(Heartbeat(1, 0, 2, 4, 0))[4:],  # node ids start at 1
        frame(Heartbeat(-1, 1, 2, 4, 0))[4:],
        frame(InstallSnapshot(1, 1, 2, SnapshotId(-1, 1), 0, b"", True))[4:],
        frame(InstallSnapshot(1, 1, 2, SnapshotId(5, 2**63), 0, b"", True))[4:],
        frame(InstallSnapshot(1, 1, 2, SnapshotId(5, 1), 0, bytes(MAX_CHUNK_BYTES + 1), True))[4:],
        frame(AppendEntries(1, 1, 2, 0, 0, 0, [Entry(1, 1, bytes(MAX_ENTRY_BYTES + 1))]))[4:],
        frame(AppendEntries(1, 1, 2, 0, 0, 0, [Entry(1, 1, b"")] * (MAX_ENTRIES_PER_MESSAGE + 1)))[4:],
    ],
)
def test_a_malformed_frame_is_refused(body: bytes) -> None:
    reader = message_reader()
    reader.push(struct.pack(">I", len(body)) + body)
    with pytest.raises(FrameError, match="malformed frame"):
        reader.pop()


@given(st.binary(max_size=80))
def test_garbage_is_refused_or_waits(data: bytes) -> None:
    reader = message_reader()
    reader.push(data)
    try:
        while reader.pop() is not None:
            pass
    except FrameError:
        return
    assert len(reader.rest()) < MAX_FRAME_BYTES


@pytest.mark.parametrize("value", [HELLO, Welcome(2, "d", NONCE, b""), Refused("no"), Proof(b"m" * 32)])
def test_handshake_values_come_back_as_they_went(value: Hello | Welcome | Refused | Proof) -> None:
    reader = handshake_reader()
    reader.push(frame(value) + b"\x00\x00")
    assert reader.pop() == value
    assert reader.rest() == b"\x00\x00"


def test_without_a_key_there_is_nothing_to_prove() -> None:
    assert acceptor_mac(None, HELLO, 2, NONCE) == dialler_mac(None, HELLO, 2, NONCE) == b""


def test_a_proof_depends_on_everything_said() -> None:
    key, other = b"k" * 32, NONCE[::-1]
    proofs = [
        acceptor_mac(key, HELLO, 2, NONCE),
        dialler_mac(key, HELLO, 2, NONCE),
        dialler_mac(b"x" * 32, HELLO, 2, NONCE),
        dialler_mac(key, HELLO, 3, NONCE),
        dialler_mac(key, HELLO, 2, other),
        dialler_mac(key, Hello(1, "cluster", 1, 2, "dir", other), 2, NONCE),
        dialler_mac(key, Hello(1, "cluster", 3, 2, "dir", NONCE), 2, NONCE),
        dialler_mac(key, Hello(1, "another", 1, 2, "dir", NONCE), 2, NONCE),
        dialler_mac(key, Hello(1, "cluster", 1, 2, "rid", NONCE), 2, NONCE),
    ]
    assert {len(proof) for proof in proofs} == {32}
    assert len(set(proofs)) == len(proofs)
    assert same_mac(proofs[1], dialler_mac(key, HELLO, 2, NONCE))
    assert not same_mac(proofs[1], proofs[0])
    assert not same_mac(proofs[1], b"")


@pytest.mark.parametrize("message", [Heartbeat(2**63, 2, 1, 0, 0), Heartbeat(1, 2, 1, 2**63, 0)])
def test_a_term_or_an_index_above_63_bits_is_malformed(message: Message) -> None:
    reader = message_reader()
    reader.push(frame(message))
    with pytest.raises(FrameError, match="malformed frame"):
        reader.pop()
