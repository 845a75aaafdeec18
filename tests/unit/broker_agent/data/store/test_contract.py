"""What every object store has to do: the same tests for the one in memory, in a directory and behind S3's protocol."""

from __future__ import annotations

import asyncio

import pytest

from pidkeeper.broker_agent.data.store.port import (
    MAX_CREATED_BYTES,
    MAX_DELETED,
    MAX_LISTED,
    MAX_NAME_BYTES,
    MAX_OBJECT_BYTES,
    MAX_SEGMENT_BYTES,
    ObjectMissingError,
    ObjectStore,
    StoredObject,
    StoreError,
    StoreRefusedError,
)

BAD_NAMES = (
    "", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "../a", "a/.", "a b", "a\\b", "a\0", "ä", "a\n", "~a", "a%2fb",
    "x" * (MAX_SEGMENT_BYTES + 1), "/".join(["x" * 99] * 6),
)  # fmt: skip


async def names(store: ObjectStore, prefix: str = "", after: str = "", limit: int = MAX_LISTED) -> list[str]:
    return [found.name for found in await store.list(prefix, after, limit)]


async def test_an_object_is_read_back_in_ranges(store: ObjectStore) -> None:
    await store.put("7/42/1", [b"hello ", b"", b"world"])
    assert await store.read("7/42/1", 0, 11) == b"hello world"
    assert await store.read("7/42/1", 4, 3) == b"o w"
    assert await store.read("7/42/1", 10, 1) == b"d"
    assert type(await store.read("7/42/1", 0, 1)) is bytes


