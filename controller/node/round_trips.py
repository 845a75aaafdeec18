"""How long a leader's entries take to a peer and their acknowledgement takes back.

The messages carry nothing to match a reply with its request, and any of them may be lost. But an entry of the leader's
own term is held by nobody before it was sent for the first time. So the first acknowledgement of one, in that term,
comes after a whole round trip from that moment: the network both ways, both event loops, and the write and sync of the
peer, on which an acknowledgement rests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from pidkeeper.controller.raft.messages import AppendEntries, AppendEntriesReply, Message
from pidkeeper.service.histogram import SHORT_BOUNDS_US, Histogram, durations


class _Probe(msgspec.Struct, frozen=True):
    """An entry that was sent for the first time, and when."""

    term: int
    index: int
    sent_ns: int


class RoundTrips:
    """Measures one entry at a time for each peer, and the next one that is sent once that is acknowledged.

    `durations`: of each peer that has acknowledged one. `clock_ns`: a monotonic clock.
    """

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self.durations: dict[int, Histogram] = {}
        # By peer, the (term, index) of the newest entry that was ever sent to it.
        self._newest: dict[int, tuple[int, int]] = {}
        self._under_way: dict[int, _Probe] = {}

    def sent(self, messages: Sequence[Message]) -> None:
        """These are about to be sent."""
        for message in messages:
            if type(message) is AppendEntries and message.entries and message.entries[-1].term == message.term:
                self._sent(message.to, message.term, message.entries[-1].index)

    def received(self, messages: Sequence[Message]) -> None:
        """These have come from one peer."""
        for message in messages:
            if type(message) is AppendEntriesReply and (probe := self._under_way.get(message.sender)) is not None:
                self._acknowledged(message, probe)

    def interrupted(self, peer: int) -> None:
        """The connection to or from `peer` is another one: what was lost with the old one is no round trip."""
        self._under_way.pop(peer, None)

    def _sent(self, peer: int, term: int, index: int) -> None:
        if (term, index) <= self._newest.get(peer, (0, 0)):
            return
        self._newest[peer] = term, index
        probe = self._under_way.get(peer)
        if probe is None or probe.term != term:
            self._under_way[peer] = _Probe(term, index, self._clock_ns())

    def _acknowledged(self, reply: AppendEntriesReply, probe: _Probe) -> None:
        if reply.term != probe.term or reply.rejected or reply.match_index < probe.index:
            return
        del self._under_way[reply.sender]
        if (histogram := self.durations.get(reply.sender)) is None:
            histogram = self.durations[reply.sender] = durations(SHORT_BOUNDS_US)
        histogram.observe(self._clock_ns() - probe.sent_ns)
