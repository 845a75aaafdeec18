"""Some real power cuts. `python -m tests.crash.run` makes thousands."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.cluster_cuts import cut_cluster
from tests.crash.loop_disk import fast_directory, in_own_mounts, why_not
from tests.crash.power_cuts import cut_power

CUTS = 200
CONTROL_CUTS = 50
CLUSTER_CUTS = 4


@pytest.fixture
def disks() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pidkeeper-crash-", dir=fast_directory()) as directory:
        if reason := why_not(Path(directory)):
            pytest.skip(f"no power can be cut here: {reason}")
        yield Path(directory)
        assert directory not in Path("/proc/mounts").read_text()
        attached = subprocess.run(["losetup", "--all"], capture_output=True, text=True, timeout=30, check=True).stdout
        assert directory not in attached


def test_a_member_keeps_all_that_it_acknowledged(disks: Path) -> None:
    result = in_own_mounts(lambda: cut_power(disks, "disk", CUTS, 1))
    assert not result.violations, "\n".join(result.violations)
    assert result.cuts >= CUTS // 2
    assert result.acknowledged > 0


def test_a_member_whose_disk_never_syncs_is_found_out(disks: Path) -> None:
    assert in_own_mounts(lambda: cut_power(disks, "disk", CONTROL_CUTS, 1, syncs=False)).violations


def test_a_quorum_goes_on_above_all_that_it_acknowledged(disks: Path) -> None:
    result = in_own_mounts(lambda: cut_cluster(disks, CLUSTER_CUTS, 1))
    assert not result.violations, "\n".join(result.violations)
    assert result.cuts == CLUSTER_CUTS
    assert result.acknowledged > CLUSTER_CUTS
