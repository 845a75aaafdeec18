"""The transactional ids of one history: each answer and each record is judged as in the simulation.

A copy that takes the quorum's place knows nothing of what was told behind it, so what comes after it is left out.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pidkeeper.controller.state.requests import EndTxn
from pidkeeper.protocol.errors import ErrorCode
from tests.simulation.history import Operation
from tests.simulation.own_blocks import OwnBlocks
from tests.simulation.transaction_history import TransactionChecker, given_pair, supplied_pair
from tests.simulation.transaction_model import NOBODY

if TYPE_CHECKING:
    from tests.histories.history import LogHistory


class Epochs:
    """`counted`: what producers were told, by kind."""

    def __init__(self, history: LogHistory) -> None:
        self._history = history
        self.counted: Counter[str] = Counter()

    def check(self) -> None:
        """Judge what there is so far. Raises Violation."""
        history = self._history
        commits, attempts = history.history.commits, history.history.transactional
        own_blocks = OwnBlocks(commits, bridge=False, hears=history.founder.hears)
        checker = TransactionChecker(commits, attempts, (), history.plan.max_epoch, own_blocks)
        self.counted["answers to transactions"] += checker.check(
            [agent.claims for agent in (*history.agents, *history.gone)]
        )
        for attempt in attempts:
            self._count(attempt)

    def _count(self, attempt: Operation) -> None:
        pair, supplied, request = given_pair(attempt), supplied_pair(attempt), attempt.request
        anew = isinstance(request, EndTxn) and request.new_epoch
        self.counted["epochs given by ends"] += anew and pair is not None
        self.counted["late ends fenced"] += anew and attempt.error is ErrorCode.PRODUCER_FENCED
        self.counted["producer IDs used up"] += pair is not None and supplied != NOBODY and pair[0] != supplied[0]
