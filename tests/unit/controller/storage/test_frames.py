from __future__ import annotations

import struct
from pathlib import Path

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.controller.raft.messages import HardState
from pidkeeper.controller.storage import frames
from pidkeeper.controller.storage.frames import BadBatch, Frame, batch_bytes, decode_batch, encode_batch

GOLDEN = Path(__file__).parents[3] / "golden"

some_frames = st.lists(
    st.builds(
        Frame,
        st.sampled_from([frames.ENTRY, frames.HARD_STATE, frames.RESTART, frames.BASE, frames.CLOSE]),
        st.integers(0, 2**64 - 1),
        st.integers(0, 2**64 - 1),
        st.binary(max_size=100),
    ),
    max_size=8,
)
u32 = st.integers(0, 2**32 - 1)


@given(some_frames, st.integers(1, 2**63), st.integers(0, 50), u32, u32)
def test_batch_round_trip(content: list[Frame], sequence: int, eighths: int, seed: int, chain: int) -> None:
    position = eighths * 8
    data, end_chain = encode_batch(content, sequence, position, seed, chain)
    assert len(data) == batch_bytes(content)
    assert len(data) % 8 == 0
    batch = decode_batch(bytes(position) + data + bytes(64), position, sequence, seed, chain)
    assert batch is not None
    assert [frame for _, frame in batch.frames] == content
    assert (batch.sequence, batch.end, batch.chain) == (sequence, position + len(data), end_chain)


@pytest.mark.parametrize(
    ("position", "sequence", "seed", "chain"), [(16, 9, 1, 2), (8, 10, 1, 2), (8, 9, 2, 2), (8, 9, 1, 3)]
)
def test_batch_counts_only_in_its_place(position: int, sequence: int, seed: int, chain: int) -> None:
    data, _ = encode_batch([Frame(frames.ENTRY, 1, 1, b"x")], 9, 8, 1, 2)
    with pytest.raises(BadBatch):
        decode_batch(bytes(position) + data, position, sequence, seed, chain)


@pytest.mark.parametrize(("sequence", "count"), [(9, 60), (8, 70)])
def test_commit_frame_has_to_fit_to_its_batch(sequence: int, count: int) -> None:
    data, _ = encode_batch([Frame(frames.ENTRY, 1, 1, bytes(21))], 9, 0, 1, 2)
    commit_at = 24 + 21 + 21 + 4
    chain = int.from_bytes(data[commit_at - 4 : commit_at], "big")
    for found_sequence, found_count in ((9, commit_at), (sequence, count)):
        commit = struct.pack(">IBQQI", 4, frames.COMMIT, 0, found_sequence, found_count)
        checksum = google_crc32c.extend(chain, commit).to_bytes(4, "big")
        changed = (data[:commit_at] + commit + checksum).ljust(len(data), b"\0")
        if changed == data:
            continue
        with pytest.raises(BadBatch, match="does not close batch 9"):
            decode_batch(changed, 0, 9, 1, 2)


def test_zeroes_are_the_unwritten_end() -> None:
    assert decode_batch(bytes(100), 8, 1, 0, 0) is None
    assert decode_batch(bytes(8), 8, 1, 0, 0) is None
    with pytest.raises(BadBatch, match="no batch head"):
        decode_batch(bytes(60) + b"x", 8, 1, 0, 0)


@given(
    st.builds(
        HardState,
        st.integers(0, 2**64 - 1),
        st.none() | st.integers(1, 2**31 - 1),
        st.integers(0, 2**64 - 1),
        st.booleans(),
    )
)
def test_hard_state_round_trip(state: HardState) -> None:
    assert frames.decode_hard_state(frames.hard_state_frame(state)) == state


def test_batch_above_the_limit_is_refused() -> None:
    big = Frame(frames.ENTRY, 1, 1, bytes(frames.MAX_BATCH_BYTES // 8))
    with pytest.raises(AssertionError, match="above the limit"):
        encode_batch([big] * 9, 1, 0, 0, 0)


def test_format_is_pinned() -> None:
    content = [
        frames.hard_state_frame(HardState(term=3, vote=2, commit=7, recovering=True)),
        Frame(frames.BASE, 2, 5),
        Frame(frames.ENTRY, 3, 8, b"payload"),
        Frame(frames.RESTART, 4, 9),
        Frame(frames.CLOSE, 0, 0),
    ]
    golden = (GOLDEN / "wal-batch.bin").read_bytes()
    assert encode_batch(content, 11, 0, 12345, 67890)[0] == golden
    batch = decode_batch(golden, 0, 11, 12345, 67890)
    assert batch is not None
    assert [frame for _, frame in batch.frames] == content
