"""Checks of the quorum's own data: archives, logs and snapshots of all members."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from pyspark.sql import DataFrame

from pidkeeper.pipeline.checks.limits import DEFAULT, Limits
from pidkeeper.pipeline.checks.quorum.burn_down import burn_down
from pidkeeper.pipeline.checks.quorum.coverage import coverage
from pidkeeper.pipeline.checks.quorum.epochs import epoch_regress, stale_epoch
from pidkeeper.pipeline.checks.quorum.gap import gap
from pidkeeper.pipeline.checks.quorum.history import block_files, distinct_blocks
from pidkeeper.pipeline.checks.quorum.intervals import held_intervals
from pidkeeper.pipeline.checks.quorum.order import in_log_order, order_faults, out_of_order
from pidkeeper.pipeline.checks.quorum.overlap import overlap
from pidkeeper.pipeline.checks.quorum.quota import quota
from pidkeeper.pipeline.checks.quorum.regress import regress
from pidkeeper.pipeline.checks.quorum.replicas_disagree import replicas_disagree
from pidkeeper.pipeline.checks.quorum.snapshot_behind import snapshot_behind
from pidkeeper.pipeline.checks.quorum.storm import storm
from pidkeeper.pipeline.derived import Derivation
from pidkeeper.pipeline.inputs import AuditInputs

Check = Callable[[AuditInputs], DataFrame]


def quorum_checks(limits: Limits = DEFAULT) -> tuple[tuple[str, Check], ...]:
    """Name and check, in the order in which a report shows them."""
    return (
        ("overlap", overlap),
        ("regress", regress),
        ("gap", gap),
        ("replicas_disagree", replicas_disagree),
        ("epoch_regress", epoch_regress),
        ("stale_epoch", stale_epoch),
        ("coverage", coverage),
        ("snapshot_behind", snapshot_behind),
        ("storm", partial(storm, limits=limits)),
        ("burn_down", partial(burn_down, limits=limits)),
        ("quota", partial(quota, limits=limits)),
    )


QUORUM_CHECKS = quorum_checks()

QUORUM_TABLES: Final[tuple[Derivation, ...]] = (
    block_files,
    distinct_blocks,
    in_log_order,
    out_of_order,
    order_faults,
    held_intervals,
)
"""What several of them look at, in an order in which each rests on those before it."""
