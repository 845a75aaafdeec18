from __future__ import annotations

import asyncio
import uuid

import msgspec
import pytest

from pidkeeper.broker_agent.data.store.identity import NAME, store_uuid
from pidkeeper.broker_agent.data.store.memory import MemoryStore
from pidkeeper.broker_agent.data.store.port import ObjectStore, StoreRefusedError

ID = uuid.UUID(int=7)


async def test_all_agents_of_a_store_agree_on_its_identity(store: ObjectStore) -> None:
    found = await asyncio.gather(*(store_uuid(store) for _ in range(4)))
    assert found == [await store_uuid(store)] * 4
    size = (await store.list("", "", 1))[0].size
    assert msgspec.json.decode(await store.read(NAME, 0, size)) == {"store_id": str(found[0]), "format": 1}


async def test_two_stores_differ() -> None:
    assert await store_uuid(MemoryStore()) != await store_uuid(MemoryStore())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"store_id":"%s","format":2,"more":[]}' % str(ID).encode(), "has format 2; this build knows 1"),
        (b'{"store_id":"%s","format":1,"more":1}' % str(ID).encode(), "unknown field `more`"),
        (b'{"store_id":"%s"}' % str(ID).encode(), "missing required field `format`"),
        (b'{"store_id":"%s","format":"1"}' % str(ID).encode(), "Expected `int`"),
        (b'{"store_id":"7","format":1}', "UUID"),
        (b'{"format":1}', "missing required field `store_id`"),
        (b"[]", "Expected `object`"),
        (b"\xff\0", "is no identity of a store"),
    ],
)
async def test_what_is_no_identity_is_refused_with_its_fault(content: bytes, message: str) -> None:
    store = MemoryStore()
    await store.put(NAME, [content])
    with pytest.raises(StoreRefusedError, match=message):
        await store_uuid(store)


async def test_a_known_identity_is_read() -> None:
    store = MemoryStore()
    await store.put(NAME, [b'{"store_id":"%s","format":1}' % str(ID).encode()])
    assert await store_uuid(store) == ID
