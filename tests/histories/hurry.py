"""What histories change of the product's pauses, and of the simulation's, while one runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from pidkeeper.broker_agent.data import collecting, rolling
from pidkeeper.broker_agent.groups import adopting, classic_group, coordinator
from pidkeeper.controller.node import log_duties, storage_worker
from pidkeeper.controller.state import transitions
from tests.histories.plan import Plan
from tests.simulation import agent as simulated_agent
from tests.simulation import appending, client_link, data_agent, object_store
from tests.simulation.data_agent import COMPLAINTS
from tests.simulation.full_disks import Lines


@contextmanager
def in_a_hurry(plan: Plan) -> Iterator[None]:
    """What takes minutes in the product, and seconds in the simulation, takes fractions of one."""
    with ExitStack() as stack:
        for module, name, value in (
            (collecting, "COLLECT_SECONDS", 0.3),
            (collecting, "RETRY_MAX_SECONDS", 1.0),
            (rolling, "ROLL_SECONDS", 0.15),
            (rolling, "IDLE_SECONDS", 0.3),
            (rolling, "PATIENCE_SECONDS", 0.02 if plan.rolls_eagerly else 1.0),
            (rolling, "OVERTAKEN_SECONDS", 0.2),
            (rolling, "REFUSED_SECONDS", 0.5),
            (rolling, "AWAY_SECONDS", 0.5),
            (log_duties, "FORGET_MS", 200),
            (adopting, "ADOPT_SECONDS", 1.0),
            (classic_group, "NEW_MEMBER_MS", 2_500),
            (classic_group, "UNKNOWN_REBALANCE_MS", 2_000),
            (coordinator, "COMMIT_SECONDS", 2.0),
            (coordinator, "IDLE_SECONDS", 1.0),
            (coordinator, "LOOK_SECONDS", 0.2),
            (data_agent, "SWEEP_SECONDS", 0.7),
            (data_agent, "SWEEP_INTERVAL_MS", 1_000),
            (simulated_agent, "HEARTBEAT_SECONDS", 0.4),
            (appending, "TIMEOUTS_MS", (1_000, 3_500)),
            (object_store, "LATE", (1.0, 3.3)),
            (object_store, "PAUSE", (0.2, 1.5)),
            (client_link, "LATE", (1.3, 3.2)),
            (transitions, "MAX_EPOCH", plan.max_epoch),
            (storage_worker, "logger", Lines()),
            *((module, "_log", log) for module, log in COMPLAINTS),
        ):
            stack.enter_context(patch.object(module, name, value))
        yield
