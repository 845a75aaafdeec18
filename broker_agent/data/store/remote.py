"""An object store of a cloud, or one that speaks S3: through obstore, which is Rust's object_store.

An object is put only where there is none ("If-None-Match: *" in S3, its like in GCS and Azure), so that nothing changes
what is stored. Each request is sent once: retries are the caller's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

import obstore
from obstore import exceptions
from obstore.store import AzureStore, GCSStore, S3Store

from pidkeeper.broker_agent.data.store.port import (
    MAX_CREATED_BYTES,
    ObjectMissingError,
    StoredObject,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
    check_listing,
    check_name,
    check_names,
    check_pieces,
    check_range,
    is_name,
)
from pidkeeper.broker_agent.data.store.remote_settings import check_remote_settings, client_settings, settings_of

SCHEMES: Final = ("s3", "gs", "az")
CONNECT_SECONDS: Final = 5
REQUEST_SECONDS: Final = 20
"""The largest object at 1 MiB a second takes 16."""
CALL_SECONDS: Final = 45.0
"""Of a call: two requests of an object that is there already, or a listing of some pages."""
PARALLEL_DELETIONS: Final = 16
"""Where names are deleted one by one: a thousand at 20 ms each take little more than a second."""
MAX_MESSAGE_CHARS: Final = 400
"""What is told of the store's own words: the request, its status and the code; the rest repeats them."""
_CLIENT: Final = {"connect_timeout": timedelta(seconds=CONNECT_SECONDS), "timeout": timedelta(seconds=REQUEST_SECONDS)}
_ONCE: Final = {"max_retries": 0, "retry_timeout": timedelta(seconds=REQUEST_SECONDS)}
_NO_BUCKET: Final = re.compile(r"NoSuchBucket|ContainerNotFound|(bucket|container) does not exist", re.IGNORECASE)
_NOT_ALLOWED: Final = re.compile(r"status code: 40[13]|AccessDenied")
_BEHIND_THE_END: Final = re.compile(r"status code: 416|range start(?:ed|ing) at .* (?:length|long)", re.IGNORECASE)
_QUERY: Final = re.compile(r"(?<=://)([^\s?]*)\?\S+")
_TOOK: Final = re.compile(r" in [0-9.]+(?:ns|µs|ms|s)\b")
_REFUSED: Final = (
    exceptions.PermissionDeniedError,
    exceptions.UnauthenticatedError,
    exceptions.NotSupportedError,
    exceptions.InvalidPathError,
)


class RemoteStore:
    """`ObjectStore` over `store`, one of obstore's, in which all names get `prefix`, empty or a name and a slash."""

    def __init__(self, store: Any, prefix: str = "") -> None:
        self._store = store
        self._prefix = prefix

    async def put(self, name: str, pieces: Sequence[bytes]) -> None:
        check_name(name)
        size = check_pieces(pieces)
        data = b"".join(pieces)
        with _translated(name):
            async with asyncio.timeout(CALL_SECONDS):
                if not await self._create(name, data) and await self._content(name, size) != data:
                    raise StoreRefusedError(f"{name} is there with other bytes: nothing may be put over it")

    async def create(self, name: str, data: bytes) -> bytes:
        check_name(name)
        check_pieces([data], MAX_CREATED_BYTES)
        with _translated(name):
            async with asyncio.timeout(CALL_SECONDS):
                if await self._create(name, data):
                    return data
                stored = await self._content(name, MAX_CREATED_BYTES)
        if stored is None:
            raise StoreRefusedError(f"{name} is larger than {MAX_CREATED_BYTES} bytes: it was not made by create")
        return stored

    async def read(self, name: str, start: int, length: int) -> bytes:
        check_name(name)
        check_range(start, length)
        with _translated(name):
            async with asyncio.timeout(CALL_SECONDS):
                data = await obstore.get_range_async(self._store, self._prefix + name, start=start, length=length)
        if len(data) != length:
            raise StoreError(f"{name} ends before byte {start + length}")
        return bytes(data)

    async def list(self, prefix: str, after: str, limit: int) -> list[StoredObject]:
        check_listing(prefix, after, limit)
        found: list[StoredObject] = []
        stream = obstore.list(
            self._store,
            self._prefix + prefix or None,
            offset=(after and self._prefix + after) or None,
            chunk_size=limit,
        )
        with _translated(prefix):
            async with asyncio.timeout(CALL_SECONDS):
                async for rows in stream:
                    found += self._rows(rows)
                    if len(found) >= limit:
                        break
        names = [row.name for row in found]
        if any(low >= high for low, high in zip([after, *names], names, strict=False)):
            raise StoreRefusedError(f"the store lists {prefix} in another order than that of the names' bytes")
        return found[:limit]

    async def delete(self, names: Sequence[str]) -> None:
        check_names(names)
        if not names:
            return
        paths = [self._prefix + name for name in names]
        with _translated(names[0]):
            async with asyncio.timeout(CALL_SECONDS):
                try:
                    await obstore.delete_async(self._store, paths)
                except FileNotFoundError as error:
                    _check_bucket(error)
                    # A store that deletes one by one stops at the first that is missing.
                    await self._delete_each(paths)

    async def close(self) -> None:
        pass

    async def _create(self, name: str, data: bytes) -> bool:
        """Whether the name was free. Raises StoreRefusedError if there is no bucket."""
        try:
            await obstore.put_async(self._store, self._prefix + name, data, mode="create", use_multipart=False)
        except exceptions.AlreadyExistsError:
            return False
        except FileNotFoundError as error:
            raise StoreRefusedError(f"there is no bucket to put {name} into: {_words(error)}") from error
        return True

    async def _content(self, name: str, max_bytes: int) -> bytes | None:
        """All of an object that was there a moment ago; None if it is larger."""
        try:
            found = await obstore.get_async(self._store, self._prefix + name)
            return bytes(await found.bytes_async()) if found.meta["size"] <= max_bytes else None
        except FileNotFoundError as error:
            raise StoreUnavailableError(f"{name} was there, and then was not: somebody deletes it") from error

    def _rows(self, rows: Sequence[Any]) -> Iterator[StoredObject]:
        for row in rows:
            name = row["path"].removeprefix(self._prefix)
            if is_name(name):
                yield StoredObject(name, row["size"])

    async def _delete_each(self, paths: Sequence[str]) -> None:
        for first in range(0, len(paths), PARALLEL_DELETIONS):
            group = paths[first : first + PARALLEL_DELETIONS]
            calls = (obstore.delete_async(self._store, path) for path in group)
            for result in await asyncio.gather(*calls, return_exceptions=True):
                if isinstance(result, BaseException) and not isinstance(result, FileNotFoundError):
                    raise result


