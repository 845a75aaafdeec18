"""A member is started with a file that somebody edited: it does what the manual says, and the fault says so."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.chaos.fault import FaultKind
from tests.chaos.faults import configuration
from tests.chaos.faults.configuration import EDITS, EditedConfiguration
from tests.chaos.plan import Target
from tests.chaos.small_stage import fault_of, ready, small_cluster, stage_of, victim
from tests.chaos.stage import ChaosCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosCluster]:
    with small_cluster(tmp_path_factory.mktemp("edited"), agents=0) as cluster:
        yield cluster


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.told[0])
async def test_an_edited_file_is_refused_or_obeyed_as_documented(
    cluster: ChaosCluster, edit: configuration.Edit
) -> None:
    stage = stage_of(cluster)
    kind = FaultKind("edit", partial(EditedConfiguration, edit), (Target.FOLLOWER,), (3.0, 10.0), takes_down=True)
    fault = fault_of(stage, kind, Target.FOLLOWER)
    await fault.begin()
    await fault.end()
    assert await fault.bites() == 1, cluster.log_end(victim(fault))
    await ready(stage)
    assert not cluster.edits
