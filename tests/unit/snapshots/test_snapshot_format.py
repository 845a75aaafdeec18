from __future__ import annotations

from pathlib import Path

import google_crc32c
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.metadata_version import BASE, LATEST, MEMBERSHIP, MIGRATION, TRANSACTIONAL_BLOCKS, TRANSACTIONS
from pidkeeper.protocol.migration import MigrationPhase, MigrationRecord
from pidkeeper.protocol.records import QuorumMember, VotersRecord
from pidkeeper.protocol.transactions import TopicPartitions, TransactionRecord
from pidkeeper.snapshots import snapshot_format
from pidkeeper.snapshots.image import BrokerRegistration, IdRange, LastBlock, StateImage
from pidkeeper.snapshots.snapshot_format import (
    PIECE_BYTES,
    NewerSnapshot,
    SnapshotError,
    check_snapshot,
    decode_snapshot,
    encode_snapshot,
)
from tests.support.snapshot_file import encoded_at_once, snapshot_file

GOLDEN = Path(__file__).parents[2] / "golden"
IMAGE = StateImage(
    version=1,
    index=77,
    term=5,
    next_offset=300,
    next_producer_id=3000,
    last_block=LastBlock(2000, 1000, 2, 40, 299, 1_700_000_000_000),
    brokers=[
        BrokerRegistration(1, 12, "inc-1", False, ()),
        BrokerRegistration(2, 40, "inc-3", True, ("inc-1", "inc-2")),
    ],
)

names = st.text(min_size=1, max_size=20)
brokers = st.dictionaries(
    st.integers(0, 2**31 - 1),
    st.tuples(st.integers(0, 2**63), names, st.booleans(), st.lists(names, max_size=3)),
    max_size=5,
).map(
    lambda found: [
        BrokerRegistration(broker_id, epoch, incarnation, fenced, tuple(superseded))
        for broker_id, (epoch, incarnation, fenced, superseded) in sorted(found.items())
    ]
)
counts = st.integers(0, 2**63)


@given(counts, counts, counts, st.integers(0, MAX_PRODUCER_ID), brokers)
def test_round_trip(index: int, term: int, offset: int, next_producer_id: int, found: list[BrokerRegistration]) -> None:
    image = StateImage(1, index, term, offset, next_producer_id, None, found)
    assert decode_snapshot(snapshot_file("cluster-a", image), "x.snap", "cluster-a") == image


def test_format_is_pinned() -> None:
    golden = (GOLDEN / "snapshot.bin").read_bytes()
    assert snapshot_file("cluster-a", IMAGE) == golden
    assert decode_snapshot(golden, "x.snap", None) == IMAGE


@pytest.mark.parametrize("count", [0, 1, 15, 16, 2**16 - 1, 2**16])
def test_the_pieces_are_what_an_encoder_makes_of_the_whole_state(count: int) -> None:
    transactions = [msgspec.structs.replace(EMPTY, transactional_id=f"{number:09}") for number in range(count)]
    image = msgspec.structs.replace(IMAGE, version=LATEST, transactions=transactions)
    pieces = list(encode_snapshot("cluster-a", image))
    assert b"".join(pieces)[100:-4] == encoded_at_once(image)
    assert all(PIECE_BYTES <= len(piece) < PIECE_BYTES + 1000 for piece in pieces[:-1])
    assert len(pieces[-1]) < PIECE_BYTES + 1000


def test_who_encodes_may_rest_between_rows() -> None:
    transactions = [msgspec.structs.replace(EMPTY, transactional_id=f"{number:09}") for number in range(100)]
    image = msgspec.structs.replace(IMAGE, version=LATEST, transactions=transactions)
    rests = 0

    def rest() -> None:
        nonlocal rests
        rests += 1

    pieces = encode_snapshot("cluster-a", image, rest)
    # To know the size, which stands before the rows, they are encoded twice.
    assert rests >= 100
    list(pieces)
    assert rests >= 200


VOTERS = VotersRecord((QuorumMember(1, None, "h:1", "http://h:2", True),))


def test_a_configuration_needs_a_metadata_version_that_has_one() -> None:
    for voters in (VOTERS, None):
        image = msgspec.structs.replace(IMAGE, version=MEMBERSHIP, voters=voters)
        assert decode_snapshot(snapshot_file("cluster-a", image), "x.snap", None) == image
    with pytest.raises(ValueError, match="image of version 1 with voters"):
        msgspec.structs.replace(IMAGE, version=BASE, voters=VOTERS)


