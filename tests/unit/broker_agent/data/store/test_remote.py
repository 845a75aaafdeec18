from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import obstore.store
import pytest

from pidkeeper.broker_agent.data.store import remote
from pidkeeper.broker_agent.data.store.port import ObjectStore, StoreError, StoreRefusedError, StoreUnavailableError
from pidkeeper.broker_agent.data.store.remote import PARALLEL_DELETIONS, RemoteStore, open_remote
from tests.support.gcs_store import GcsBucket
from tests.support.s3_store import S3Bucket

HOST = "127.0.0.1"
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def calls(store: ObjectStore) -> list[Awaitable[object]]:
    """One of each."""
    return [
        store.put("a", [b"x"]),
        store.create("a", b"x"),
        store.read("a", 0, 1),
        store.list("", "", 1),
        store.delete(["a"]),
    ]


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[Answer], Awaitable[RemoteStore]]]:
    """A store whose server answers each connection as it is told."""
    servers: list[asyncio.Server] = []
    under_way: set[asyncio.Task[None]] = set()

    async def start(answer: Answer) -> RemoteStore:
        async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            under_way.add(task)
            try:
                await answer(reader, writer)
            finally:
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()

        servers.append(await asyncio.start_server(serve_one, HOST, 0))
        address = servers[0].sockets[0].getsockname()
        keys = {"access_key_id": "x", "secret_access_key": "y", "region": "us-east-1", "allow_http": "true"}
        return open_remote("s3://bucket/a", keys | {"endpoint": f"http://{HOST}:{address[1]}"})

    yield start
    for server in servers:
        server.close()
        await server.wait_closed()
    # A connection that the loop's end closes would be the next test's warning.
    for task in under_way:
        task.cancel()
    await asyncio.gather(*under_way, return_exceptions=True)


async def test_a_missing_bucket_is_no_missing_object(s3: S3Bucket, gcs: GcsBucket) -> None:
    for store in (open_remote("s3://no-such-bucket/a", s3.options), open_remote("gs://no-such-bucket/a", gcs.options)):
        for call in calls(store):
            with pytest.raises(StoreRefusedError, match="there is no bucket"):
                await call


async def test_what_is_not_allowed_needs_an_operator(s3: S3Bucket) -> None:
    for call in calls(open_remote(f"s3://{s3.locked}", s3.options)):
        with pytest.raises(StoreRefusedError, match="check credentials"):
            await call


async def test_a_wrong_key_needs_an_operator(s3: S3Bucket) -> None:
    for call in calls(open_remote(s3.new_url(), s3.options | {"secret_access_key": "wrong"})):
        with pytest.raises(StoreRefusedError, match="check credentials") as raised:
            await call
        assert "wrong" not in str(raised.value)


async def test_nobody_without_credentials_is_let_in_by_google_either(gcs: GcsBucket) -> None:
    named = json.loads(gcs.options["service_account_key"]) | {"disable_oauth": True}
    for call in calls(open_remote(gcs.new_url(), gcs.options | {"service_account_key": json.dumps(named)})):
        with pytest.raises(StoreRefusedError, match="check credentials"):
            await call


async def test_two_prefixes_of_a_bucket_are_two_stores(s3: S3Bucket) -> None:
    one, other = (open_remote(f"s3://{s3.name}/shared/{name}", s3.options) for name in ("a", "ab"))
    await one.put("1", [b"one"])
    await other.put("1", [b"other"])
    assert await one.read("1", 0, 3) == b"one"
    assert [found.name for found in await one.list("", "", 9)] == ["1"]
    await one.delete(["1"])
    assert await other.read("1", 0, 5) == b"other"


async def test_names_that_we_do_not_give_are_not_listed(s3: S3Bucket) -> None:
    url = s3.new_url()
    store = open_remote(url, s3.options)
    await store.put("b", [b"x"])
    await obstore.put_async(store._store, url.removeprefix(f"s3://{s3.name}/") + "/a+b", b"x")
    assert [found.name for found in await store.list("", "", 9)] == ["b"]


