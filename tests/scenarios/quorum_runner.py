"""Transcripts of the counting rules: every answer is also worked out from the definition, by trying everything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product

from pidkeeper.controller.raft.quorum import VoteResult, majority, majority_index, vote_result
from tests.scenarios.transcript import Args, ScenarioError, rerun

VOTES = ("yes", "weak", "no", "missing")


def majorities(voters: int) -> Iterator[tuple[int, ...]]:
    """Every set of more than half of the voters, by position."""
    for size in range(voters + 1):
        if 2 * size > voters:
            yield from combinations(range(voters), size)


def committed_by_definition(indexes: Sequence[int]) -> int:
    """The highest index that all members of some majority have reached."""
    return max(min(indexes[voter] for voter in group) for group in majorities(len(indexes)))


def won_by_definition(votes: Sequence[str]) -> bool:
    """Whether some majority granted without being in recovery, or everybody granted."""
    strong = any(all(votes[voter] == "yes" for voter in group) for group in majorities(len(votes)))
    return strong or all(vote in {"yes", "weak"} for vote in votes)


def decided_by_definition(votes: Sequence[str]) -> VoteResult:
    """Won; lost, if no way of filling in the missing votes wins; else pending."""
    if won_by_definition(votes):
        return VoteResult.WON
    fillings = product(*[("yes", "weak", "no") if vote == "missing" else (vote,) for vote in votes])
    return VoteResult.PENDING if any(won_by_definition(filled) for filled in fillings) else VoteResult.LOST


def commit(args: Args) -> list[str]:
    """How far a majority holds the log, from the index that each voter acknowledged."""
    indexes = args.numbers()
    result, expected = majority_index(indexes), committed_by_definition(indexes)
    assert result == expected, f"majority_index({indexes}) is {result}, by definition {expected}"
    holders = [f"{sum(other >= index for other in indexes)} hold {index}" for index in sorted(set(indexes))]
    return [f"{', '.join(holders)}; {majority(len(indexes))} are needed: {result}"]


def vote(args: Args) -> list[str]:
    """The state of an election, from the vote of each voter."""
    for word in args.words:
        if word not in VOTES:
            raise ScenarioError(f"{word!r} is none of {', '.join(VOTES)}")
    result, expected = decide(args.words), decided_by_definition(args.words)
    assert result is expected, f"vote_result of {args.words} is {result}, by definition {expected}"
    return [result.value]


def every_vote(args: Args) -> list[str]:
    """How many of all possible states of an election are won, lost and pending."""
    (voters,) = args.numbers()
    counts = dict.fromkeys(VoteResult, 0)
    for votes in product(VOTES, repeat=voters):
        assert decide(votes) is decided_by_definition(votes), f"vote_result of {votes} is {decide(votes)}"
        counts[decide(votes)] += 1
    return [", ".join(f"{count} {result.value}" for result, count in counts.items())]


def decide(votes: Sequence[str]) -> VoteResult:
    """The rule under test."""
    return vote_result(
        len(votes), grants=votes.count("yes"), weak_grants=votes.count("weak"), rejections=votes.count("no")
    )


def execute(command: str) -> list[str]:
    """Run one command; its trace."""
    args = Args(command)
    commands = {"commit": commit, "vote": vote, "every-vote": every_vote}
    if args.verb not in commands:
        raise ScenarioError(f"unknown command {args.verb!r}; there are {', '.join(commands)}")
    return commands[args.verb](args)


def run_quorum(text: str) -> str:
    """The transcript with the answers that the rules give now."""
    return rerun(text, execute)
