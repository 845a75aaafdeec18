"""Peer links over TLS: whoever shows the certificate of a member is that member, and nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from pidkeeper.controller.raft.messages import TimeoutNow
from pidkeeper.controller.transport import outbound as outbound_module
from pidkeeper.controller.transport.identity import Identity
from pidkeeper.controller.transport.links import PeerLinks
from pidkeeper.service.protection import UNPROTECTED, Level, Protection
from pidkeeper.service.tls import Tls
from tests.support.certificates import HOSTS, CertificateAuthority
from tests.support.waiting import until
from tests.unit.controller.transport.test_links import Events, Net

KEY = b"a key of the cluster"


@pytest.fixture
async def net() -> AsyncIterator[Net]:
    net = Net()
    yield net
    await net.close()


class Certified:
    """What members of cluster `c` are protected by."""

    def __init__(self, directory: Path) -> None:
        self.authority = CertificateAuthority(directory)
        self._numbers = itertools.count()

    def protection(self, *uris: str, level: Level = "required", hosts: Sequence[str] = HOSTS) -> Protection:
        files = self.authority.issue(f"number {next(self._numbers)}", uris=uris, hosts=hosts)
        return Protection(level, Tls(files), "c")

    def of(self, node: int, level: Level = "required") -> Protection:
        return self.protection(f"pidkeeper://c/controller/{node}", level=level)


@pytest.fixture
def certified(tmp_path: Path) -> Certified:
    return Certified(tmp_path)


async def pair(
    net: Net, first: Protection, second: Protection, *, keys: tuple[bytes | None, bytes | None] = (None, None)
) -> tuple[tuple[PeerLinks, Events], tuple[PeerLinks, Events]]:
    """Members 1 and 2, who dial each other."""
    one = await net.member(net.identity(1, key=keys[0]), [2], protection=first)
    other = await net.member(net.identity(2, key=keys[1]), [1], protection=second)
    return one, other


async def assert_linked(one: tuple[PeerLinks, Events], other: tuple[PeerLinks, Events]) -> None:
    for _, events in (one, other):
        await events.until(partial(is_linked, events))
    one[0].send([TimeoutNow(sender=1, to=2, term=3)])
    await other[1].until(lambda: other[1].messages == [TimeoutNow(sender=1, to=2, term=3)])


def is_linked(events: Events) -> bool:
    """In both directions."""
    return bool(events.up) and bool(events.introductions)


def speaks_tls(links: PeerLinks) -> bool:
    (link,) = links._outbound.values()
    assert link._connection is not None
    return link._connection.certified


async def test_members_that_show_their_certificates_are_linked(net: Net, certified: Certified) -> None:
    one, other = await pair(net, certified.of(1), certified.of(2))
    await assert_linked(one, other)
    assert speaks_tls(one[0])
    assert speaks_tls(other[0])


async def test_the_certificate_is_the_proof_and_keys_are_not_asked_for(net: Net, certified: Certified) -> None:
    await assert_linked(*await pair(net, certified.of(1), certified.of(2), keys=(KEY, None)))


@pytest.mark.parametrize(
    "uris",
    [
        ["pidkeeper://c/controller/3"],
        ["pidkeeper://other/controller/2"],
        ["pidkeeper://c/broker/2", "pidkeeper://c/operator/2"],
        [],
    ],
    ids=["of another member", "of another cluster", "of a broker and an operator", "without a name"],
)
async def test_who_is_not_named_as_the_member_is_not_it(
    net: Net, certified: Certified, uris: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    (one, heard), _ = await pair(net, certified.of(1), certified.protection(*uris))
    await until(lambda: (2, "certificate") in one.failures)
    await until(lambda: "the certificate is not that of member 2" in caplog.text)
    assert (heard.up, heard.introductions, one.peers) == ([], [], {})


async def test_members_may_be_anywhere(net: Net, certified: Certified) -> None:
    """No certificate names an address: the id is what counts."""
    elsewhere = [certified.protection(f"pidkeeper://c/controller/{node}", hosts=()) for node in (1, 2)]
    await assert_linked(*await pair(net, *elsewhere))


async def test_a_certificate_of_another_ca_is_refused_by_both(
    net: Net, certified: Certified, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "other").mkdir()
    stranger = Certified(tmp_path / "other")
    (_, heard), (_, told) = await pair(net, certified.of(1), stranger.of(2))
    await until(lambda: all(f"no TLS with member {node}" in caplog.text for node in (1, 2)))
    assert heard.up == heard.introductions == told.up == told.introductions == []


@pytest.mark.parametrize(
    ("first", "second", "over_tls"),
    [
        ("optional", "off", (False, False)),
        ("optional", "optional", (True, True)),
        ("optional", "required", (True, True)),
    ],
)
async def test_a_quorum_changes_to_tls_member_by_member(
    net: Net, certified: Certified, first: Level, second: Level, over_tls: tuple[bool, bool]
) -> None:
    protections = [
        UNPROTECTED if level == "off" else certified.of(node, level) for node, level in ((1, first), (2, second))
    ]
    one, other = await pair(net, protections[0], protections[1], keys=(KEY, None if second == "required" else KEY))
    await assert_linked(one, other)
    assert (speaks_tls(one[0]), speaks_tls(other[0])) == over_tls


async def test_where_tls_is_required_nobody_is_linked_without(net: Net, certified: Certified) -> None:
    (one, heard), (_, other) = await pair(net, certified.of(1), UNPROTECTED, keys=(KEY, KEY))
    await until(lambda: one._listener.failures["plaintext"] >= 2 and one.failures.get((2, "connect"), 0) >= 3)
    assert heard.up == heard.introductions == other.up == other.introductions == []


async def test_where_it_is_optional_a_key_is_needed_without(net: Net, certified: Certified) -> None:
    (one, heard), _ = await pair(net, certified.of(1, "optional"), UNPROTECTED, keys=(KEY, None))
    await until(lambda: one.failures.get((2, "malformed"), 0) >= 2)
    assert heard.up == heard.introductions == []


async def test_a_guest_with_the_certificate_of_a_member_needs_no_key(net: Net, certified: Certified) -> None:
    one = await net.member(net.identity(1), [], protection=certified.of(1))
    identity = Identity("c", 3, "dir-3", (None,), address=f"127.0.0.1:{net.ports[3]}")
    guest = await net.member(identity, [1], protection=certified.of(3))
    await guest[1].until(partial(is_linked, guest[1]))
    assert list(one[0].peers) == [3]


class Muffled:
    """In front of a member: stops the whole process when the member's first answer is on its way, and keeps back
    all that follows it on that connection."""

    def __init__(self, port: int, stop_seconds: float) -> None:
        self._port = port
        self._stop_seconds = stop_seconds
        self.connections = 0
        self.given_up = asyncio.Event()
        """Set when the dialler has ended the connection."""

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        muffled = self.connections == 1
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pump(reader, back, self.given_up if muffled else asyncio.Event()))
            tasks.create_task(self._muffle(there, writer) if muffled else self._pump(there, writer, asyncio.Event()))

    async def _muffle(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await there.read(1 << 16))
        time.sleep(self._stop_seconds)  # noqa: ASYNC251 - as SIGSTOP does
        await self.given_up.wait()
        writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, end: asyncio.Event) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
        writer.close()
        end.set()


async def test_a_connection_that_stands_when_its_time_is_over_leaves_the_next_one_alone(
    net: Net, certified: Certified, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was stopped finds the handshake of TLS done and its time over in one turn of the event loop."""
    monkeypatch.setattr(outbound_module, "HANDSHAKE_SECONDS", 0.5)
    muffled = Muffled(net.ports[2], stop_seconds=0.6)
    server = await asyncio.start_server(muffled.relay, "127.0.0.1", 0)
    _, others = await net.member(net.identity(2), [1], protection=certified.of(2))
    net.ports[2] = server.sockets[0].getsockname()[1]
    one, events = await net.member(net.identity(1), [2], protection=certified.of(1))
    await events.until(lambda: events.up == [2])
    await muffled.given_up.wait()
    sent = [TimeoutNow(sender=1, to=2, term=term) for term in range(50)]
    for message in sent:
        one.send([message])
        await asyncio.sleep(0.005)
    await others.until(lambda: others.messages == sent)
    assert muffled.connections == 2
    server.close()
