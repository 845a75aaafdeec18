"""The data of the znode: Kafka's own bytes, refusals that say what is wrong, and which IDs are free after a block."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pidkeeper.controller.migration.znode import (
    MAX_ZNODE_BLOCK,
    MAX_ZNODE_BYTES,
    ZnodeBlock,
    ZnodeError,
    claim,
    encode,
    lowers,
    next_free,
    parse,
    seal,
    went_back,
)
from pidkeeper.protocol.ids import MAX_BROKER_ID, MAX_PRODUCER_ID
from pidkeeper.protocol.migration import CONTROLLER, MAX_CLAIMED_BY_LENGTH
from tests.support.memory_znode import kafka_block

NAME = "pidkeeper/c/0123456789abcdef0123456789abcdef"
FIELDS: dict[str, Any] = {"version": 1, "broker": 7, "block_start": "1000", "block_end": "1999"}

ids = st.integers(0, MAX_PRODUCER_ID)
names = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=MAX_CLAIMED_BY_LENGTH)
ranges = st.tuples(ids, ids).map(lambda pair: (min(pair), max(pair)))
broker_blocks = st.builds(
    lambda broker, ends: ZnodeBlock(broker, ends[0], ends[1]), st.integers(-1, MAX_BROKER_ID), ranges
)
claims = st.builds(lambda ends, name: ZnodeBlock(CONTROLLER, ends[0], ends[1], name), ranges, names)


def data(**changes: Any) -> bytes:
    return json.dumps(FIELDS | changes).encode()


def test_the_bytes_of_a_brokers_block_are_kafkas() -> None:
    golden = b'{"version":1,"broker":7,"block_start":"1000","block_end":"1999"}'
    assert encode(ZnodeBlock(7, 1000, 1999)) == golden == kafka_block(7, 1000, 1999)
    assert parse(golden) == ZnodeBlock(7, 1000, 1999)


def test_the_bytes_of_a_claim() -> None:
    golden = (
        b'{"version":1,"broker":-1,"block_start":"0","block_end":"9",'
        b'"claimed_by":"pidkeeper/c/0123456789abcdef0123456789abcdef"}'
    )
    assert encode(claim(0, 9, NAME)) == golden
    assert parse(golden) == ZnodeBlock(CONTROLLER, 0, 9, NAME)


def test_the_bytes_of_a_seal() -> None:
    golden = (
        b'{"version":1,"broker":-1,"block_start":"9223372036854774808","block_end":"9223372036854775807",'
        b'"claimed_by":"q"}'
    )
    assert encode(seal("q")) == golden
    block = parse(golden)
    assert block == seal("q")
    assert block is not None
    assert block.sealed
    assert block.last - block.first + 1 == 1000


@given(st.one_of(broker_blocks, claims))
def test_a_block_comes_back_as_it_went(block: ZnodeBlock) -> None:
    assert parse(encode(block)) == block
    # As Kafka reads it: a JSON object with numbers and strings where it has them.
    fields = json.loads(encode(block))
    assert list(fields)[:4] == ["version", "broker", "block_start", "block_end"]
    assert (int(fields["block_start"]), int(fields["block_end"])) == (block.first, block.last)


@given(claims)
def test_a_claim_always_fits_into_the_znode(block: ZnodeBlock) -> None:
    assert len(encode(block)) <= MAX_ZNODE_BYTES


def test_nothing_stored_is_no_block() -> None:
    assert parse(None) is None


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (b"", "bad JSON: "),
        (b"{", "bad JSON: "),
        (b"\xff\xfe\xfd", "bad JSON: "),
        (data()[:-1] + b',"x":"\xff"}', "bad JSON: .*utf-8"),
        (b"[" * 4000, "bad JSON: "),
        (b'{"broker":' + b"9" * 4080 + b"}", "unknown version null"),
        (b"null", "bad JSON: null is not an object"),
        (b"[1,2]", r"bad JSON: \[1, 2\] is not an object"),
        (b'"' + b"x" * 60 + b'"', 'bad JSON: "' + "x" * 36 + r"\.\.\. is not an object"),
        (b'"' + b"x" * 38 + b'"', 'bad JSON: "' + "x" * 38 + '" is not an object'),
        (b'"' + b"x" * 39 + b'"', 'bad JSON: "' + "x" * 36 + r"\.\.\. is not an object"),
        (data(version=2), "^unknown version 2: only version 1 is known$"),
        (data(version=0), "unknown version 0: "),
        (data(version=True), "unknown version true: "),
        (data(version=1.0), r"unknown version 1\.0: "),
        (data(version="1"), 'unknown version "1": '),
        (data(version=None), "unknown version null: "),
        (data(version=[1]), r"unknown version \[1\]: "),
        (b'{"broker":7,"block_start":"0","block_end":"9"}', "unknown version null: "),
        (b"{}", "unknown version null: "),
        (data(broker="7"), '^broker is "7", not the id of a broker$'),
        (data(broker=True), "broker is true, "),
        (data(broker=7.0), r"broker is 7\.0, "),
        (data(broker=None), "broker is null, "),
        (data(broker=-2), "broker is -2, "),
        (data(broker=2**31), "broker is 2147483648, "),
        (data(broker=10**400), r"broker is 1000000000000000000000000000000000000\.\.\., "),
        (b'{"version":1,"block_start":"0","block_end":"9"}', "broker is null, "),
        (data(block_start=1000), "^block_start is 1000, not a decimal number in quotes$"),
        (data(block_end=1999), "^block_end is 1999, not a decimal number in quotes$"),
        (data(block_end=None), "block_end is null, "),
        (data(block_start=""), 'block_start is "", '),
        (data(block_start="x"), 'block_start is "x", '),
        (data(block_start="1_000"), 'block_start is "1_000", '),
        (data(block_start=" 1"), 'block_start is " 1", '),
        (data(block_start="1\n"), r'block_start is "1\\n", '),
        (data(block_start="+1"), r'block_start is "\+1", '),
        (data(block_start="--1"), 'block_start is "--1", '),
        (data(block_start="\u0661"), r'block_start is "\\u0661", '),
        (data(block_end="1e3"), 'block_end is "1e3", '),
        (data(block_end="0x10"), 'block_end is "0x10", '),
        (data(block_end="1" * 41), r'block_end is "1{36}\.\.\., not'),
        (data(block_end="1" * 40), "^block_end is 1{40}, above the highest producer ID 9223372036854775807$"),
        (data(block_start="-1"), "^block_start is -1: producer IDs are not negative$"),
        (data(block_end="-1"), "block_end is -1: "),
        (data(block_end=str(2**63)), "block_end is 9223372036854775808, above the highest"),
        (data(block_start=str(2**63), block_end=str(2**63)), "block_start is 9223372036854775808, above"),
        (data(block_end="999"), "^block_end 999 is below block_start 1000$"),
    ],
)
def test_what_no_broker_writes_is_refused_by_name(stored: bytes, message: str) -> None:
    with pytest.raises(ZnodeError, match=message):
        parse(stored)


def test_a_size_that_no_broker_writes_is_refused_unread() -> None:
    whole = data(padding="x" * (MAX_ZNODE_BYTES - len(data(padding=""))))
    assert len(whole) == MAX_ZNODE_BYTES
    assert parse(whole) == ZnodeBlock(7, 1000, 1999)
    with pytest.raises(ZnodeError, match=r"^it holds 4097 bytes, a block takes 4096 at most$"):
        parse(whole + b" ")


@pytest.mark.parametrize("broker", [-1, 0, 2**31 - 1])
@pytest.mark.parametrize(("first", "last"), [(0, 0), (5, 5), (0, MAX_PRODUCER_ID), (MAX_PRODUCER_ID, MAX_PRODUCER_ID)])
def test_blocks_at_the_bounds_are_read(broker: int, first: int, last: int) -> None:
    assert parse(kafka_block(broker, first, last)) == ZnodeBlock(broker, first, last)


def test_other_keys_and_orders_are_read() -> None:
    assert parse(json.dumps(dict(reversed((FIELDS | {"more": [1]}).items()))).encode()) == ZnodeBlock(7, 1000, 1999)


@pytest.mark.parametrize(
    "claimed_by",
    [None, 1, "", "x" * 129, ["q"], "\ud800", "q\n", "caf\u00e9"],
    ids=["none", "number", "empty", "too long", "list", "half a character", "control", "not ascii"],
)
def test_a_name_that_no_quorum_has_makes_no_claim(claimed_by: object) -> None:
    block = parse(data(broker=-1, claimed_by=claimed_by))
    assert block == ZnodeBlock(CONTROLLER, 1000, 1999)


def test_the_longest_name_makes_a_claim() -> None:
    name = "x" * 128
    assert parse(data(broker=-1, claimed_by=name)) == ZnodeBlock(CONTROLLER, 1000, 1999, name)


@pytest.mark.parametrize("broker", [0, 7])
def test_a_name_that_a_broker_copied_is_no_claim(broker: int) -> None:
    block = parse(data(broker=broker, claimed_by=NAME))
    assert block == ZnodeBlock(broker, 1000, 1999)
    assert next_free(block, NAME, 0) == 2000


@pytest.mark.parametrize(
    ("block", "name", "quorum_next", "free"),
    [
        (None, NAME, 0, 0),
        (None, NAME, 50, 50),
        (None, None, 50, 50),
        # KAFKA-15552: the end plus one, not the start and not the end.
        (ZnodeBlock(7, 1000, 1999), NAME, 0, 2000),
        (ZnodeBlock(7, 1000, 1999), None, 0, 2000),
        (ZnodeBlock(7, 1000, 1999), NAME, 1999, 2000),
        (ZnodeBlock(7, 1000, 1999), NAME, 2001, 2001),
        (ZnodeBlock(CONTROLLER, 1000, 1999), NAME, 0, 2000),
        (ZnodeBlock(CONTROLLER, 1000, 1999), None, 0, 2000),
        (ZnodeBlock(CONTROLLER, 1000, 1999, NAME), NAME, 0, 1000),
        (ZnodeBlock(CONTROLLER, 1000, 1999, NAME), NAME, 1500, 1500),
        (ZnodeBlock(CONTROLLER, 1000, 1999, NAME), NAME, 2000, 2000),
        (ZnodeBlock(CONTROLLER, 1000, 1999, NAME), NAME, 2500, 2500),
        (ZnodeBlock(CONTROLLER, 1000, 1999, "another"), NAME, 1500, 2000),
        (ZnodeBlock(CONTROLLER, 1000, 1999, NAME), None, 1500, 2000),
        (seal(NAME), NAME, 1500, 1500),
        (seal("another"), NAME, 1500, MAX_PRODUCER_ID + 1),
        (seal(NAME), None, 1500, MAX_PRODUCER_ID + 1),
    ],
)
def test_the_lowest_id_that_is_free(block: ZnodeBlock | None, name: str | None, quorum_next: int, free: int) -> None:
    assert next_free(block, name, quorum_next) == free


@given(st.one_of(st.none(), broker_blocks, claims), names, ids)
def test_what_is_free_is_never_behind_the_quorum_or_in_anothers_block(
    block: ZnodeBlock | None, name: str, quorum_next: int
) -> None:
    free = next_free(block, name, quorum_next)
    assert free >= quorum_next
    if block is not None and block.claimed_by != name:
        assert free > block.last
    if block is not None and block.claimed_by == name and not block.sealed:
        assert free >= block.first
    assert free in {quorum_next, 0 if block is None else block.first, 0 if block is None else block.last + 1}


@pytest.mark.parametrize(
    ("block", "quorum_next", "expected"),
    [
        (None, 0, False),
        (None, 1, True),
        (ZnodeBlock(7, 0, 999), 1000, False),
        (ZnodeBlock(7, 0, 999), 1001, True),
        (ZnodeBlock(7, 0, 999), 0, False),
    ],
)
def test_a_znode_behind_the_quorum_went_back(block: ZnodeBlock | None, quorum_next: int, expected: bool) -> None:
    assert went_back(block, quorum_next) is expected


@pytest.mark.parametrize(
    ("first", "last", "start"),
    [(0, 9, 0), (0, MAX_ZNODE_BLOCK - 1, 0), (0, MAX_ZNODE_BLOCK, 1), (5, 2**62, 2**62 - 2**31 + 2)],
)
def test_a_claim_is_shortened_to_what_a_broker_can_read(first: int, last: int, start: int) -> None:
    block = claim(first, last, NAME)
    assert block == ZnodeBlock(CONTROLLER, start, last, NAME)
    assert block.last - block.first + 1 <= 2**31 - 1


@given(ranges, names)
def test_a_claim_keeps_its_end(ends: tuple[int, int], name: str) -> None:
    block = claim(*ends, name)
    assert block.last == ends[1]
    assert ends[0] <= block.first <= block.last
    assert block.last - block.first < 2**31 - 1


def test_only_a_quorum_seals() -> None:
    assert seal(NAME).sealed
    assert not ZnodeBlock(7, MAX_PRODUCER_ID - 999, MAX_PRODUCER_ID).sealed
    assert not ZnodeBlock(CONTROLLER, MAX_PRODUCER_ID - 999, MAX_PRODUCER_ID).sealed
    assert not ZnodeBlock(CONTROLLER, 0, MAX_PRODUCER_ID - 1, NAME).sealed


def test_which_write_lowers_the_znode() -> None:
    low, high = ZnodeBlock(3, 0, 9), ZnodeBlock(CONTROLLER, 5, 10, "n")
    assert [lowers(before, after) for before, after in ((high, low), (low, None), (high, None))] == [True] * 3
    same = replace(low, broker_id=4)
    legal = ((None, None), (None, low), (low, high), (low, same))
    assert [lowers(before, after) for before, after in legal] == [False] * 4
