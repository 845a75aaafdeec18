"""How messages, entries and states read in a trace. `5@2` is the entry at index 5 of term 2, `5..7@2` three of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from pidkeeper.controller.raft.core import RaftCore
from pidkeeper.controller.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    HardState,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    InstallSnapshotReply,
    Message,
    PreVote,
    PreVoteReply,
    RequestVote,
    RequestVoteReply,
    TimeoutNow,
)
from pidkeeper.protocol.records import read_voters
from tests.scenarios.configuration import configuration_text


def span(low: int, high: int, term: int | str) -> str:
    """Entries `low`..`high` of one term."""
    return f"{low}@{term}" if low == high else f"{low}..{high}@{term}"


def terms(slots: Iterable[tuple[int, int]]) -> str:
    """(index, term) pairs in index order, runs of one term drawn together."""
    runs: list[tuple[int, int, int]] = []
    for index, term in slots:
        if runs and runs[-1][1] + 1 == index and runs[-1][2] == term:
            runs[-1] = (runs[-1][0], index, term)
        else:
            runs.append((index, index, term))
    return " ".join(span(*run) for run in runs) or "nothing"


def entries(batch: Iterable[Entry]) -> str:
    """Entries without their payload."""
    return terms((entry.index, entry.term) for entry in batch)


def told(data: bytes) -> str:
    """What a state machine keeps of an entry: the word that was proposed, or a configuration in brackets."""
    record = read_voters(data)
    return data.decode() if record is None else f"[{configuration_text(record)}]"


def payload(data: bytes) -> str:
    """What an entry carries; the empty one is a leader's own."""
    text = told(data)
    return text if text.startswith("[") else f'"{text}"' if text else "empty"


def hard_state(state: HardState) -> str:
    """What a member may never forget."""
    vote = "no vote" if state.vote is None else f"vote {state.vote}"
    recovering = ", recovering" if state.recovering else ""
    return f"term {state.term}, {vote}, commit {state.commit}{recovering}"


def slots(core: RaftCore) -> list[tuple[int, int]]:
    """(index, term) of every entry at hand."""
    indexes = range(core.first_index, core.last_index + 1)
    return [(index, term) for index in indexes if (term := core.term_at(index)) is not None]


def configuration(core: RaftCore) -> str:
    """The configuration in force, by the index of its entry; 0 is the configured one."""
    membership = core.membership
    unsure = "" if core.log.memberships.committed else ", not known to be committed"
    return f"configuration {membership.index}: {configuration_text(membership.record)}{unsure}"


def _pre_vote_reply(message: PreVoteReply) -> str:
    verdict = "granted" if message.granted else "refused"
    return f"PreVoteReply term {message.term}, {verdict}" + (", recovering" if message.recovering else "")


def _request_vote(message: RequestVote) -> str:
    why = ", by transfer" if message.transfer else ""
    return f"RequestVote term {message.term}, log ends at {message.last_log_index}@{message.last_log_term}{why}"


def _request_vote_reply(message: RequestVoteReply) -> str:
    verdict = "granted" if message.granted else "refused"
    return f"RequestVoteReply term {message.term}, {verdict}" + _recovery(message.recovery)


def _append(message: AppendEntries) -> str:
    after = f"after {message.prev_log_index}@{message.prev_log_term}"
    carried = entries(message.entries) if message.entries else "no entries"
    return f"AppendEntries term {message.term}, {after}: {carried}, commit {message.leader_commit}"


def _append_reply(message: AppendEntriesReply) -> str:
    if message.rejected:
        hint = f"may match at {message.hint_index}@{message.hint_term}"
        verdict = f"rejected after {message.rejected_index}, {hint}"
    else:
        verdict = f"accepted through {message.match_index}"
    return f"AppendEntriesReply term {message.term}, {verdict}" + _recovery(message.recovery)


def _heartbeat(message: Heartbeat) -> str:
    recovered = f", recovery {message.recovered} is complete" if message.recovered else ""
    return f"Heartbeat term {message.term}, commit {message.leader_commit}{recovered}"


def _snapshot(message: InstallSnapshot) -> str:
    end = message.offset + len(message.data)
    last = ", the last" if message.done else ""
    name = f"{message.snapshot.index}@{message.snapshot.term}"
    return f"InstallSnapshot term {message.term}, {name}, bytes {message.offset} to {end}{last}"


def _snapshot_reply(message: InstallSnapshotReply) -> str:
    news = "installed" if message.installed else f"wants byte {message.next_offset}"
    return f"InstallSnapshotReply term {message.term}, {message.snapshot.index}@{message.snapshot.term}, {news}"


def _recovery(number: int) -> str:
    return f", in recovery {number}" if number else ""


_WORDINGS: Final[dict[type, Callable[[Any], str]]] = {
    PreVote: lambda m: f"PreVote term {m.term}, log ends at {m.last_log_index}@{m.last_log_term}",
    PreVoteReply: _pre_vote_reply,
    RequestVote: _request_vote,
    RequestVoteReply: _request_vote_reply,
    AppendEntries: _append,
    AppendEntriesReply: _append_reply,
    Heartbeat: _heartbeat,
    HeartbeatReply: lambda m: f"HeartbeatReply term {m.term}, log ends at {m.last_log_index}",
    InstallSnapshot: _snapshot,
    InstallSnapshotReply: _snapshot_reply,
    TimeoutNow: lambda m: f"TimeoutNow term {m.term}",
}


def message_text(message: Message) -> str:
    """What a message says; who sends it to whom stands before it in the trace."""
    return _WORDINGS[type(message)](message)


def status(core: RaftCore) -> list[str]:
    """What a member is and knows; for a leader also what it knows about each peer."""
    leader = "no leader" if core.leader_id is None else f"leader {core.leader_id}"
    flags = (", recovering" if core.recovering else "") + (", serving" if core.serving else "")
    log = f"log ends at {core.last_index}, durable {core.log.stable}, commit {core.commit}, applied {core.applied}"
    lines = [f"{core.role.value} of term {core.term}, {leader}{flags}; {log}"]
    for peer, progress in core.progress.items():
        if peer != core.node_id:
            paused = ", paused" if progress.paused else ""
            known = f"match {progress.match}, next {progress.next}, in flight {progress.inflight}"
            lines.append(f"  {peer}: {progress.state.value}{paused}, {known}")
    return lines
