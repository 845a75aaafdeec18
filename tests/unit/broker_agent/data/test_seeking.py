"""The store is found in the background, and nothing reaches it before the quorum took it for the cluster's."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pidkeeper.broker_agent.data import seeking
from pidkeeper.broker_agent.data.seeking import StoreSeeker
from pidkeeper.broker_agent.data.settings import DataSettings
from pidkeeper.broker_agent.data.store.awaited import AwaitedStore
from pidkeeper.broker_agent.data.store.port import (
    ObjectMissingError,
    ObjectStore,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from pidkeeper.service.process import UNUSABLE_SETTINGS, ServiceError
from tests.support.data_parts import RNG, FaultyStore, raising
from tests.support.waiting import until

CALLS: dict[str, Callable[[ObjectStore], Awaitable[Any]]] = {
    "put": lambda store: store.put("a", [b"x"]),
    "create": lambda store: store.create("b", b"x"),
    "read": lambda store: store.read("a", 0, 1),
    "list": lambda store: store.list("", "", 1),
    "delete": lambda store: store.delete(["a"]),
}


@pytest.mark.parametrize("call", CALLS)
async def test_no_call_reaches_a_store_that_the_quorum_does_not_know(call: str) -> None:
    inner, admitted, failures = FaultyStore(), False, list[StoreError]()
    await inner.put("a", [b"x"])
    before = await inner.list("", "", 10)
    store = AwaitedStore(lambda: admitted, failures.append)
    with pytest.raises(StoreUnavailableError, match="not found yet"):
        await CALLS[call](store)
    store.found(inner)
    with pytest.raises(StoreUnavailableError, match="did not say yet whether this is the cluster's"):
        await CALLS[call](store)
    assert await inner.list("", "", 10) == before and not inner.reads
    admitted = True
    await CALLS[call](store)
    assert not failures, "that the quorum is waited for says nothing of the store"


async def test_what_the_store_did_not_answer_is_told() -> None:
    inner, failures = FaultyStore(), list[StoreError]()
    store = AwaitedStore(lambda: True, failures.append)
    store.found(inner)
    for error in (StoreUnavailableError("away"), StoreRefusedError("no right")):
        inner.put_faults.append(raising(error))
        with pytest.raises(type(error)):
            await store.put("a", [b"x"])
    with pytest.raises(ObjectMissingError):
        await store.read("missing", 0, 1)
    assert [*map(str, failures)] == ["away", "no right"]


class Sought:
    """A seeker, and what it told."""

    def __init__(self, store: Path | str, **settings: Any) -> None:
        self.found: list[uuid.UUID] = []
        self.faults: list[BaseException] = []
        self.seeker = StoreSeeker(
            DataSettings(store=str(store), **settings),
            RNG,
            on_found=self.found.append,
            admitted=lambda: True,
            retry_seconds=0.01,
        )

    async def start(self, seconds: float = 5.0) -> None:
        await self.seeker.start(self.faults.append, seconds)


@pytest.fixture
async def sought(tmp_path: Path) -> AsyncIterator[Sought]:
    one = Sought(tmp_path / "store")
    yield one
    await one.seeker.close()


async def test_every_agent_finds_the_same_store(sought: Sought, tmp_path: Path) -> None:
    await sought.start()
    other = Sought(tmp_path / "store")
    await other.start()
    assert sought.found == other.found != [uuid.UUID(int=0)] and len(sought.found) == 1
    assert (sought.seeker.up, sought.seeker.why_down()) == (True, "")
    await other.seeker.close()


async def test_a_damaged_identity_may_be_mended(
    sought: Sought, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "store").mkdir()
    identity = tmp_path / "store" / "store.json"
    identity.write_text("{}")
    with caplog.at_level(logging.ERROR):
        await sought.start(seconds=0.1)
    assert not sought.seeker.up and not sought.found
    assert "is it something else's?" in sought.seeker.why_down()
    assert len(caplog.records) == 1, "each try says it again"
    identity.unlink()
    await until(lambda: sought.seeker.up)
    assert len(sought.found) == 1 and not sought.faults


async def test_the_start_does_not_wait_for_a_store_that_is_silent(
    sought: Sought, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = asyncio.Event()
    store_id = uuid.uuid4()

    async def silent(_: ObjectStore) -> uuid.UUID:
        await answers.wait()
        return store_id

    monkeypatch.setattr(seeking, "store_uuid", silent)
    await sought.start(seconds=0.05)
    assert not sought.found
    answers.set()
    await until(lambda: sought.seeker.up)
    assert sought.found == [store_id]


async def test_a_store_is_asked_again_when_a_call_has_failed(sought: Sought, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = FaultyStore()
    monkeypatch.setattr(seeking, "open_store", lambda _, __: inner)
    await sought.start()
    inner.put_faults.append(raising(StoreUnavailableError("away")))
    with pytest.raises(StoreUnavailableError):
        await sought.seeker.store.put("a", [b"x"])
    assert not sought.seeker.up and sought.seeker.why_down().endswith("away")
    await until(lambda: sought.seeker.up)
    assert len(sought.found) == 1, "it is the same one"
    await inner.delete(["store.json"])
    inner.put_faults.append(raising(StoreUnavailableError("away")))
    with pytest.raises(StoreUnavailableError):
        await sought.seeker.store.put("a", [b"x"])
    await until(lambda: bool(sought.faults))
    assert isinstance(sought.faults[0], ServiceError) and f"was the store {sought.found[0]}" in str(sought.faults[0])


async def test_settings_that_name_no_store_end_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for one in (Sought(tmp_path / "file" / "below"), Sought(tmp_path, store_options={"region": "x"})):
        with pytest.raises(ServiceError, match=r"data\.store: ") as raised:
            await one.start()
        assert raised.value.exit_code == UNUSABLE_SETTINGS
        await one.seeker.close()
