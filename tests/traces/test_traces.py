"""The core's courses in the specification: allowed as it ships, refused with a bug, not changed by being recorded."""

from __future__ import annotations

from collections import Counter

import pytest

from pidkeeper.controller.raft.leadership import Leadership
from pidkeeper.controller.raft.log import RaftLog
from pidkeeper.controller.raft.messages import HeartbeatReply
from spec.run import why_no_tlc
from tests.simulation.cluster import run_to_end
from tests.simulation.swarm import FORGETTING
from tests.traces.follow import Followed, follow
from tests.traces.recorded import ClusterWithout, Recorded
from tests.traces.recorder import Recorder

STEPS = 2_500
SEEDS = (2, 15, 144, 1028342634678, 1028342634701, 317494816470)
"""With members that change, snapshots that are installed, disks that are replaced and torn; a member that recovers and
is removed by the entry that ends that; a lost write that had taken entries away; a learner that comes meanwhile."""

LEFT_OUT = frozenset({*FORGETTING, "term_forged"})
"""With these, the seeds would take other courses."""


@pytest.fixture(scope="module")
def followed() -> list[Followed]:
    """What TLC says of them."""
    if (missing := why_no_tlc()) is not None:
        pytest.skip(missing)
    return [follow(seed, STEPS, LEFT_OUT) for seed in SEEDS]


def test_what_members_do_is_a_behaviour_of_the_specification(followed: list[Followed]) -> None:
    assert [(one.refused, one.violation) for one in followed] == [(None, None)] * len(SEEDS)
    assert min(one.steps for one in followed) > STEPS // 3
    actions: Counter[str] = sum((one.actions for one in followed), Counter())
    wanted = {"ChangeMembers", "TakeSnapshot", "TakeInstalled", "Restart", "CountVote", "AdvanceCommit", "StepDown"}
    assert wanted <= actions.keys()


@pytest.mark.parametrize(
    ("seed", "steps", "taken"),
    [(8000004, 1_200, "WentBack"), (8000006, 3_600, "Believe"), (609320980869, 900, "Believe")],
)
def test_disks_go_back_and_members_lie_between_steps_that_are_held_to_the_rules(
    seed: int, steps: int, taken: str
) -> None:
    if (missing := why_no_tlc()) is not None:
        pytest.skip(missing)
    one = follow(seed, steps)
    assert (one.refused, one.violation) == (None, None)
    assert one.steps >= steps
    assert one.actions[taken]


def test_a_term_of_which_nobody_told_is_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    if (missing := why_no_tlc()) is not None:
        pytest.skip(missing)
    monkeypatch.setattr(Recorder, "forged", lambda *_: None)
    refused = follow(8000006, 3_600).refused
    assert refused is not None
    assert ": MeetTerm " in refused.splitlines()[-1]


def _grant_anybody(log: RaftLog, last_index: int, last_term: int, through: int | None = None) -> bool:
    return True


def _take_for_acknowledgement(leadership: Leadership, message: HeartbeatReply) -> None:
    progress = leadership.progress.get(message.sender)
    if progress is not None:
        progress.hear_heartbeat_reply(leadership.now)
        progress.match = max(progress.match, message.last_log_index)
        progress.next = max(progress.next, progress.match + 1)
        progress.count(max(progress.counted, message.last_log_index))
        leadership._maybe_commit(message.last_log_index)


@pytest.mark.parametrize(
    ("seed", "owner", "name", "bug", "step"),
    [
        (13, RaftLog, "is_up_to_date", _grant_anybody, "AnswerVoteRequest"),
        (2, Leadership, "on_heartbeat_reply", _take_for_acknowledgement, "AdvanceCommit"),
    ],
    ids=["a vote for a log that lacks entries", "a heartbeat reply as an acknowledgement"],
)
def test_a_core_with_a_bug_takes_a_step_that_is_none(
    monkeypatch: pytest.MonkeyPatch, seed: int, owner: type, name: str, bug: object, step: str
) -> None:
    if (missing := why_no_tlc()) is not None:
        pytest.skip(missing)
    monkeypatch.setattr(owner, name, bug)
    refused = follow(seed, STEPS, LEFT_OUT).refused
    assert refused is not None
    assert f": {step} " in refused.splitlines()[-1]


def test_whoever_is_recorded_does_what_he_does_alone() -> None:
    recorded = Recorded(SEEDS[0], STEPS, LEFT_OUT)
    assert recorded.course.length >= STEPS
    assert recorded.result.digest == run_to_end(ClusterWithout(SEEDS[0], LEFT_OUT)).digest
