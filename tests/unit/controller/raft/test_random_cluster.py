"""Seeded chaos over clusters with fixed voters."""

from __future__ import annotations

import pytest

from tests.support.raft_chaos import Chaos

SEEDS = 200


@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_safety_and_convergence(first: int) -> None:
    for seed in range(first, first + 20):
        try:
            Chaos(seed).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
