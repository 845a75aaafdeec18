"""What may leave this member, and when: messages, the writes that they rest on, requests for snapshot chunks.

Two kinds of messages, as in etcd-io/raft: those that may leave now, and those that rest on a write, which leave when
it is durable (an acknowledgement, a vote, a vote request, the refusal of a stale leader). Nothing else in the core
knows what a write is, so no other part can send too early.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from pidkeeper.controller.raft.hard_state import HardStateKeeper
from pidkeeper.controller.raft.invariants import InvariantViolation
from pidkeeper.controller.raft.log import RaftLog
from pidkeeper.controller.raft.messages import Entry, HardState, InstallSnapshot, Message
from pidkeeper.controller.raft.ready import ChunkRequest, Ready


class Write:
    """A write under way. None of its fields changes but `parked`, which grows until the write is durable."""

    __slots__ = ("hard", "parked", "token", "version")

    def __init__(self, token: int, version: int, hard: bool, parked: list[Message]) -> None:
        # Names the write. Tokens rise by one, and come back from the driver in this order (R13).
        self.token = token
        # The `HardStateKeeper.version` that is durable with this write, for writes become durable in order.
        self.version = version
        # Whether this write carries a term, a vote or a recovery that no write before it carried.
        self.hard = hard
        # Messages that rest on this write, or on an earlier one. They leave when it is durable (R11).
        self.parked = parked


class Outbox:
    """Messages, writes and chunk requests on their way to the driver, which takes them with `RaftCore.ready`."""

    __slots__ = (
        "_chunk_requests",
        "_durable_version",
        "_hard",
        "_last_written",
        "_log",
        "_messages",
        "_parked",
        "_submitted_version",
        "_writes",
        "send",
        "submitted_commit",
    )

    def __init__(self, hard: HardStateKeeper, log: RaftLog, commit: int) -> None:
        """commit: the commit index in the hard state on disk."""
        self._hard = hard
        self._log = log
        # May leave with the next Ready: they rest on nothing, or on what is durable. Always the same list.
        self._messages: list[Message] = []
        # Sends a message with the next Ready: it promises nothing that a crash could take back. Bound once, as every
        # message of a leader passes here.
        self.send: Final = self._messages.append
        # Rest on something that no write under way covers for certain. The next `ready` puts them on a write.
        self._parked: list[Message] = []
        # Under way, oldest first. Leave by `written` alone.
        self._writes: deque[Write] = deque()
        # The token of the newest durable write; 0 before the first.
        self._last_written = 0
        # The versions of the hard state that were handed out for writing, and that are durable:
        # durable <= submitted <= the keeper's. A version says nothing beyond this process.
        self._submitted_version = hard.version
        self._durable_version = hard.version
        # The commit index in the last hard state that was handed out for writing, or on disk at the start. It may lag
        # behind the log's: it rides along with other writes, as losing it costs nothing but time.
        self.submitted_commit = commit
        # As leader: snapshot chunks for the driver to read and send.
        self._chunk_requests: list[ChunkRequest] = []

    @property
    def oldest_write(self) -> int:
        """The token of the oldest write under way, 0 if there is none."""
        return self._writes[0].token if self._writes else 0

    @property
    def hard_state_durable(self) -> bool:
        """Whether the present term, vote and recovery are on disk."""
        return self._durable_version == self._hard.version

    def send_when_durable(self, message: Message, index: int = 0) -> None:
        """Send `message` once the hard state and the log through `index` are durable here."""
        if index <= self._log.stable and self._durable_version == self._hard.version:
            self._messages.append(message)
        else:
            self._parked.append(message)

    def request_chunk(self, request: ChunkRequest) -> None:
        """Have the driver read and send a chunk of a snapshot."""
        self._chunk_requests.append(request)

    def take(self, committed: list[Entry], chunks: list[InstallSnapshot], may_write: bool) -> Ready | None:
        """All that may leave now, with what is to be applied and the received chunks; None if that is nothing.

        Begins a write if there is anything to write and `may_write`.
        """
        token: int | None = None
        hard_state: HardState | None = None
        entries: list[Entry] = []
        if self._submitted_version != self._hard.version or self._log.submitted < self._log.last_index:
            if may_write:
                token, hard_state, entries = self._begin_write()
        elif self._parked:
            self._park_on_last_write()
        requests = self._chunk_requests
        if token is None and not (self._messages or committed or chunks or requests):
            return None
        messages = self._messages.copy()
        self._messages.clear()
        if requests:
            self._chunk_requests = []
        return Ready(token, hard_state, entries, messages, committed, chunks, requests or [])

    def written(self, token: int) -> Write:
        """The oldest write under way, which must be the one with `token`, is durable. `release` sends its messages."""
        if not self._writes or token != self._last_written + 1:
            raise InvariantViolation("R13", f"write {token} is durable, but {self._last_written + 1} is the next one")
        write = self._writes.popleft()
        self._last_written = token
        self._durable_version = write.version
        self._log.write_done()
        return write

    def release(self, write: Write) -> None:
        """Send what rested on `write`, but nothing of a term that has passed: it would promise what no longer holds."""
        if write.token > self._last_written:
            raise InvariantViolation("R11", f"release of write {write.token}, but {self._last_written} is durable")
        if write.parked:
            term = self._hard.term
            self._messages.extend([message for message in write.parked if message.term >= term])

    def _begin_write(self) -> tuple[int, HardState | None, list[Entry]]:
        """Begin the next write; its token, its hard state if that changed, and its entries. Takes what was parked."""
        log, hard = self._log, self._hard
        entries = log.begin_write()
        token = (self._writes[-1].token if self._writes else self._last_written) + 1
        changed = self._submitted_version != hard.version
        value = None
        # The commit index alone is no reason to write, but it rides along: a restart then applies more at once.
        if changed or log.commit != self.submitted_commit:
            value = hard.value(log.commit)
            self.submitted_commit = log.commit
        self._writes.append(Write(token, hard.version, changed, self._parked))
        self._submitted_version = hard.version
        self._parked = []
        return token, value, entries

    def _park_on_last_write(self) -> None:
        """Nothing new is to be written: the youngest write under way, if any, covers what the parked messages need."""
        parked, self._parked = self._parked, []
        # Writes become durable in order, so the youngest covers all that was handed out before it.
        if self._writes:
            self._writes[-1].parked.extend(parked)
        else:
            self.release(Write(self._last_written, self._durable_version, False, parked))
