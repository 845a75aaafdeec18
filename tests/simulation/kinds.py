"""Every kind of fault that the simulation knows: a kind that is not named here is refused when it fires.

So `test_simulation.py` can ask of all of them whether they still fire, and nobody has to remember a new one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tests.simulation.swarm import (
    CHANGES,
    FORGETTING,
    MEMBER_FAULTS,
    MISTRUSTED,
    SLOW_DISKS,
    UPGRADES,
    ZOOKEEPER_FAULTS,
)

THROWN: Final = frozenset(
    MEMBER_FAULTS | CHANGES | FORGETTING | SLOW_DISKS | ZOOKEEPER_FAULTS | MISTRUSTED | UPGRADES,
)
"""Drawn with weights, and thrown by the nemesis."""

OTHERS: Final = frozenset(
    {
        # Members, what comes of their faults, and their operators.
        "disk_full_at_the_end",
        "disk_replaced_after_refusal",
        "disk_replaced_by_another_file",
        "evidence_insisted_on",
        "file_refused",
        "forgetting_noticed",
        "handover_cut_off",
        "left_over_removed",
        "power_cut_within_work",
        "segment_made_after_refusal",
        "segment_refused",
        "tail_torn",
        "all_disks_lost",
        "predecessor_named",
        "copy_restored",
        # Messages, requests and answers.
        "large_entry",
        "message_dropped",
        "message_reordered",
        "message_repeated",
        "message_stuck",
        "request_or_answer_late",
        "request_or_answer_lost",
        # Brokers and their agents.
        "agent_of_the_build_before",
        "agent_restart",
        "agent_started_again",
        "agent_unregistered",
        "broker_id_claimed",
        "candidate_lied",
        "epoch_guessed",
        "evidence_forged",
        "registration_copied",
        # The data plane.
        "id_of_nobody",
        "produce_answer_lost",
        "put_outlives_its_agent",
        "sent_before_it_joined",
        "store_answer_lost",
        "store_failed",
        "store_late",
        "store_pause",
        "store_slow",
        "transaction_comes_late",
        "zombie_writes_on",
        # Callers.
        "crowd_finds_no_room",
        "crowd_gone",
        "crowd_of_ids",
        "floor_far",
        "floor_forced",
        "floor_forced_without_token",
        "floor_leaves_nothing",
        "floor_near_the_end",
        "floor_within_the_bound",
        "ids_exhausted",
        # ZooKeeper, its brokers, and the migration.
        "finalize_refused_over_brokers",
        "old_broker_session_lost",
        "order_finalize",
        "order_rollback",
        "order_start",
        "zookeeper_late_write",
        "zookeeper_late_write_refused",
        "zookeeper_read_timeout",
        "zookeeper_timeout_applied",
        "zookeeper_timeout_lost",
    }
)
"""What else befalls a cluster, or comes of it."""

KINDS: Final = THROWN | OTHERS

RAREST: Final = frozenset({"left_over_removed"})
"""What no known seed shows: that a change which its operator gave up is committed after all."""


def check_kinds(fired: Iterable[str]) -> None:
    """Raises AssertionError if one of them is not known here."""
    unknown = sorted(set(fired) - KINDS)
    assert not unknown, f"{unknown} fired, but tests/simulation/kinds.py does not name them"