EMPTY = TransactionRecord("a", 7, 0, -1, -1, 60_000, 0, 1)
ONGOING = TransactionRecord("b", 8, 2, 8, 1, 60_000, 1, 9, (TopicPartitions("t", (0, 300, 2**31 - 1)),), 4)


def test_transactions_come_back_as_they_went() -> None:
    image = msgspec.structs.replace(IMAGE, version=TRANSACTIONS, transactions=[EMPTY, ONGOING])
    data = snapshot_file("cluster-a", image)
    assert decode_snapshot(data, "x.snap", None) == image
    assert type(decode_snapshot(data, "x.snap", None)) is StateImage
    check_snapshot(data, "x.snap", "cluster-a")


@pytest.mark.parametrize("damage", ["order", "type", "number", "version"])
def test_transactions_that_no_member_writes_are_refused(damage: str) -> None:
    """The checksum is right: somebody wrote it so."""
    image = msgspec.structs.replace(IMAGE, version=TRANSACTIONS, transactions=[EMPTY, ONGOING])
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(image))
    if damage == "order":
        state["transactions"].reverse()
    elif damage == "version":
        state["version"] = MEMBERSHIP
    else:
        state["transactions"][1] = [3, None] if damage == "type" else {**dict.fromkeys("ab")}
    body = msgspec.msgpack.encode(state)
    whole = snapshot_file("cluster-a", image)
    data = whole[:92] + len(body).to_bytes(8, "big") + body
    data += google_crc32c.value(data).to_bytes(4, "big")
    check_snapshot(data, "x.snap", "cluster-a")
    with pytest.raises(SnapshotError, match=r"snapshot x\.snap: "):
        decode_snapshot(data, "x.snap", "cluster-a")


@pytest.mark.parametrize("phase", list(MigrationPhase)[1:])
def test_a_migration_needs_a_metadata_version_that_has_one(phase: MigrationPhase) -> None:
    record = MigrationRecord(phase, "q", 3, 5)
    image = msgspec.structs.replace(IMAGE, version=MIGRATION, migration=record)
    data = snapshot_file("cluster-a", image)
    assert decode_snapshot(data, "x.snap", None) == image
    assert msgspec.msgpack.decode(data[100:-4])["migration"] == [phase.value, "q", 3, 5]
    with pytest.raises(ValueError, match="image of version 3 with migration"):
        msgspec.structs.replace(IMAGE, version=TRANSACTIONS, migration=record)
    # Without one, nothing of it is in the file.
    assert b"migration" not in snapshot_file("cluster-a", msgspec.structs.replace(IMAGE, version=MIGRATION))


OWN = msgspec.structs.replace(
    IMAGE,
    version=TRANSACTIONAL_BLOCKS,
    last_block=LastBlock(2990, 10, -1, -1, 299, 7),
    transactions=[EMPTY, ONGOING],
    own_ids=(IdRange(9, 9), IdRange(2990, 2999)),
)


def test_the_format_with_own_ids_is_pinned() -> None:
    golden = (GOLDEN / "snapshot-own-ids.bin").read_bytes()
    assert snapshot_file("cluster-a", OWN) == golden
    assert decode_snapshot(golden, "x.snap", None) == OWN
    assert b"own_ids" not in snapshot_file("cluster-a", msgspec.structs.replace(OWN, own_ids=()))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"version": TRANSACTIONAL_BLOCKS - 1}, "version 5 with own IDs"),
        ({"version": TRANSACTIONAL_BLOCKS - 1, "own_ids": ()}, "version 5 with own IDs"),
        ({"version": TRANSACTIONAL_BLOCKS - 1, "last_block": None}, "version 5 with own IDs"),
        ({"last_block": LastBlock(2990, 10, -1, 4, 299, 7)}, "broker -1 with epoch 4"),
        ({"last_block": LastBlock(2990, 10, 4, -1, 299, 7)}, "broker 4 with epoch -1"),
        ({"own_ids": (IdRange(8, 9),)}, "transactional ids have some below 9"),
        ({"own_ids": (IdRange(10, 12), IdRange(12, 13))}, "do not ascend"),
        ({"own_ids": (IdRange(20, 22), IdRange(12, 13))}, "do not ascend"),
        ({"own_ids": (IdRange(2990, 3000),)}, "reach above the next producer ID 3000"),
    ],
)
def test_own_ids_that_no_member_has_are_refused(changes: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        msgspec.structs.replace(OWN, **changes)


def test_own_ids_are_at_most_two_ranges() -> None:
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(OWN))
    state["own_ids"].append({"first": 2000, "last": 2001})
    with pytest.raises(msgspec.ValidationError, match="length <= 2"):
        msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=StateImage)
    with pytest.raises(ValueError, match="IDs 5 to 4 are not a range"):
        IdRange(5, 4)


