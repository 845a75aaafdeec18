"""Peer links over real TCP on the loopback: order, reconnection, refusals, and what a hostile peer can do (nothing)."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import re
import struct
import uuid
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest
from msgspec.structs import replace

from pidkeeper.controller.raft.messages import Heartbeat, Message, TimeoutNow
from pidkeeper.controller.transport import links as links_module
from pidkeeper.controller.transport import outbound as outbound_module
from pidkeeper.controller.transport.frames import (
    MAX_FRAME_BYTES,
    NONCE_BYTES,
    PROTOCOL_VERSION,
    FoundingTerms,
    Hello,
    Proof,
    Refused,
    Welcome,
    acceptor_mac,
    dialler_mac,
    frame,
    handshake_reader,
)
from pidkeeper.controller.transport.identity import Identity, Peer, of_two_foundings
from pidkeeper.controller.transport.links import PeerLinks
from pidkeeper.protocol.founding import Succession
from pidkeeper.protocol.metadata_version import FOUNDING, LATEST
from pidkeeper.service.protection import UNPROTECTED, Protection
from tests.support.held_ports import hold_ports

HOST = "127.0.0.1"
NONCE = bytes(NONCE_BYTES)
TERMS = FoundingTerms((1, 2), 1000, False)
KEY = b"the key of this cluster, 32 bytes"


class Events:
    """What one member heard from its links."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.introductions: list[int] = []
        self.up: list[int] = []
        self.lost: list[int] = []
        self.changed = asyncio.Event()

    def introduced(self, peer: int) -> None:
        self.introductions.append(peer)
        self.changed.set()

    def received(self, messages: list[Message]) -> None:
        assert messages
        self.messages += messages
        self.changed.set()

    def link_up(self, peer: int) -> None:
        self.up.append(peer)
        self.changed.set()

    def link_lost(self, peer: int) -> None:
        self.lost.append(peer)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


class Net:
    """Members that were made with fixed ports, so that one can come back at its address."""

    def __init__(self) -> None:
        self._held = hold_ports(4)
        self.ports = [one.getsockname()[1] for one in self._held]
        self._open: list[PeerLinks] = []

    def identity(self, node_id: int, *, cluster_id: str = "c", key: bytes | None = None) -> Identity:
        return Identity(cluster_id, node_id, f"dir-{node_id}", (key,))

    async def member(
        self,
        identity: Identity,
        peers: list[int],
        *,
        port_of: dict[int, int] | None = None,
        protection: Protection = UNPROTECTED,
    ) -> tuple[PeerLinks, Events]:
        events = Events()
        addresses = {peer: (HOST, self.ports[(port_of or {}).get(peer, peer)]) for peer in peers}
        links = PeerLinks(identity, addresses, protection)
        await links.start(HOST, self.ports[identity.node_id], events)
        self._open.append(links)
        return links, events

    async def stop(self, links: PeerLinks) -> None:
        self._open.remove(links)
        await links.stop()

    async def close(self) -> None:
        for links in list(self._open):
            await self.stop(links)
        for one in self._held:
            one.close()
        for _ in range(5):  # aborted connections are closed in the next turns of the event loop
            await asyncio.sleep(0)


@pytest.fixture
async def net() -> AsyncIterator[Net]:
    net = Net()
    yield net
    await net.close()