async def test_the_largest_object_is_taken_and_no_larger_one(store: ObjectStore) -> None:
    half = bytes(MAX_OBJECT_BYTES // 2)
    await store.put("large", [half, half])
    assert await store.list("", "", 1) == [StoredObject("large", MAX_OBJECT_BYTES)]
    assert await store.read("large", MAX_OBJECT_BYTES - 3, 3) == b"\0\0\0"
    with pytest.raises(ValueError, match=f"1 to {MAX_OBJECT_BYTES} bytes"):
        await store.put("larger", [half, half, b"x"])
    assert await names(store) == ["large"]


@pytest.mark.parametrize("pieces", [[], [b""], [b"", b""]])
async def test_an_empty_object_is_refused(store: ObjectStore, pieces: list[bytes]) -> None:
    with pytest.raises(ValueError, match="not 0"):
        await store.put("empty", pieces)
    with pytest.raises(ValueError, match="not 0"):
        await store.create("empty", b"")


async def test_a_range_behind_the_end_is_an_error(store: ObjectStore) -> None:
    await store.put("a", [b"12345"])
    for start, length in ((0, 6), (4, 2), (5, 1), (1000, 1)):
        with pytest.raises(StoreError, match="a ends before") as raised:
            await store.read("a", start, length)
        assert type(raised.value) is StoreError
    for start, length in ((-1, 1), (0, 0), (0, -1), (0, MAX_OBJECT_BYTES + 1), (MAX_OBJECT_BYTES, 1)):
        with pytest.raises(ValueError, match="no range"):
            await store.read("a", start, length)


async def test_a_missing_object_is_named(store: ObjectStore) -> None:
    await store.put("a/b", [b"1"])
    for name in ("b", "a", "a/c", "c/d"):
        with pytest.raises(ObjectMissingError, match=f"there is no .*{name}"):
            await store.read(name, 0, 1)


async def test_the_same_bytes_may_be_put_again_and_no_others(store: ObjectStore) -> None:
    await store.put("a", [b"12", b"34"])
    await store.put("a", [b"1", b"234"])
    for other in (b"1235", b"123", b"12345", b"x"):
        with pytest.raises(StoreRefusedError, match="a is there with other bytes"):
            await store.put("a", [other])
    assert await store.read("a", 0, 4) == b"1234"
    assert await store.list("", "", 9) == [StoredObject("a", 4)]


async def test_create_gives_what_was_there_first(store: ObjectStore) -> None:
    assert await store.create("id", b"first") == b"first"
    assert await store.create("id", b"second") == b"first"
    assert await store.create("id", b"first") == b"first"


async def test_one_of_many_that_create_at_once_wins(store: ObjectStore) -> None:
    made = await asyncio.gather(*(store.create("id", b"%d" % number) for number in range(8)))
    assert len(set(made)) == 1
    assert await store.read("id", 0, 1) == made[0]


async def test_create_is_for_what_is_small(store: ObjectStore) -> None:
    with pytest.raises(ValueError, match=f"1 to {MAX_CREATED_BYTES} bytes"):
        await store.create("id", bytes(MAX_CREATED_BYTES + 1))
    await store.put("id", [bytes(MAX_CREATED_BYTES + 1)])
    with pytest.raises(StoreRefusedError, match=r"id (has|is larger)"):
        await store.create("id", b"x")


async def test_many_objects_at_once(store: ObjectStore) -> None:
    await asyncio.gather(*(store.put(f"1/{number}", [b"%d" % number]) for number in range(20)))
    assert sorted(await names(store)) == sorted(f"1/{number}" for number in range(20))
    found = await asyncio.gather(*(store.read(f"1/{number}", 0, 1) for number in range(10)))
    assert found == [b"%d" % number for number in range(10)]


async def test_listing_is_in_the_order_of_bytes_whatever_is_a_folder(store: ObjectStore) -> None:
    stored = ["a-b", "a.b", "a/b", "a0", "B", "a/-", "a/b-/c", "a_", "aa/b", "b/1", "b/10", "b/2", "a/b.c/d/e"]
    for name in stored:
        await store.put(name, [name.encode()])
    assert await store.list("", "", 99) == [StoredObject(name, len(name)) for name in sorted(stored)]
    for after in (*stored, "a", "a/", "a/b.c", "a/b.c/d", "0", "zz", "b/1.5"):
        if not after.endswith("/"):
            assert await names(store, after=after) == sorted(name for name in stored if name > after)
    for prefix in ("a/", "b/", "a/b.c/", "aa/", "c/", "a-b/"):
        below = sorted(name for name in stored if name.startswith(prefix))
        assert await names(store, prefix) == below
        assert await names(store, prefix, "a/b") == [name for name in below if name > "a/b"]


async def test_pages_of_a_listing_make_up_the_whole(store: ObjectStore) -> None:
    stored = sorted(f"{number % 3}/{number}" for number in range(17))
    await asyncio.gather(*(store.put(name, [b"x"]) for name in stored))
    for limit in (1, 4, 17, 18):
        found: list[str] = []
        while page := await names(store, after=found[-1] if found else "", limit=limit):
            assert len(page) <= limit
            found += page
        assert found == stored


async def test_what_is_no_listing_is_refused(store: ObjectStore) -> None:
    for limit in (0, -1, MAX_LISTED + 1):
        with pytest.raises(ValueError, match=f"1 to {MAX_LISTED} objects, not {limit}"):
            await store.list("", "", limit)
    for prefix in ("a", "/", "../", "a//"):
        with pytest.raises(ValueError, match=r"slash|no name"):
            await store.list(prefix, "", 1)
    with pytest.raises(ValueError, match="no name"):
        await store.list("", "a/", 1)


async def test_deleted_objects_are_gone_and_missing_ones_no_error(store: ObjectStore) -> None:
    for name in ("a", "b/1", "b/2", "c"):
        await store.put(name, [b"old"])
    await store.delete(["b/1", "nothing/here", "b", "a", "z"])
    await store.delete([])
    assert await names(store) == ["b/2", "c"]
    with pytest.raises(ObjectMissingError):
        await store.read("a", 0, 1)
    await store.put("a", [b"new"])
    assert await store.read("a", 0, 3) == b"new"


async def test_as_many_as_may_be_deleted_at_once_are(store: ObjectStore) -> None:
    await store.put("1/999", [b"x"])
    await store.delete([f"1/{number}" for number in range(MAX_DELETED)])
    assert await names(store) == []
    with pytest.raises(ValueError, match=f"{MAX_DELETED} objects at most"):
        await store.delete([f"1/{number}" for number in range(MAX_DELETED + 1)])


@pytest.mark.parametrize("name", BAD_NAMES)
async def test_a_bad_name_is_refused_by_every_call(store: ObjectStore, name: str) -> None:
    for call in (
        store.put(name, [b"x"]), store.create(name, b"x"), store.read(name, 0, 1), store.delete(["good", name]),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"no name of an object|bytes at most"):
            await call
    assert await names(store) == []


async def test_the_longest_names_are_taken(store: ObjectStore) -> None:
    longest = "/".join(["x" * MAX_SEGMENT_BYTES, "y" * (MAX_NAME_BYTES - MAX_SEGMENT_BYTES - 1 - 11), "z" * 10])
    deepest = "/".join("d" * (MAX_NAME_BYTES // 2))
    for name in (longest, deepest, "...", "..a", "-", "a..b/.c"):
        await store.put(name, [b"x"])
    assert await names(store) == sorted((longest, deepest, "...", "..a", "-", "a..b/.c"))


async def test_a_second_close_does_nothing(store: ObjectStore) -> None:
    await store.put("a", [b"x"])
    await store.close()
    await store.close()
