"""Which store this is: a uuid in the store itself, so that agents find out that they do not see the same one."""

from __future__ import annotations

import uuid
from typing import Final

import msgspec

from pidkeeper.broker_agent.data.store.port import ObjectStore, StoreRefusedError

NAME: Final = "store.json"
FORMAT: Final = 1
"""Of what the store holds, and how it is named. Another number is refused."""


class _Format(msgspec.Struct, frozen=True):
    format: int


class _Identity(_Format, frozen=True, forbid_unknown_fields=True):
    store_id: uuid.UUID


async def store_uuid(store: ObjectStore) -> uuid.UUID:
    """The store's identity, which the first one to ask gives it.

    Raises StoreError, and StoreRefusedError if what is there is damaged, or of another format.
    """
    stored = await store.create(NAME, msgspec.json.encode({"store_id": uuid.uuid4(), "format": FORMAT}))
    try:
        # First and alone: another format may have other fields.
        found = msgspec.json.decode(stored, type=_Format).format
        if found != FORMAT:
            raise StoreRefusedError(f"{NAME} says that the store has format {found}; this build knows {FORMAT} alone")
        return msgspec.json.decode(stored, type=_Identity).store_id
    except msgspec.MsgspecError as error:
        raise StoreRefusedError(f"{NAME} is no identity of a store ({error}): is it something else's?") from error
