"""The peer links of one member: dials every other member, accepts their links, and hands messages on.

One connection carries messages one way, from its dialler to its acceptor. When the inbound connection of a peer breaks,
the node is told at once: for a follower of that peer it is the first sign of a dead leader (docs/architecture.md).
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import uuid
from collections.abc import Mapping
from typing import Final, Protocol, cast

import msgspec

from pidkeeper.controller.raft.messages import Message
from pidkeeper.controller.transport.connections import HANDSHAKE_SECONDS, certified_by, notice_silence
from pidkeeper.controller.transport.frames import (
    NONCE_BYTES,
    PROTOCOL_VERSION,
    FrameError,
    Hello,
    Proof,
    Refused,
    Welcome,
    acceptor_mac,
    dialler_mac,
    frame,
    handshake_reader,
    message_reader,
    same_mac,
)
from pidkeeper.controller.transport.identity import Identity, Peer, of_two_foundings, of_two_releases
from pidkeeper.controller.transport.outbound import OutboundLink
from pidkeeper.protocol.addresses import AddressError, HostPort
from pidkeeper.protocol.founding import Succession
from pidkeeper.protocol.records import QuorumMember
from pidkeeper.service.complaints import Complaints
from pidkeeper.service.listening import Listener
from pidkeeper.service.places import Places
from pidkeeper.service.protection import UNPROTECTED, Protection

logger = logging.getLogger(__name__)

HANDSHAKE_SPREAD: Final = 0.5
"""Up to this share later: 64 that came together would stop the event loop for 20 ms if they were closed together."""

MAX_HANDSHAKES: Final = 64
"""Inbound connections that have not shaken hands yet. For one more the oldest is closed: a member takes two round
trips, and 64 others do not come meanwhile, as one is accepted in each turn of the event loop."""

CLOSING_TURNS: Final = 8
"""Turns of the event loop until every socket is given back: an accept in progress becomes a connection in four, which
is then refused and closed in two."""

MAX_GUESTS: Final = 16
"""Connected peers that are no members: new ones that are ahead of our log, and removed ones that were not stopped."""


class LinkEvents(Protocol):
    """What the node hears from its links. Called on the event loop, never concurrently."""

    def introduced(self, peer: int) -> None:
        """`peer` has connected to us, and `PeerLinks.peers` has what it says of itself."""

    def received(self, messages: list[Message]) -> None:
        """Messages of one authenticated peer, in order."""

    def link_up(self, peer: int) -> None:
        """Messages can be sent to `peer` from now on."""

    def link_lost(self, peer: int) -> None:
        """The connection on which `peer` sent to us broke."""


class PeerLinks:
    """All links of one member, from `start` on. `addresses` maps the other members' ids to (host, port).

    A peer that is no member here may be one in a configuration that has not arrived yet, even the leader. If it proves
    that it knows the cluster key, it is a guest: accepted, and dialled, while it is connected, at the address that it
    gave. Without a key there are no guests, for nothing tells one from a stranger.
    """

    events: LinkEvents

    def __init__(
        self,
        identity: Identity,
        addresses: Mapping[int, tuple[str, int]],
        protection: Protection = UNPROTECTED,
    ) -> None:
        self.identity = identity
        self.protection: Final = protection
        self._members = dict(addresses)
        self._outbound = {peer: OutboundLink(self, peer, *address) for peer, address in sorted(addresses.items())}
        self._closing: set[asyncio.Task[None]] = set()
        self.peers: dict[int, Peer] = {}
        """What the peers that are connected to us say of themselves."""
        self._inbound: dict[int, InboundLink] = {}
        self._connections: set[InboundLink] = set()
        self._strangers: Places[InboundLink] = Places(MAX_HANDSHAKES)
        self.complaints = Complaints()
        self._listener = Listener(
            lambda: InboundLink(self),
            context=protection.context(lambda contexts: contexts.members),
            plaintext=not protection.required,
            handshakes=protection.handshakes,
            complaints=self.complaints,
        )
        self.handshakes_failed: Final = self._listener.failures
        self._started = False
        self._stopped = False
        self._offers = 0
        self.jitter = random.Random()
        # Failed dials are shown from the start: an increase from nothing to 1 would be none for Prometheus.
        self.failures: dict[tuple[int, str], int] = dict.fromkeys(((peer, "connect") for peer in self._outbound), 0)

    async def start(self, host: str, port: int, events: LinkEvents) -> int:
        """Listen and dial; returns the port. Raises OSError if the address cannot be bound."""
        self.events = events
        _, bound = await self._listener.bind(host, port, backlog=MAX_HANDSHAKES)
        await self._listener.serve()
        self._started = True
        for link in self._outbound.values():
            link.start()
        return bound

    async def stop(self) -> None:
        """Close everything."""
        self._stopped = True
        # Meanwhile guests and members still come and go; no link is dialled any more.
        for link in list(self._outbound.values()):
            await link.stop()
        while self._closing:
            await asyncio.wait(self._closing)
        await self._listener.close()
        for inbound in list(self._connections):
            inbound.close()
        for _ in range(CLOSING_TURNS):
            await asyncio.sleep(0)

    def send(self, messages: list[Message]) -> None:
        """Send each message to its receiver, as one write per link. Messages for a broken or full link are dropped."""
        if len(messages) == 1:
            if (link := self._outbound.get(messages[0].to)) is not None:
                link.write(frame(messages[0]))
            return
        frames: dict[int, list[bytes]] = {}
        for message in messages:
            frames.setdefault(message.to, []).append(frame(message))
        for peer, parts in frames.items():
            if (link := self._outbound.get(peer)) is not None:
                link.write(b"".join(parts))

    def set_members(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        """The other members are these from now on. What was written to one that is gone still leaves."""
        before, self._members = self._members, dict(addresses)
        for peer, link in list(self._outbound.items()):
            gone = peer in before and peer not in addresses
            if gone or addresses.get(peer, link.address) != link.address:
                self._hang_up(peer)
        for peer, address in sorted(addresses.items()):
            if peer not in self._outbound:
                self._dial(peer, *address)

    def _dial(self, peer: int, host: str, port: int) -> None:
        self._outbound[peer] = link = OutboundLink(self, peer, host, port)
        self.failures.setdefault((peer, "connect"), 0)
        if self._started and not self._stopped:
            link.start()

    def _hang_up(self, peer: int) -> None:
        task = asyncio.get_running_loop().create_task(self._outbound.pop(peer).stop(), name=f"hang-up-{peer}")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def introduce_as(self, founding_id: uuid.UUID | None, succession: Succession | None) -> None:
        """This member is of founding `founding_id`: say so in every handshake from now on.

        The links of whoever belongs to another one are closed.
        """
        self.identity = mine = msgspec.structs.replace(
            self.identity, founding_id=founding_id, succession=succession, blank=None
        )
        for peer, theirs in list(self.peers.items()):
            if of_two_foundings(mine, theirs) is not None:
                self._inbound[peer].close()
                if (outbound := self._outbound.get(peer)) is not None:
                    outbound.redial()

    def tell_voters(self, voters: tuple[QuorumMember, ...]) -> None:
        """These are the voters, as far as that is committed: say so in every handshake from now on."""
        self.identity = msgspec.structs.replace(self.identity, voters=voters)

    def redial(self) -> None:
        """Break the connections to the other members, and dial anew."""
        for link in self._outbound.values():
            link.redial()

    def connected(self) -> list[int]:
        """The peers to which messages can be sent."""
        return [peer for peer, link in self._outbound.items() if link.up]

    def count_failure(self, peer: int, reason: str) -> None:
        """Count a failed dial, a refusal or a drop for the metrics."""
        self.failures[peer, reason] = self.failures.get((peer, reason), 0) + 1

    def came_up(self, peer: int) -> None:
        """Messages can be sent to `peer` from now on."""
        self.events.link_up(peer)

    # What inbound connections call.

    def opened(self, link: InboundLink) -> bool:
        """Take a new connection in, maybe in the place of another that is still shaking hands."""
        if self._stopped:  # accepted before the listening socket was closed
            return False
        if (crowded_out := self._strangers.take(link)) is not None:
            self.count_failure(0, "crowded")
            crowded_out.close()
        self._connections.add(link)
        return True

    def judge(self, hello: Hello, certified: frozenset[int] | None) -> str | None:
        """Why `hello` is refused, or None. certified: the members that the link's certificate names, over TLS."""
        mine = self.identity
        if hello.version != PROTOCOL_VERSION:
            return f"peer protocol version {hello.version} is not spoken here, {PROTOCOL_VERSION} is: upgrade"
        if hello.cluster_id != mine.cluster_id:
            return f"this is cluster {mine.cluster_id}, not {hello.cluster_id}: check the peer addresses"
        if hello.to != mine.node_id:
            return f"this is member {mine.node_id}, not {hello.to}: check the peer addresses"
        if hello.sender == mine.node_id:
            return f"this is member {mine.node_id} too: give one of the two another id"
        if certified is not None and hello.sender not in certified:
            return f"the certificate is not that of member {hello.sender} of cluster {mine.cluster_id}"
        if (reason := of_two_foundings(mine, hello)) is not None:
            return reason
        if (apart := of_two_releases(mine.release, hello.sender, hello.release)) is not None:
            return apart
        return None if hello.sender in self._members else self._judge_guest(hello.sender, certified is not None)

    def _judge_guest(self, sender: int, certified: bool) -> str | None:
        if not certified and not any(self.identity.keys):
            members = sorted([self.identity.node_id, *self._members])
            return f"member {sender} is not in the quorum here, members are {members}: without a peer key none can join"
        if len(self._inbound.keys() - self._members.keys() - {sender}) >= MAX_GUESTS:
            return f"{MAX_GUESTS} peers that are no members are connected already: stop those that were removed"
        return None

    def offer(self, peer: int) -> bytes | None:
        """The key for the next handshake with `peer`: each in turn, for nobody knows which of them the peer has."""
        keys = [key for key in self.identity.keys if key is not None or peer in self._members]
        self._offers += 1
        return keys[self._offers % len(keys)]

    def established(self, link: InboundLink, hello: Hello) -> None:
        """A peer proved itself on `link`; an older link of the same peer is closed."""
        peer = hello.sender
        self._strangers.leave(link)
        before = self._inbound.get(peer)
        self._inbound[peer] = link
        self.peers[peer] = Peer(
            hello.directory_id,
            hello.metadata_version,
            hello.founding_id,
            hello.blank,
            hello.succession,
            hello.voters,
            hello.release,
        )
        if before is not None:
            before.close()
        if peer not in self._outbound and (address := _parsed(hello.address)) is not None:
            logger.info("member %d is not one that is known here: dialling it back at %s", peer, hello.address)
            self._dial(peer, *address)
        self.events.introduced(peer)

    def closed(self, link: InboundLink, peer: int | None) -> None:
        """`link` is gone."""
        self._connections.discard(link)
        self._strangers.leave(link)
        if peer is not None and self._inbound.get(peer) is link:
            del self._inbound[peer], self.peers[peer]
            if peer not in self._members and peer in self._outbound and not self._stopped:
                self._hang_up(peer)
            self.events.link_lost(peer)


