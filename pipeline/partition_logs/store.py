"""The object store that an audit is given: a directory here or elsewhere, and whose it is."""

from __future__ import annotations

import uuid
from typing import Any, Final, NamedTuple

import msgspec

from pidkeeper.pipeline.files.location import Location, locate

NAME: Final = "store.json"
MAX_BYTES: Final = 4096
"""Of that file, which has a uuid and a number."""
FORMAT: Final = 1
"""Of the store's names, as this audit knows them."""


class _Identity(msgspec.Struct, frozen=True):
    format: int
    store_id: uuid.UUID


class Store(NamedTuple):
    """Where it is, and what is wrong with it as a whole, by the check that says so. `readable`: its objects count."""

    place: Location
    check: str | None = None
    detail: str | None = None
    readable: bool = True


def open_store(path: str, con: Any, foreign: list[int]) -> Store:
    """The store at a path or a URI, compared with the one that members' files name. Raises OSError."""
    place = locate(path)
    rows = con.execute(
        "select mode(store_id) from views where store_id is not null and not list_contains(?, member_id)", [foreign]
    ).fetchall()
    due = rows[0][0]
    try:
        found = msgspec.json.decode((place / NAME).read(MAX_BYTES), type=_Identity)
    except FileNotFoundError:
        return Store(place, "objects" if due else None, f"{place / NAME} is missing, which says whose the store is")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Store(place, "objects", f"{place / NAME} is no identity of a store: {error}")
    if found.format != FORMAT:
        raise OSError(f"{place} has format {found.format}, and this audit knows {FORMAT} alone")
    if due is not None and str(found.store_id) != due:
        detail = f"{place} is store {found.store_id}, and the cluster's is {due}: its objects were left out"
        return Store(place, "identity", detail, readable=False)
    return Store(place)
