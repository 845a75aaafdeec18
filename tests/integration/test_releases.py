"""Real members whose builds are of other releases: neighbours meet, others do not, and nobody is harmed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pidkeeper.cli.local_cluster import Controller, LocalCluster, Member, member_name
from pidkeeper.protocol.releases import MAX_RELEASE_LENGTH
from pidkeeper.service.build import build_version
from tests.support.cluster import allocate, bring_back, log_of, register, wait_until
from tests.support.http_calls import call


class MixedCluster(LocalCluster):
    """Members take themselves for the releases in `releases`, by name, and else for what they are."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, controllers=3)
        self.releases: dict[str, str] = {}

    def program(self, member: Member) -> list[str]:
        """With the metadata of such a distribution before those of the installed one."""
        release = self.releases.get(member_name(member))
        if release is None:
            return super().program(member)
        told = self.directory / "releases" / release
        metadata = told / f"pidkeeper-{release}.dist-info" / "METADATA"
        metadata.parent.mkdir(parents=True, exist_ok=True)
        metadata.write_text(f"Metadata-Version: 2.1\nName: pidkeeper\nVersion: {release}\n")
        path = os.pathsep.join(filter(None, [str(told), os.environ.get("PYTHONPATH")]))
        return ["env", f"PYTHONPATH={path}", *super().program(member)]

    def restart(self, member: Controller, release: str | None) -> None:
        """As of that release; None: as what it is."""
        name = member_name(member)
        self.kill(member)
        if release is None:
            del self.releases[name]
        else:
            self.releases[name] = release
        self.start(member)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    cluster = MixedCluster(tmp_path_factory.mktemp("releases"))
    try:
        bring_back(cluster)
        yield cluster
    finally:
        cluster.kill(*(member for member in cluster.members() if cluster.running(member)))


def minor(ahead: int) -> str:
    """A release that many minors ahead of this one."""
    major, number, *_ = build_version().split(".")
    return f"{major}.{int(number) + ahead}.0"


def voters(cluster: MixedCluster) -> dict[int, Any]:
    """What the leader says of each."""
    return {one["id"]: one for one in call(cluster.leader().http, "GET", "/v1/quorum").json()["voters"]}


def follower(cluster: MixedCluster) -> Controller:
    leader = cluster.leader()
    return next(one for one in cluster.layout.controllers if one.id != leader.id)


def test_a_neighbour_is_let_in_and_its_release_is_told(cluster: MixedCluster) -> None:
    member = follower(cluster)
    release = f"{minor(1)}+local.{'x' * MAX_RELEASE_LENGTH}"
    cluster.restart(member, release)
    wait_until(lambda: cluster.ready(member), "the newer member")
    told = wait_until(lambda: voters(cluster)[member.id]["release"], "its release")
    assert told == release[:MAX_RELEASE_LENGTH]
    cluster.restart(member, None)
    wait_until(lambda: cluster.ready(member), "the member")


def test_a_member_that_is_two_releases_ahead_stays_out_until_it_is_the_right_one(cluster: MixedCluster) -> None:
    member = follower(cluster)
    cluster.restart(member, minor(2))
    refusal = f"member {member.id} runs release {minor(2)}, this one {build_version()}: members may be one minor"
    wait_until(lambda: refusal in log_of(cluster, member), "the reason in its own log")
    leader = cluster.leader()
    wait_until(lambda: refusal in log_of(cluster, leader), "the reason in the leader's log")
    epoch = register(leader, 9, "served").json()["broker_epoch"]
    assert [allocate(leader, 9, epoch).status for _ in range(3)] == [200] * 3
    assert not cluster.ready(member)
    assert voters(cluster)[member.id]["release"] is None
    cluster.restart(member, None)
    wait_until(lambda: cluster.ready(member), "the member")