async def test_a_store_that_is_not_there_is_retriable(s3: S3Bucket) -> None:
    for call in calls(open_remote(s3.new_url(), s3.options | {"endpoint": f"http://{HOST}:1"})):
        with pytest.raises(StoreUnavailableError, match="the store failed"):
            await call


async def test_a_silent_store_is_given_up(
    serve: Callable[[Answer], Awaitable[RemoteStore]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "CALL_SECONDS", 0.05)

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    store = await serve(say_nothing)
    for call in calls(store):
        with pytest.raises(StoreUnavailableError, match=r"did not answer in 0\.05 s"):
            await call


async def test_a_failing_store_is_asked_once_a_call(serve: Callable[[Answer], Awaitable[RemoteStore]]) -> None:
    asked = 0

    async def fail(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await reader.readuntil(b"\r\n\r\n")
        asked += 1
        writer.write(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    store = await serve(fail)
    for number, call in enumerate(calls(store), 1):
        with pytest.raises(StoreUnavailableError, match="503") as raised:
            await call
        assert asked == number
        assert "list-type" not in str(raised.value)


async def test_another_range_than_was_asked_for_is_not_waited_out(
    serve: Callable[[Answer], Awaitable[RemoteStore]],
) -> None:
    """As Azurite answers where an object has ended before the range."""

    async def give_the_last_byte(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        headers = (b"Content-Range: bytes 4-4/5", b"Content-Length: 1", b"Last-Modified: Mon, 02 Jan 2006 15:04:05 GMT")
        writer.write(b"\r\n".join((b"HTTP/1.1 206 Partial Content", *headers, b"ETag: x", b"", b"5")))

    store = await serve(give_the_last_byte)
    with pytest.raises(StoreError, match="a ends before the range") as raised:
        await store.read("a", 5, 1)
    assert type(raised.value) is StoreError


SERVICE_ACCOUNT = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
UNREACHABLE = {
    "s3": ("AWS", {"endpoint": "http://192.0.2.1", "region": "x", "access_key_id": "x", "secret_access_key": "y"}),
    "gs": ("GOOGLE", {"service_account_key": json.dumps(SERVICE_ACCOUNT | {"gcs_base_url": "http://192.0.2.1"})}),
    "az": ("AZURE", {"endpoint": "http://192.0.2.1/a", "account_name": "a", "account_key": "aGVsbG8="}),
}
"""By scheme the prefix of variables in the environment, and options; the address is nobody's."""


@pytest.mark.parametrize("scheme", UNREACHABLE)
@pytest.mark.parametrize("where", ["options", "environment"])
async def test_a_proxy_is_asked_wherever_it_is_named(scheme: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    async def fail(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 503 Away\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    prefix, options = UNREACHABLE[scheme]
    async with await asyncio.start_server(fail, HOST, 0) as proxy:
        address = f"http://{HOST}:{proxy.sockets[0].getsockname()[1]}"
        told = options | {"allow_http": "true"}
        if where == "options":
            told["proxy_url"] = address
        else:
            monkeypatch.setenv(f"{prefix}_PROXY_URL", address)
        with pytest.raises(StoreUnavailableError, match="503"):
            await open_remote(f"{scheme}://bucket", told).read("a", 0, 1)
    assert [request.split()[1].startswith(b"http://192.0.2.1/") for request in asked] == [True]


async def test_where_missing_names_are_errors_the_others_are_deleted(tmp_path: Path) -> None:
    """GCS and Azure say so; obstore's own directory store does too."""
    store = RemoteStore(obstore.store.LocalStore(tmp_path, mkdir=True), "prefix/")
    stored = [f"1/{number}" for number in range(3 * PARALLEL_DELETIONS)]
    for name in stored:
        await store.put(name, [b"x"])
    await store.delete(["0", *stored[:20], "missing", *stored[20:], "2"])
    assert await store.list("", "", 9) == []