class InboundLink(asyncio.Protocol):
    """A connection on which one peer sends to us."""

    def __init__(self, links: PeerLinks) -> None:
        self._links = links
        self._transport: asyncio.Transport | None = None
        self._handshake = handshake_reader()
        self._messages = message_reader()
        self._hello: Hello | None = None
        self._nonce = os.urandom(NONCE_BYTES)
        self._key: bytes | None = None
        self._peer: int | None = None
        self._certified: frozenset[int] | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)
        if not self._links.opened(self):
            transport.abort()
            return
        self._certified = certified_by(transport, self._links.identity.cluster_id)
        notice_silence(transport)
        seconds = HANDSHAKE_SECONDS * (1 + HANDSHAKE_SPREAD * self._links.jitter.random())
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.close)

    def data_received(self, data: bytes) -> None:
        try:
            if self._peer is None and not (data := self._shake_hands(data)):
                return
            self._messages.push(data)
            messages = []
            while (message := self._messages.pop()) is not None:
                if message.sender != self._peer:
                    raise FrameError(f"member {self._peer} sent a message in the name of {message.sender}")
                messages.append(message)
            if messages:
                self._links.events.received(messages)
        except FrameError as error:
            whose = "a stranger" if self._peer is None else f"member {self._peer}"
            self._links.complaints.about(self._host, f"closing the link from {whose}: {error}")
            self._links.count_failure(self._peer or 0, "malformed")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._links.closed(self, self._peer)

    def close(self) -> None:
        """Close the connection without waiting for unsent bytes."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def _host(self) -> str:
        """Where the connection comes from."""
        address = None if self._transport is None else self._transport.get_extra_info("peername")
        return str(address[0]) if address else "an unknown host"

    def _shake_hands(self, data: bytes) -> bytes:
        """Advance the handshake; returns the bytes after it, which are messages already."""
        self._handshake.push(data)
        while (value := self._handshake.pop()) is not None:
            if self._hello is None and isinstance(value, Hello):
                self._answer(value)
            elif self._hello is not None and isinstance(value, Proof):
                self._check(self._hello, value)
                return self._handshake.rest()
            else:
                raise FrameError(f"unexpected {type(value).__name__} in a handshake")
        return b""

    def _answer(self, hello: Hello) -> None:
        assert self._transport is not None
        identity = self._links.identity
        if (reason := self._links.judge(hello, self._certified)) is not None:
            self._links.complaints.about(self._host, f"refused a peer link: {reason}")
            self._links.handshakes_failed["refused"] += 1
            self._transport.write(frame(Refused(reason)))
            self._transport.close()
            return
        self._hello, self._key = hello, None if self._certified is not None else self._links.offer(hello.sender)
        mac = acceptor_mac(self._key, hello, identity.node_id, self._nonce)
        self._transport.write(frame(Welcome(identity.node_id, identity.directory_id, self._nonce, mac)))

    def _check(self, hello: Hello, proof: Proof) -> None:
        node_id = self._links.identity.node_id
        if not same_mac(proof.mac, dialler_mac(self._key, hello, node_id, self._nonce)):
            raise FrameError(f"member {hello.sender} does not know the cluster key")
        self._peer = hello.sender
        if self._deadline is not None:
            self._deadline.cancel()
        self._links.established(self, hello)


def _parsed(address: str) -> tuple[str, int] | None:
    """The (host, port) that a dialler gave; None if it gave none that can be dialled."""
    try:
        parsed = HostPort.parse(address, "address")
    except AddressError:
        return None
    return parsed.host, parsed.port
