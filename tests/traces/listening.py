"""Listens to the consensus cores of a simulated cluster, and tells a recorder. None of them is changed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final
from unittest.mock import patch

from pidkeeper.controller.raft.commitment import Commitment
from pidkeeper.controller.raft.core import RaftCore
from pidkeeper.controller.raft.elections import Ballot, Voter
from pidkeeper.controller.raft.following import Following
from pidkeeper.controller.raft.leadership import Leadership
from pidkeeper.controller.raft.replication import Replication
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.traces.recorder import Recorder

_Around = Callable[[Callable[..., Any]], Callable[..., Any]]

EVENTS: Final = (
    "tick",
    "step",
    "propose",
    "change_members",
    "transfer_leadership",
    "link_lost",
    "link_up",
    "name_voters",
    "ready",
    "written",
    "snapshot_installed",
    "snapshot_failed",
)
"""What the driver calls, as far as the specification knows anything of it."""


@contextlib.contextmanager
def listening(recorder: Recorder, lost: Callable[[int], bool]) -> Iterator[None]:
    """Listen to every core that is made from now on. lost: whether the disk of a member has lost something."""
    with contextlib.ExitStack() as stack:
        for owner, name, around in (*_events(recorder, lost), *_parts(recorder)):
            stack.enter_context(patch.object(owner, name, around(getattr(owner, name))))
        yield


def _events(recorder: Recorder, lost: Callable[[int], bool]) -> list[tuple[type, str, _Around]]:
    """What happens to a core, from its start on."""

    def start(call: Callable[..., None]) -> Callable[..., None]:
        def started(core: RaftCore, *arguments: Any, **named: Any) -> None:
            call(core, *arguments, **named)
            recorder.started(core, lost=lost(core.node_id), installing=core.snapshot.index)

        return started

    def event(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def happened(core: RaftCore, *arguments: Any) -> Any:
            with recorder.event(core, name) as heeded:
                if not heeded:
                    return call(core, *arguments)
                _begins(recorder, core, name, arguments)
                result = call(core, *arguments)
                _ends(recorder, core, name, arguments, result)
                return result

        return happened

    return [(RaftCore, "__init__", start), *((RaftCore, name, partial(event, name)) for name in EVENTS)]


def _parts(recorder: Recorder) -> list[tuple[type, str, _Around]]:
    """What happens within an event, and who is told of it."""

    before, after, within = partial(_before, recorder), partial(_after, recorder), partial(_within, recorder)
    return [
        (RaftCore, "_become_follower", before(recorder.follows_nobody)),
        (RaftCore, "_become_pre_candidate", before(recorder.loses_leader)),
        (RaftCore, "_become_candidate", before(lambda core, *_: recorder.do("Stand", term=core.term + 1))),
        (RaftCore, "_follow", before(lambda core, _: recorder.do("TakeHeartbeat", through=0, number=0))),
        (Ballot, "count", before(lambda ballot, voter, *_: recorder.counts(voter))),
        (Voter, "answer_pre_vote", after(recorder.answered_pre_vote)),
        (Voter, "answer_vote_request", after(recorder.answered)),
        (Following, "append", before(recorder.appends)),
        (Following, "heartbeat", before(recorder.hears)),
        (Following, "take_snapshot", before(recorder.receives)),
        (Replication, "send_heartbeat", before(recorder.sends_heartbeat)),
        (Commitment, "commit_to", before(lambda _, index: recorder.do("AdvanceCommit", index=index))),
        (Leadership, "on_append_reply", within(recorder.acknowledged)),
        (Leadership, "on_snapshot_reply", within(recorder.snapshot_answered)),
    ]


def _before(recorder: Recorder, tell: Callable[..., None]) -> _Around:
    def around(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            if recorder.heeds:
                tell(*arguments)
            return call(*arguments, **named)

        return called

    return around


def _after(recorder: Recorder, tell: Callable[..., None]) -> _Around:
    def around(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            result = call(*arguments, **named)
            if recorder.heeds:
                tell(*arguments)
            return result

        return called

    return around


def _within(recorder: Recorder, tell: Callable[..., None]) -> _Around:
    def around(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(part: Any, message: Any) -> None:
            if recorder.heeds:
                tell(part, message, partial(call, part, message))
            else:
                call(part, message)

        return called

    return around


def _begins(recorder: Recorder, core: RaftCore, name: str, arguments: tuple[Any, ...]) -> None:
    if name == "step":
        recorder.message = arguments[0]
    elif name == "written":
        recorder.do("Written")
    elif name == "snapshot_installed":
        snapshot: SnapshotId = arguments[0]
        recorder.do("TakeSnapshot", index=snapshot.index)
        recorder.do("Installed", index=snapshot.index)
    elif name == "name_voters":
        recorder.names_voters(core)
    elif name == "link_lost" and core.leader_id == arguments[0]:
        recorder.loses_leader(core)


def _ends(recorder: Recorder, core: RaftCore, name: str, arguments: tuple[Any, ...], result: Any) -> None:
    if name == "propose":
        recorder.proposed(None)
    elif name == "change_members":
        recorder.proposed(arguments[0])
    elif name == "ready":
        recorder.handed_out(result)