class Raw:
    """A bare connection to a member, with the client's half of the handshake in hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.frames = handshake_reader()

    @classmethod
    async def dial(cls, net: Net, node_id: int) -> Raw:
        return cls(*await asyncio.open_connection(HOST, net.ports[node_id]))

    def send(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))

    async def value(self) -> Hello | Welcome | Refused | Proof | None:
        """The next handshake value; None once the member closed the connection."""
        async with asyncio.timeout(10):
            while (value := self.frames.pop()) is None:
                try:
                    data = await self.reader.read(4096)
                except ConnectionError:
                    return None
                if not data:
                    return None
                self.frames.push(data)
            return value

    async def closed(self) -> bool:
        return await self.value() is None

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


def hello(
    *,
    version: int = PROTOCOL_VERSION,
    cluster_id: str = "c",
    sender: int = 2,
    to: int = 1,
    directory_id: str = "d",
    address: str = "",
) -> Hello:
    return Hello(version, cluster_id, sender, to, directory_id, NONCE, address)


def heartbeats(sender: int, to: int, count: int, first: int = 0) -> list[Message]:
    return [Heartbeat(1, sender, to, number, 0) for number in range(first, first + count)]


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - counters have no event to wait for
            await asyncio.sleep(0.005)


async def test_three_members_send_to_each_other_in_order(net: Net) -> None:
    ids = [1, 2, 3]
    made = {i: await net.member(net.identity(i, key=KEY), [j for j in ids if j != i]) for i in ids}
    for _, events in made.values():
        await events.until(lambda events=events: len(events.up) == 2)  # type: ignore[misc]
    assert [links.connected() for links, _ in made.values()] == [[2, 3], [1, 3], [1, 2]]
    for sender, (links, _) in made.items():
        for first in range(0, 300, 50):
            batch = [heartbeats(sender, to, 50, first) for to in ids if to != sender]
            links.send([message for pair in zip(*batch, strict=True) for message in pair])
        for to in ids:
            if to != sender:
                links.send([TimeoutNow(9, sender, to)])
    for node_id, (_, events) in made.items():
        await events.until(lambda events=events: len(events.messages) == 602)  # type: ignore[misc]
        for sender in ids:
            if sender != node_id:
                mine = [message for message in events.messages if message.sender == sender]
                assert mine == [*heartbeats(sender, node_id, 300), TimeoutNow(9, sender, node_id)]


async def test_a_peer_that_comes_back_is_dialled_again(net: Net) -> None:
    one, events = await net.member(net.identity(1), [2])
    two, others = await net.member(net.identity(2), [1])
    await events.until(lambda: events.up == [2])
    await others.until(lambda: others.up == [1])
    await net.stop(two)
    await events.until(lambda: events.lost == [2])
    await eventually(lambda: one.connected() == [])
    one.send(heartbeats(1, 2, 5))  # a link that is down drops
    _, again = await net.member(net.identity(2), [1])
    await events.until(lambda: events.up == [2, 2])
    one.send(heartbeats(1, 2, 1, first=7))
    await again.until(lambda: bool(again.messages))
    assert again.messages == heartbeats(1, 2, 1, first=7)
    assert one.failures.get((2, "connect"), 0) > 0


REFUSALS: list[tuple[Hello, str]] = [
    (hello(cluster_id="other"), "this is cluster c, not other: check the peer addresses"),
    (hello(sender=9), r"member 9 is not in the quorum here, members are \[1, 2\]: without a peer key none can join"),
    (hello(sender=1), "this is member 1 too: give one of the two another id"),
    (hello(to=3), "this is member 1, not 3: check the peer addresses"),
    (hello(version=2), "peer protocol version 2 is not spoken here, 1 is: upgrade"),
]


@pytest.mark.parametrize(("greeting", "reason"), REFUSALS)
async def test_a_stranger_is_refused_with_a_reason(
    net: Net, caplog: pytest.LogCaptureFixture, greeting: Hello, reason: str
) -> None:
    _, events = await net.member(net.identity(1), [2])
    raw = await Raw.dial(net, 1)
    raw.send(frame(greeting), frame(Proof(b"")), frame(Heartbeat(1, greeting.sender, 1, 0, 0)))
    refusal = await raw.value()
    assert isinstance(refusal, Refused)
    assert await raw.closed()
    await raw.close()
    assert re.search(reason, refusal.reason)
    assert f"refused a peer link: {refusal.reason} (a connection from 127.0.0.1)" in caplog.text
    assert (events.messages, events.lost) == ([], [])


async def test_a_guest_is_dialled_back_while_it_is_connected(net: Net) -> None:
    """Its configuration may be newer than ours, and it may be our leader."""
    one, events = await net.member(net.identity(1, key=KEY), [2])
    identity = net.identity(3, key=KEY)
    three, theirs = await net.member(msgspec.structs.replace(identity, address=f"{HOST}:{net.ports[3]}"), [1])
    await events.until(lambda: 3 in events.up)
    three.send(heartbeats(3, 1, 2))
    await events.until(lambda: len(events.messages) == 2)
    one.send(heartbeats(1, 3, 2))
    await theirs.until(lambda: len(theirs.messages) == 2)
    assert one.peers == {3: Peer("dir-3")}
    await net.stop(three)
    await events.until(lambda: 3 in events.lost)
    one.send(heartbeats(1, 3, 1))  # nobody is there any more
    assert 3 not in one.connected()


async def test_a_stranger_without_the_key_is_never_dialled_at_the_address_that_it_names(net: Net) -> None:
    one, events = await net.member(net.identity(1, key=KEY), [2])
    trap = await asyncio.start_server(lambda *_: pytest.fail("the stranger's address was dialled"), HOST, 0)
    host, port = trap.sockets[0].getsockname()
    raw = await Raw.dial(net, 1)
    raw.send(frame(hello(sender=9, address=f"{host}:{port}")), frame(Proof(b"")), frame(Heartbeat(1, 9, 1, 0, 0)))
    assert isinstance(await raw.value(), Welcome)
    assert await raw.closed()
    await raw.close()
    assert 9 not in one.peers
    assert (events.messages, events.lost) == ([], [])
    trap.close()
    await trap.wait_closed()


async def test_members_come_move_and_go(net: Net) -> None:
    one, events = await net.member(net.identity(1), [])
    two, theirs = await net.member(net.identity(2), [1])
    one.send(heartbeats(1, 2, 1))
    one.set_members({2: (HOST, net.ports[2])})
    await events.until(lambda: events.up == [2])
    one.send(heartbeats(1, 2, 1, first=5))
    one.set_members({})  # what was written still leaves
    await theirs.until(lambda: theirs.messages == heartbeats(1, 2, 1, first=5))
    await theirs.until(lambda: theirs.lost == [1])
    one.set_members({2: (HOST, 1)})
    assert one.connected() == []
    one.set_members({2: (HOST, net.ports[2])})
    await events.until(lambda: events.up == [2, 2])
    assert two.connected() == [1]


async def test_members_may_come_and_go_while_it_stops(net: Net) -> None:
    one, _ = await net.member(net.identity(1), [2, 3])
    stopping = asyncio.create_task(net.stop(one))
    await asyncio.sleep(0)
    one.set_members({3: (HOST, net.ports[3]), 4: (HOST, 1)})
    await stopping
    assert one.connected() == []


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "\0"])
async def test_a_host_that_is_no_name_is_a_failed_dial(net: Net, host: str) -> None:
    """An operator or a guest gave it; the resolver does not even look for it."""
    one, events = await net.member(net.identity(1), [])
    one.set_members({2: (host, 1)})
    await eventually(lambda: one.failures.get((2, "connect"), 0) >= 2)
    await net.member(net.identity(2), [1])
    one.set_members({2: (HOST, net.ports[2])})
    await events.until(lambda: events.up == [2])


async def test_guests_are_bounded(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links_module, "MAX_GUESTS", 0)
    await net.member(net.identity(1, key=KEY), [2])
    raw = await Raw.dial(net, 1)
    raw.send(frame(hello(sender=9)))
    refusal = await raw.value()
    assert isinstance(refusal, Refused)
    assert "0 peers that are no members are connected already" in refusal.reason
    await raw.close()


async def test_the_refused_dialler_logs_the_reason_once(net: Net, caplog: pytest.LogCaptureFixture) -> None:
    await net.member(net.identity(1), [2])
    two, events = await net.member(net.identity(2, cluster_id="another"), [1])
    await eventually(lambda: two.failures.get((1, "refused"), 0) >= 3)
    said = [record for record in caplog.records if "refuses us: this is cluster c, not another" in record.message]
    assert len(said) == 1
    assert events.up == []
    assert two.connected() == []


@pytest.mark.parametrize("keys", [(KEY, b"wrong" * 7), (KEY, None), (None, KEY)])
async def test_members_with_other_keys_never_talk(
    net: Net, caplog: pytest.LogCaptureFixture, keys: tuple[bytes | None, bytes | None]
) -> None:
    one, events = await net.member(net.identity(1, key=keys[0]), [2])
    two, others = await net.member(net.identity(2, key=keys[1]), [1])
    await eventually(lambda: bool(two.failures.get((1, "malformed"))) and bool(one.failures.get((2, "malformed"))))
    assert "member 1 does not know the cluster key" in caplog.text
    assert events.up == others.up == events.lost == []
    assert one.connected() == two.connected() == []


OLD = b"the key that this cluster had before"


@pytest.mark.parametrize(
    "keys",
    [
        ((OLD, KEY), (OLD,)),
        ((KEY, OLD), (OLD,)),
        ((OLD, KEY), (KEY,)),
        ((OLD, KEY), (KEY, OLD)),
        ((KEY, None), (None,)),
        ((KEY, None), (KEY,)),
        ((KEY, None), (KEY, None)),
    ],
)
async def test_keys_are_rotated_and_introduced_one_member_at_a_time(
    net: Net, keys: tuple[tuple[bytes | None, ...], tuple[bytes | None, ...]]
) -> None:
    """The members of every step of a roll come together, whoever dials: they have one of their keys in common."""
    _, one = await net.member(replace(net.identity(1), keys=keys[0]), [2])
    _, two = await net.member(replace(net.identity(2), keys=keys[1]), [1])
    await one.until(lambda: one.up == [2])
    await two.until(lambda: two.up == [1])


async def test_while_a_key_is_introduced_a_guest_must_know_it_all_the_same(net: Net) -> None:
    one, events = await net.member(replace(net.identity(1), keys=(KEY, None)), [2])
    for _ in range(4):
        raw = await Raw.dial(net, 1)
        raw.send(frame(hello(sender=9, address=f"{HOST}:{net.ports[3]}")))
        welcome = await raw.value()
        assert isinstance(welcome, Welcome)
        assert welcome.mac != b""
        raw.send(frame(Proof(b"")))
        assert await raw.closed()
        await raw.close()
    assert (one.peers, events.up) == ({}, [])


async def test_a_dialler_without_the_key_is_not_believed(net: Net, caplog: pytest.LogCaptureFixture) -> None:
    one, events = await net.member(net.identity(1, key=KEY), [2])
    for proof in (b"", b"x" * 32, None):
        raw = await Raw.dial(net, 1)
        raw.send(frame(hello()))
        welcome = await raw.value()
        assert isinstance(welcome, Welcome)
        assert welcome.mac == acceptor_mac(KEY, hello(), 1, welcome.nonce)
        # None: the acceptor's own proof comes back to it.
        raw.send(frame(Proof(welcome.mac if proof is None else proof)), frame(Heartbeat(1, 2, 1, 0, 0)))
        assert await raw.closed()
        await raw.close()
    assert caplog.text.count("member 2 does not know the cluster key") == 1, "one source, one line"
    assert (events.messages, events.lost) == ([], [])
    assert one.failures[0, "malformed"] == 3


async def test_what_follows_the_proof_in_one_segment_is_read_as_messages(net: Net) -> None:
    _, events = await net.member(net.identity(1, key=KEY), [2])
    raw = await Raw.dial(net, 1)
    raw.send(frame(hello()))
    welcome = await raw.value()
    assert isinstance(welcome, Welcome)
    second = frame(Heartbeat(1, 2, 1, 1, 0))
    raw.send(frame(Proof(dialler_mac(KEY, hello(), 1, welcome.nonce))), frame(Heartbeat(1, 2, 1, 0, 0)), second[:5])
    await events.until(lambda: len(events.messages) == 1)
    raw.send(second[5:])
    await events.until(lambda: len(events.messages) == 2)
    assert events.messages == heartbeats(2, 1, 2)
    await raw.close()
    await events.until(lambda: events.lost == [2])


class EarlierHello(msgspec.Struct, frozen=True, array_like=True, tag=101):
    """As builds without foundings say it."""

    version: int = PROTOCOL_VERSION
    cluster_id: str = "c"
    sender: int = 2
    to: int = 1
    directory_id: str = "d"
    nonce: bytes = NONCE
    address: str = ""
    metadata_version: int = 4


async def test_a_build_without_foundings_and_this_one_prove_themselves_to_each_other(net: Net) -> None:
    """Each of them proves what the other reads, by the fields that both know."""
    _, events = await net.member(net.identity(1, key=KEY), [2])
    raw = await Raw.dial(net, 1)
    raw.send(frame(EarlierHello()))
    welcome = await raw.value()
    assert isinstance(welcome, Welcome)

    def proof(role: bytes, said: object) -> bytes:
        return hmac.new(KEY, msgspec.msgpack.encode((role, said, 1, welcome.nonce)), hashlib.sha256).digest()

    assert welcome.mac == proof(b"acceptor", EarlierHello())
    raw.send(frame(Proof(proof(b"dialler", EarlierHello()))))
    await events.until(lambda: events.introductions == [2])
    await raw.close()
    newer = Hello(PROTOCOL_VERSION, "c", 2, 1, "d", NONCE, "", 4, uuid.UUID(int=1), TERMS)
    read = msgspec.convert(msgspec.msgpack.decode(frame(newer)[4:]), EarlierHello)
    assert read == EarlierHello()
    assert acceptor_mac(KEY, newer, 1, welcome.nonce) == proof(b"acceptor", read)


async def test_peers_say_of_which_founding_they_are_and_say_it_again_when_that_changes(net: Net) -> None:
    blank = msgspec.structs.replace(net.identity(1, key=KEY), blank=TERMS)
    one, _ = await net.member(blank, [2])
    two, heard = await net.member(net.identity(2, key=KEY), [1])
    await heard.until(lambda: heard.introductions == [1])
    assert two.peers[1] == Peer("dir-1", founding_id=None, blank=TERMS)
    one.introduce_as(uuid.UUID(int=1), None)
    one.redial()
    await heard.until(lambda: heard.introductions == [1, 1])
    assert two.peers[1] == Peer("dir-1", founding_id=uuid.UUID(int=1))
    assert heard.lost == [1]


async def test_a_member_of_another_founding_is_refused_with_the_reason(
    net: Net, caplog: pytest.LogCaptureFixture
) -> None:
    one, _ = await net.member(msgspec.structs.replace(net.identity(1), founding_id=uuid.UUID(int=1)), [2])
    two, _ = await net.member(msgspec.structs.replace(net.identity(2), founding_id=uuid.UUID(int=2)), [1])
    await eventually(lambda: (1, "refused") in two.failures and (2, "refused") in one.failures)
    assert not one.peers
    assert not two.peers
    assert "member 1 at" in caplog.text
    assert (
        "refuses us: this member belongs to founding 00000000-0000-0000-0000-000000000001 of the cluster" in caplog.text
    )


PLACE = Succession(uuid.UUID(int=1), 5000)


@pytest.mark.parametrize(
    ("theirs", "version", "reason"),
    [
        (PLACE, LATEST, None),
        (Succession(uuid.UUID(int=1), 6000), LATEST, "from ID 5000 on, not of .* from ID 6000 on"),
        (None, LATEST, "from ID 5000 on, not of nobody"),
    ],
    ids=["the same", "of another floor", "without a floor"],
)
def test_members_agree_whose_place_their_founding_takes(
    theirs: Succession | None, version: int, reason: str | None
) -> None:
    """An earlier build would record the founding without that, and hand out what the predecessor has handed out."""
    one = Peer("d", LATEST, uuid.UUID(int=2), None, PLACE)
    other = Peer("e", version, uuid.UUID(int=2), None, theirs)
    for mine, said in ((one, other), (other, one)):
        refusal = of_two_foundings(mine, said)
        assert (refusal is None) == (reason is None)
    assert reason is None or re.search(reason, of_two_foundings(one, other) or "")


@pytest.mark.parametrize(("version", "welcome"), [(LATEST, True), (FOUNDING, False)])
def test_who_has_no_founding_yet_may_join_if_it_understands_whose_place_was_taken(version: int, welcome: bool) -> None:
    one, other = Peer("d", LATEST, uuid.UUID(int=2), None, PLACE), Peer("e", version)
    refusals = {of_two_foundings(one, other), of_two_foundings(other, one)}
    assert (refusals == {None}) is welcome
    assert welcome or all("of metadata version 7 does not understand: upgrade it" in str(one) for one in refusals)


async def test_who_learns_its_founding_hangs_up_on_members_of_another_one(net: Net) -> None:
    """A leader of another quorum than its followers would hand out on their votes."""
    one, heard = await net.member(net.identity(1), [2, 3])
    await net.member(msgspec.structs.replace(net.identity(2), founding_id=uuid.UUID(int=2)), [1])
    await net.member(msgspec.structs.replace(net.identity(3), founding_id=uuid.UUID(int=1)), [1])
    await heard.until(lambda: sorted(heard.introductions) == [2, 3])
    await eventually(lambda: sorted(one.connected()) == [2, 3])
    one.introduce_as(uuid.UUID(int=1), None)
    await heard.until(lambda: heard.lost == [2])
    await eventually(lambda: one.connected() == [3])
    assert set(one.peers) == {3}


async def established(net: Net) -> Raw:
    raw = await Raw.dial(net, 1)
    raw.send(frame(hello()))
    assert isinstance(await raw.value(), Welcome)
    raw.send(frame(Proof(b"")))
    return raw


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">I", MAX_FRAME_BYTES + 1), "over the limit"),
        (struct.pack(">I", 3) + b"\xc1\xc1\xc1", "malformed frame"),
        (frame(Heartbeat(1, 3, 1, 0, 0)), "member 2 sent a message in the name of 3"),
        (frame(Heartbeat(1, 2, 1, 0, 0)) + frame(Heartbeat(1, 3, 1, 0, 0)), "in the name of 3"),
        (frame(hello()), "malformed frame"),
        (b"GET / HTTP/1.1\r\n\r\n", "over the limit"),
    ],
    ids=["giant", "garbage", "another's name", "good, then another's name", "a second hello", "http"],
)
async def test_a_bad_frame_closes_the_link_and_changes_nothing(
    net: Net, caplog: pytest.LogCaptureFixture, data: bytes, reason: str
) -> None:
    one, events = await net.member(net.identity(1), [2, 3])
    raw = await established(net)
    raw.send(data)
    assert await raw.closed()
    await events.until(lambda: events.lost == [2])
    assert events.messages == []
    assert one.failures[2, "malformed"] == 1
    assert re.search(f"closing the link from member 2: .*{reason}", caplog.text)
    await raw.close()
    again = await established(net)
    again.send(frame(Heartbeat(1, 2, 1, 4, 0)))
    await events.until(lambda: bool(events.messages))
    await again.close()


async def test_a_truncated_frame_is_never_delivered(net: Net) -> None:
    _, events = await net.member(net.identity(1), [2])
    raw = await established(net)
    raw.send(frame(Heartbeat(1, 2, 1, 0, 0)), frame(Heartbeat(1, 2, 1, 1, 0))[:-1])
    await events.until(lambda: bool(events.messages))
    await raw.close()
    await events.until(lambda: events.lost == [2])
    assert events.messages == heartbeats(2, 1, 1)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 64,
        frame(Proof(b"")),
        frame(Heartbeat(1, 2, 1, 0, 0)),
        frame(hello()) + frame(hello()),
        frame(Welcome(2, "d", NONCE, b"")),
    ],
    ids=["garbage", "proof first", "message first", "hello twice", "welcome"],
)
async def test_a_bad_handshake_is_closed(net: Net, data: bytes) -> None:
    one, events = await net.member(net.identity(1), [2])
    raw = await Raw.dial(net, 1)
    raw.send(data)
    while await raw.value() is not None:
        pass
    await raw.close()
    assert (events.messages, events.lost) == ([], [])
    assert one.failures[0, "malformed"] == 1


async def test_a_newer_link_replaces_the_older_one_without_a_false_alarm(net: Net) -> None:
    _, events = await net.member(net.identity(1), [2])
    old = await established(net)
    old.send(frame(Heartbeat(1, 2, 1, 0, 0)))
    await events.until(lambda: len(events.messages) == 1)
    new = await established(net)
    new.send(frame(Heartbeat(1, 2, 1, 1, 0)))
    await events.until(lambda: len(events.messages) == 2)
    assert await old.closed()
    assert events.lost == []
    await new.close()
    await events.until(lambda: events.lost == [2])
    await old.close()


async def test_a_crowd_that_never_shakes_hands_keeps_no_member_out(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links_module, "MAX_HANDSHAKES", 2)
    links, events = await net.member(net.identity(1), [2])
    first = await established(net)  # one that is through gives way to nobody
    crowd = [await Raw.dial(net, 1) for _ in range(4)]
    assert [await one.closed() for one in crowd[:2]] == [True, True]
    assert links.failures[0, "crowded"] == 2
    newest = await Raw.dial(net, 1)
    newest.send(frame(hello()))
    assert isinstance(await newest.value(), Welcome)
    assert await crowd[2].closed()
    first.send(frame(Heartbeat(1, 2, 1, 0, 0)))
    await events.until(lambda: bool(events.messages))
    for raw in [first, newest, *crowd]:
        await raw.close()


async def test_a_silent_dialler_is_closed_at_the_deadline(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links_module, "HANDSHAKE_SECONDS", 0.05)
    _, events = await net.member(net.identity(1), [2])
    through = await established(net)
    silent = await Raw.dial(net, 1)
    half = await Raw.dial(net, 1)
    half.send(frame(hello()))
    assert isinstance(await half.value(), Welcome)
    assert await silent.closed()
    assert await half.closed()
    through.send(frame(Heartbeat(1, 2, 1, 0, 0)))
    await events.until(lambda: bool(events.messages))
    assert events.lost == []
    for raw in (through, silent, half):
        await raw.close()


async def test_a_silent_acceptor_is_dialled_again_at_the_deadline(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound_module, "HANDSHAKE_SECONDS", 0.05)
    dialled = asyncio.Queue[Raw]()
    server = await asyncio.start_server(lambda r, w: dialled.put_nowait(Raw(r, w)), HOST, 0)
    net.ports[2] = server.sockets[0].getsockname()[1]
    await net.member(net.identity(1), [2])
    async with asyncio.timeout(10):
        attempts = [await dialled.get() for _ in range(3)]
    for raw in attempts:
        assert isinstance(await raw.value(), Hello)
    server.close()
    await net.close()
    while not dialled.empty():
        attempts.append(dialled.get_nowait())
    for raw in attempts:
        await raw.close()


async def test_a_full_link_drops_and_counts(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound_module, "MAX_UNSENT_BYTES", -1)
    one, events = await net.member(net.identity(1), [2])
    _, others = await net.member(net.identity(2), [1])
    await events.until(lambda: events.up == [2])
    one.send(heartbeats(1, 2, 1))
    assert one.failures[2, "full"] == 1
    monkeypatch.setattr(outbound_module, "MAX_UNSENT_BYTES", 1 << 20)
    one.send(heartbeats(1, 2, 1, first=5))
    await others.until(lambda: bool(others.messages))
    assert others.messages == heartbeats(1, 2, 1, first=5)
