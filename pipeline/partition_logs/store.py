"""The object store that an audit is given: whose it is, and what is in it."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from pidkeeper.pipeline.files.location import Location, locate

NAME: Final = "store.json"
MAX_BYTES: Final = 4096
"""Of that file, which has a uuid and a number."""
FORMAT: Final = 1
"""Of the store's names, as this audit knows them."""
FOLDERS: Final = ("wal", "segments")
"""Where objects of batches are, and segments: `<folder>/<founding>/<broker id>/<broker epoch>/<number>`; a segment has
its files below that."""
STORED: Final = pa.schema([("object", pa.string()), ("stored_size", pa.int64()), ("stamp", pa.string())])


class _Identity(msgspec.Struct, frozen=True):
    format: int
    store_id: uuid.UUID


class ListedStore(NamedTuple):
    """A store as it was before members' files were read. `store_id`: None with a reason in `problem`.

    objects: a table of STORED.
    """

    place: Location
    store_id: str | None
    problem: str | None
    objects: Any


def list_store(path: str) -> ListedStore:
    """The store at a path or a URI. Raises OSError, also for a format that this audit does not know."""
    place = locate(path)
    listed: list[tuple[str, int, str]] = []
    for folder in FOLDERS:
        with suppress(FileNotFoundError, NotADirectoryError):
            listed += [(f"{folder}/{one.name}", one.size, one.stamp) for one in (place / folder).below()]
    columns = zip(*listed, strict=True) if listed else ([], [], [])
    objects = pa.table([pa.array(column, field.type) for column, field in zip(columns, STORED, strict=True)], STORED)
    try:
        found = msgspec.json.decode((place / NAME).read(MAX_BYTES), type=_Identity)
    except (FileNotFoundError, NotADirectoryError):
        return ListedStore(place, None, f"{place / NAME} is missing, which says whose the store is", objects)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return ListedStore(place, None, f"{place / NAME} is no identity of a store: {error}", objects)
    if found.format != FORMAT:
        raise OSError(f"{place} has format {found.format}, and this audit knows {FORMAT} alone")
    return ListedStore(place, str(found.store_id), None, objects)


class Store(NamedTuple):
    """A store beside the members. `check`, `detail`: what is wrong with all of it; `readable`: its objects count."""

    place: Location
    check: str | None = None
    detail: str | None = None
    readable: bool = True


def compare(listed: ListedStore, con: Any, foreign: list[int]) -> Store:
    """Whether it is the one that the members' files name."""
    named = con.execute(
        "select mode(store_id) from views where store_id is not null and not list_contains(?, member_id)", [foreign]
    ).fetchall()
    ((due,),) = named
    if listed.problem is not None:
        return Store(listed.place, "objects", listed.problem)
    if due is not None and listed.store_id != due:
        detail = f"{listed.place} is store {listed.store_id}, and the cluster's is {due}: its objects were left out"
        return Store(listed.place, "identity", detail, readable=False)
    return Store(listed.place)