def test_a_snapshot_of_a_newer_build_is_told_from_a_damaged_one() -> None:
    newer = msgspec.structs.replace(IMAGE, version=LATEST + 1)
    with pytest.raises(
        NewerSnapshot,
        match=rf"x\.snap: its metadata version is {LATEST + 1}, this build reads {LATEST} at most: upgrade",
    ):
        decode_snapshot(snapshot_file("cluster-a", newer), "x.snap", None)


def test_every_flipped_bit_is_refused() -> None:
    data = snapshot_file("cluster-a", IMAGE)
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(SnapshotError, match=r"snapshot x\.snap: "):
            decode_snapshot(bytes(damaged), "x.snap", "cluster-a")
        with pytest.raises(SnapshotError, match=r"snapshot x\.snap: "):
            check_snapshot(bytes(damaged), "x.snap", "cluster-a")


def test_every_other_length_is_refused() -> None:
    data = snapshot_file("cluster-a", IMAGE)
    for damaged in [data[:cut] for cut in range(len(data))] + [data + b"\0", data + data]:
        with pytest.raises(SnapshotError):
            decode_snapshot(damaged, "x.snap", "cluster-a")


def test_another_clusters_snapshot_is_refused() -> None:
    with pytest.raises(SnapshotError, match=r"x\.snap: it is of cluster cluster-a, not of cluster-b"):
        decode_snapshot(snapshot_file("cluster-a", IMAGE), "x.snap", "cluster-b")


def _with_body(body: bytes, version: int = 1, length: int | None = None) -> bytes:
    data = snapshot_format._HEADER.pack(
        b"PIDSNAP1", version, b"c".ljust(64, b"\0"), 77, 5, len(body) if length is None else length
    )
    return data + body + int(google_crc32c.value(data + body)).to_bytes(4, "big")


BODY = msgspec.msgpack.encode(IMAGE)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (_with_body(BODY, version=2), "unknown snapshot version 2"),
        (
            _with_body(msgspec.msgpack.encode(msgspec.structs.asdict(IMAGE) | {"version": LATEST + 1})),
            f"its metadata version is {LATEST + 1}, this build reads {LATEST}",
        ),
        (_with_body(msgspec.msgpack.encode({"version": 1, "extra": 2})), "unknown field"),
        (_with_body(msgspec.msgpack.encode(msgspec.structs.replace(IMAGE, index=78))), "header names entry 77"),
        (_with_body(msgspec.msgpack.encode(msgspec.structs.asdict(IMAGE) | {"next_offset": -1})), ">= 0"),
        (
            _with_body(msgspec.msgpack.encode(msgspec.structs.asdict(IMAGE) | {"brokers": IMAGE.brokers[::-1]})),
            "do not ascend",
        ),
        (
            _with_body(msgspec.msgpack.encode(msgspec.structs.asdict(IMAGE) | {"migration": [2, "q", 3, 5]})),
            "image of version 1 with migration",
        ),
        (
            _with_body(
                msgspec.msgpack.encode(msgspec.structs.asdict(IMAGE) | {"version": 4, "migration": [9, "q", 3, 5]})
            ),
            "Invalid enum value 9",
        ),
        (_with_body(BODY, length=3), "names 3 bytes"),
        (_with_body(b"\xc1"), "malformed"),
        (_with_body(b"\x81\xa1x" + b"\x91" * 5000), "recursion"),
    ],
)
def test_content_that_no_member_writes_is_refused_by_name(data: bytes, message: str) -> None:
    with pytest.raises(SnapshotError, match=message):
        decode_snapshot(data, "x.snap", "c")


def test_brokers_ascend_and_the_last_block_is_below_the_next_id() -> None:
    with pytest.raises(ValueError, match="do not ascend"):
        msgspec.structs.replace(IMAGE, brokers=[IMAGE.brokers[0], IMAGE.brokers[0]])
    with pytest.raises(ValueError, match="above the next producer ID 2999"):
        msgspec.structs.replace(IMAGE, next_producer_id=2999)


def test_oversized_snapshot_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_format, "MAX_SNAPSHOT_BYTES", 100)
    with pytest.raises(SnapshotError, match="above the limit of 100"):
        snapshot_file("c", IMAGE)