def open_remote(url: str, options: Mapping[str, str]) -> RemoteStore:
    """The store at `s3://bucket/prefix`, `gs://…` or `az://container/…`; nothing is sent yet.

    `options`: obstore's configuration of that store, as `region`, `endpoint` or `account_name`; what is not given comes
    from the environment. Raises ValueError.
    """
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise ValueError(f"{parts.scheme}:// is no kind of store; there are {', '.join(SCHEMES)}")
    if not parts.netloc or set(parts.netloc) & set("@:") or parts.query or parts.fragment:
        raise ValueError(f"a store is given as {parts.scheme}://BUCKET or {parts.scheme}://BUCKET/PREFIX, and no more")
    settings = settings_of(parts.scheme, options, os.environ)
    check_remote_settings(settings)
    prefix = parts.path.strip("/")
    if prefix:
        check_name(prefix)
        prefix += "/"
    kind: Any = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}[parts.scheme]
    client = client_settings(settings) | _CLIENT
    try:
        store = kind(parts.netloc, config=dict(options), client_options=client, retry_config=_ONCE)
    except exceptions.BaseError as error:
        raise ValueError(f"the options of the store {parts.netloc}: {_words(error)}") from error
    return RemoteStore(store, prefix)


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    """Raise StoreError for what obstore raises."""
    try:
        yield
    except FileNotFoundError as error:
        _check_bucket(error)
        raise ObjectMissingError(f"there is no {what}") from error
    except TimeoutError as error:
        raise StoreUnavailableError(f"the store did not answer in {CALL_SECONDS} s") from error
    except (exceptions.BaseError, OSError, ValueError) as error:
        _check_bucket(error)
        # Of a listing or a bulk deletion, obstore tells the kind of error in its text alone.
        if isinstance(error, _REFUSED) or _NOT_ALLOWED.search(str(error)):
            raise StoreRefusedError(f"the store refuses: check credentials and rights: {_words(error)}") from error
        if _BEHIND_THE_END.search(str(error)):
            raise StoreError(f"{what} ends before the range that was asked for") from error
        raise StoreUnavailableError(f"the store failed: {_words(error)}") from error


def _check_bucket(error: Exception) -> None:
    if _NO_BUCKET.search(str(error)):
        raise StoreRefusedError(f"there is no bucket of that name, make it first: {_words(error)}") from error


def _words(error: Exception) -> str:
    """What the store said, on one line, without what is in URLs behind a question mark: that may be a signature.

    Nor how long it took: the same failure is told in the same words, so that whoever repeats it can tell.
    """
    said = str(error).partition("\n\n")[0].replace("\n", " ")
    return _TOOK.sub("", _QUERY.sub(r"\1?…", said))[:MAX_MESSAGE_CHARS]
