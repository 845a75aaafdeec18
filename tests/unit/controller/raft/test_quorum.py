from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.controller.raft.quorum import VoteResult, majority, majority_index, vote_result


@pytest.mark.parametrize(("voters", "expected"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4)])
def test_majority(voters: int, expected: int) -> None:
    assert majority(voters) == expected


@given(st.lists(st.integers(0, 9), min_size=1, max_size=7))
def test_majority_index_against_its_definition(indexes: list[int]) -> None:
    reached = [index for index in range(10) if 2 * sum(1 for own in indexes if own >= index) > len(indexes)]
    assert majority_index(indexes) == max(reached)


def wins(votes: tuple[str, ...]) -> bool:
    strong = sum(1 for vote in votes if vote == "yes")
    return 2 * strong > len(votes) or all(vote in {"yes", "weak"} for vote in votes)


@pytest.mark.parametrize("voters", [1, 2, 3, 4, 5])
def test_vote_result_against_all_ways_to_go_on(voters: int) -> None:
    """Won: nothing can change it. Lost: nothing can win it any more. Pending: it can still be won."""
    for votes in product(["yes", "weak", "no", "out"], repeat=voters):
        result = vote_result(
            voters, grants=votes.count("yes"), weak_grants=votes.count("weak"), rejections=votes.count("no")
        )
        replies = [["yes", "weak", "no"] if vote == "out" else [vote] for vote in votes]
        endings = [wins(ending) for ending in product(*replies)]
        if all(endings):
            assert result is VoteResult.WON, votes
        elif not any(endings):
            assert result is VoteResult.LOST, votes
        else:
            assert result is VoteResult.PENDING, votes


@pytest.mark.parametrize("voters", [1, 2, 3])
@pytest.mark.parametrize("others", [0, 1, 2])
def test_others_are_asked_where_weak_votes_are_to_count(voters: int, others: int) -> None:
    for votes in product(["yes", "weak", "no", "out"], repeat=voters):
        for said in product(["yes", "no", "out"], repeat=others):
            result = vote_result(
                voters,
                grants=votes.count("yes"),
                weak_grants=votes.count("weak"),
                rejections=votes.count("no"),
                others=others,
                other_grants=said.count("yes"),
                other_rejections=said.count("no"),
            )
            replies = [["yes", "weak", "no"] if vote == "out" else [vote] for vote in votes]
            answers = [["yes", "no"] if one == "out" else [one] for one in said]
            endings = [
                2 * ending.count("yes") > voters or ("no" not in ending and "no" not in answered)
                for ending in product(*replies)
                for answered in product(*answers)
            ]
            if all(endings):
                assert result is VoteResult.WON, (votes, said)
            elif not any(endings):
                assert result is VoteResult.LOST, (votes, said)
            else:
                assert result is VoteResult.PENDING, (votes, said)
