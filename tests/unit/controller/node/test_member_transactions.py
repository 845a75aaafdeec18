"""What a member does about transactions while it leads, over real logs and links on the loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from pidkeeper.controller.node.assembly import ClusterMember
from pidkeeper.controller.node.interface import MemberInterface
from pidkeeper.controller.state import requests, transaction_decisions
from pidkeeper.controller.state.transitions import TransactionStatus
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.protocol.transactions import TopicPartitions
from tests.support.loopback_cluster import LoopbackCluster, eventually

Make = Callable[..., LoopbackCluster]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[LoopbackCluster] = []

    def build(**options: object) -> LoopbackCluster:
        made.append(LoopbackCluster(tmp_path / str(len(made)), **options))  # type: ignore[arg-type]
        return made[-1]

    yield build
    for cluster in made:
        await cluster.close()


def status(member: ClusterMember, name: str) -> str | None:
    record = member.machine.transactions.get(name)
    return None if record is None else TransactionStatus(record.status).name


async def begin(cluster: LoopbackCluster, name: str = "tx", timeout_ms: int = 60_000) -> tuple[int, int]:
    """A transaction under way; the broker's epoch and the producer ID."""
    await cluster.settled()
    epoch = await cluster.register()
    given = await cluster.call(requests.InitProducerId(1, epoch, name, timeout_ms, -1, -1, -1))
    topics = (TopicPartitions("t", (0, 1)),)
    await cluster.call(requests.AddPartitionsToTxn(1, epoch, name, given.producer_id, 0, topics))
    return epoch, given.producer_id


async def test_a_decided_transaction_is_completed_on_every_member(make: Make) -> None:
    cluster = make()
    await cluster.start()
    epoch, producer_id = await begin(cluster)
    await cluster.call(requests.EndTxn(1, epoch, "tx", producer_id, 0, True))
    await eventually(lambda: all(status(member, "tx") == "COMPLETE_COMMIT" for member in cluster.members.values()))


async def test_a_transaction_whose_time_is_up_is_aborted(make: Make) -> None:
    cluster = make(voters=1, transaction_abort_check_ms=100)
    await cluster.start()
    epoch, producer_id = await begin(cluster, timeout_ms=1)
    member = cluster.members[1]
    await eventually(lambda: status(member, "tx") == "COMPLETE_ABORT")
    assert (member.leadership.transactions.fenced, member.leadership.transactions.timed_out) == (1, 1)
    samples = {
        "".join([sample.name, *sample.labels.values()]): sample.value
        for family in MemberInterface(member).metric_families()
        for sample in family.samples
        if sample.name.startswith("pidkeeper_transaction")
    }
    assert samples == {
        "pidkeeper_transactional_idsEmpty": 0,
        "pidkeeper_transactional_idsOngoing": 0,
        "pidkeeper_transactional_idsPrepareCommit": 0,
        "pidkeeper_transactional_idsPrepareAbort": 0,
        "pidkeeper_transactional_idsCompleteCommit": 0,
        "pidkeeper_transactional_idsCompleteAbort": 1,
        "pidkeeper_transactions_fenced_total": 1,
        "pidkeeper_transactions_timed_out_total": 1,
        "pidkeeper_transactional_ids_forgotten_total": 0,
    }
    with pytest.raises(RequestError, match="PRODUCER_FENCED"):
        await cluster.call(requests.EndTxn(1, epoch, "tx", producer_id, 0, True))


async def test_the_next_leader_completes_what_it_finds_decided_and_aborts_what_takes_too_long(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before metadata version 9."""
    monkeypatch.setattr(transaction_decisions, "ENDS_AT_ONCE", LATEST + 1)
    cluster = make(transaction_abort_check_ms=100)
    await cluster.start()
    epoch, producer_id = await begin(cluster, "decided")
    await begin(cluster, "late", timeout_ms=1000)
    leader = await cluster.leader()
    # As if it died before its markers were written: its duties end with the decision.
    leader.leadership.applied = lambda records: None  # type: ignore[method-assign]
    await cluster.call(requests.EndTxn(1, epoch, "decided", producer_id, 0, False))
    assert status(leader, "decided") == "PREPARE_ABORT"
    await cluster.settle()
    await cluster.stop(leader.node_id, hand_over=False)
    new = await cluster.leader()
    await eventually(lambda: status(new, "decided") == "COMPLETE_ABORT")
    await eventually(lambda: status(new, "late") == "COMPLETE_ABORT")


async def test_an_idle_id_is_forgotten(make: Make) -> None:
    cluster = make(voters=1, transaction_abort_check_ms=100, transactional_id_expiration_ms=1)
    await cluster.start()
    await cluster.settled()
    epoch = await cluster.register()
    await cluster.call(requests.InitProducerId(1, epoch, "tx", 60_000, -1, -1, -1))
    await cluster.stop()
    await cluster.start()
    member = await cluster.leader()
    await eventually(lambda: status(member, "tx") is None)
    assert member.leadership.transactions.forgotten == 1


async def test_all_inits_in_flight_share_one_commit(make: Make) -> None:
    cluster = make()
    await cluster.start()
    await cluster.settled()
    epoch = await cluster.register()
    leader = await cluster.leader()
    before = leader.core.last_index
    answers = [
        leader.submit(requests.InitProducerId(1, epoch, f"tx-{number}", 60_000, -1, -1, -1)) for number in range(40)
    ]
    await eventually(lambda: all(answer.done() for answer in answers))
    assert [(answer.result().producer_id, answer.result().producer_epoch) for answer in answers] == [
        (number, 0) for number in range(40)
    ]
    assert leader.core.last_index == before + 1, "one entry for all of them"
