"""The rest of docs/metrics.md: what only some members expose, and what the labels of the others mean."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pidkeeper.controller.node.assembly import ClusterMember
from pidkeeper.controller.node.interface import MemberInterface
from pidkeeper.controller.node.metrics import member_metrics
from pidkeeper.controller.node.operator_warnings import WarningKind
from pidkeeper.controller.raft.election_tally import ElectionCause, ElectionOutcome, LossCause
from pidkeeper.controller.state.requests import AllocateProducerIds, RegisterBroker
from pidkeeper.protocol.metadata_version import LATEST, UNTOLD
from pidkeeper.service.certificate_metrics import CertificateCollector
from pidkeeper.service.protection import UNPROTECTED, Protection
from pidkeeper.service.tls import Tls
from tests.support.certificates import CertificateAuthority
from tests.support.loopback_cluster import LoopbackCluster, eventually
from tests.support.memory_member import MemoryZnode
from tests.support.metrics_page import PAGE, differences, exposed, listed


class Session(MemoryZnode):
    """A znode that needs a session."""

    async def start(self) -> None:
        """Nothing to connect to."""

    async def stop(self) -> None:
        """As little."""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LoopbackCluster]:
    made = LoopbackCluster(tmp_path, voters=1)
    await made.start()
    yield made
    await made.close()


def value(member: ClusterMember, name: str, **labels: str) -> float:
    (found,) = [
        sample.value
        for family in member_metrics(member)
        for sample in family.samples
        if sample.name == name and sample.labels == labels
    ]
    return found


async def test_the_page_says_what_members_with_zookeeper_expose(cluster: LoopbackCluster) -> None:
    member = await cluster.leader()
    before = exposed(member_metrics(member))
    migration = member.leadership.migration
    migration.znode, migration.claims.zookeeper_next = Session(), 0
    added = {name: row for name, row in exposed(member_metrics(member)).items() if name not in before}
    assert len(added) > 5
    assert differences(listed("With ZooKeeper"), added) == []


def test_the_page_says_what_processes_with_a_certificate_expose(tmp_path: Path) -> None:
    protection = Protection("required", Tls(CertificateAuthority(tmp_path).issue("own")), "c")
    assert list(CertificateCollector(UNPROTECTED).collect()) == []
    assert differences(listed("With TLS"), exposed(CertificateCollector(protection).collect())) == []


@pytest.mark.parametrize(
    ("section", "label", "values"),
    [
        ("Elections", "cause", {one.value for one in [*ElectionCause, *LossCause]}),
        ("Elections", "outcome", {one.value for one in ElectionOutcome}),
        ("Warnings", "kind", {one.value for one in WarningKind}),
    ],
)
def test_the_page_says_what_labels_mean(section: str, label: str, values: set[str]) -> None:
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    tables = [table for table in text.split("\n\n") if table.startswith(f"| `{label}` |")]
    named = {line.split("`")[1] for table in tables for line in table.splitlines()[2:]}
    assert named == values


async def test_the_leader_tells_everywhere_whom_the_metadata_version_waits_for(tmp_path: Path) -> None:
    """A quorum that is rolled, where an agent of the build before lives on."""
    cluster = LoopbackCluster(tmp_path, voters=1)
    await cluster.start(supported=UNTOLD)
    await eventually(lambda: cluster.members[1].machine.metadata_version == UNTOLD)
    await cluster.call(RegisterBroker(7, "one", "host:1"))
    await cluster.stop()
    await cluster.start()
    member = await cluster.leader()
    interface = MemberInterface(member)

    def told() -> tuple[list[str], float, list[int | None]]:
        warnings = [text.partition(":")[0] for text in interface.describe().warnings]
        known = [one.metadata_version for one in interface.brokers().brokers]
        return warnings, value(member, "pidkeeper_warnings", kind="version_waits"), known

    assert told() == ([f"metadata version {LATEST} waits for broker 7"], 1, [UNTOLD])
    await cluster.call(RegisterBroker(7, "one", "host:1", metadata_version=LATEST))
    await cluster.settled()
    assert told() == ([], 0, [None])
    await cluster.close()


async def test_a_leader_counts_the_blocks_that_it_gave_and_none_that_it_reads_again(cluster: LoopbackCluster) -> None:
    epoch = await cluster.register(7)
    member = await cluster.leader()
    for _ in range(3):
        await member.submit(AllocateProducerIds(7, epoch))
    name = "pidkeeper_ids_blocks_allocated_total"
    assert value(member, name, broker="7") == 3
    assert value(member, "pidkeeper_raft_elections_total", cause="started", outcome="won") == 1
    assert value(member, "pidkeeper_raft_commit_duration_seconds_count") >= 4
    await cluster.stop()
    await cluster.start()
    member = await cluster.leader()
    assert member.machine.producer_ids.next_producer_id == 30, "the log was read again"
    await member.submit(AllocateProducerIds(7, epoch))
    assert value(member, name, broker="7") == 1
