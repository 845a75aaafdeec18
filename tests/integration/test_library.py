"""The supply of IDs as a library: its example as it stands in the documentation, and what it does under faults."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from pidkeeper.broker_agent.ids.prefetch import PrefetchSettings
from pidkeeper.broker_agent.producer_ids import ProducerIds
from pidkeeper.broker_agent.session.refusals import FatalAgentError
from pidkeeper.cli.local_cluster import LocalCluster, import_root
from pidkeeper.protocol.errors import ErrorCode, RequestError
from tests.integration.test_tokens import Tokens
from tests.support.cluster import CONTROLLER_OPTIONS, bring_back, ledger, new_leader, running_cluster
from tests.support.http_calls import call
from tests.support.waiting import until

PAGE: Final = Path(__file__).parents[2] / "docs" / "library.md"
SMALL: Final = PrefetchSettings(min_reserve_ids=1000, reserve_seconds=0.0, max_reserve_blocks=3)
PATIENCE_SECONDS: Final = 20.0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("library"), controller_options={"limits": {}}) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: LocalCluster) -> LocalCluster:
    bring_back(shared)
    return shared


@pytest.fixture(params=["http", "kafka"])
def controllers(request: pytest.FixtureRequest, cluster: LocalCluster) -> list[str]:
    """Their addresses, in each protocol."""
    members = cluster.layout.controllers
    return [one.http if request.param == "http" else cluster.kafka_url(one) for one in members]


def test_the_example_of_the_page_does_what_the_page_says(
    cluster: LocalCluster, controllers: list[str], tmp_path: Path
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    script = tmp_path / "ids.py"
    script.write_text(example)
    ran = subprocess.run(
        [sys.executable, script, "7", *controllers],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
        cwd=import_root(),
        env={"PYTHONPATH": str(import_root())},
    )
    assert ran.returncode == 0, ran.stderr
    *given, rest = ran.stdout.splitlines()
    said = [re.fullmatch(r"broker 7 of (\S+) gives producer id (\d+)", line) for line in given]
    assert [found is not None and found[1] for found in said] == [cluster.layout.cluster_id] * 3
    first, *others = [int(found[2]) for found in said if found is not None]
    assert others == [first + 1, first + 2]
    assert re.fullmatch(r"\d+ more are at hand", rest)
    blocks = ledger(cluster)
    assert [block["broker_id"] for block in blocks if block["first"] <= first <= block["last"]] == [7]
    brokers = call(cluster.leader().http, "GET", "/v1/brokers").json()["brokers"]
    assert [one for one in brokers if one["broker_id"] == 7 and not one["fenced"]] == [], "it took its leave"


async def test_claims_go_on_while_the_leader_is_killed(cluster: LocalCluster, controllers: list[str]) -> None:
    claimed: list[int] = []
    async with ProducerIds(controllers, 8) as ids:
        old = await asyncio.to_thread(cluster.leader)
        before = ids.remaining
        await asyncio.to_thread(cluster.kill, old)
        for _ in range(100):
            claimed += [ids.claim() for _ in range(500)]
            await asyncio.sleep(0.002)
        await asyncio.to_thread(new_leader, cluster, old)
        await until(lambda: ids.remaining > before - 1000)
        claimed.append(ids.claim())
    await asyncio.to_thread(bring_back, cluster)
    assert claimed == sorted(set(claimed))
    owners = {block["first"]: block["broker_id"] for block in await asyncio.to_thread(ledger, cluster)}
    assert {owners[producer_id // 1000 * 1000] for producer_id in claimed} == {8}


def take(ids: ProducerIds, count: int) -> None:
    for _ in range(count):
        ids.claim()


async def claim_for_ever(ids: ProducerIds) -> None:
    while True:
        ids.claim()
        await asyncio.sleep(0.01)


async def test_without_an_id_a_claim_says_so_at_once_and_later_there_is_one(
    cluster: LocalCluster, controllers: list[str]
) -> None:
    async with ProducerIds(controllers, 9, settings=SMALL) as ids:
        with pytest.raises(RequestError) as refused:
            take(ids, 100_000)
        assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await until(lambda: ids.remaining > 0)
        ids.claim()


async def test_the_older_of_two_with_one_id_is_told_to_end(cluster: LocalCluster, controllers: list[str]) -> None:
    async with ProducerIds(controllers, 10, heartbeat_seconds=0.05) as older:
        claimed = older.claim()
        async with ProducerIds(controllers, 10) as newer:
            assert newer.claim() > claimed
            async with asyncio.timeout(PATIENCE_SECONDS):
                with pytest.raises(FatalAgentError, match="DUPLICATE_BROKER_REGISTRATION"):
                    await claim_for_ever(older)
            newer.claim()


async def test_outside_of_its_context_nothing_can_be_claimed(controllers: list[str]) -> None:
    ids = ProducerIds(controllers, 11)
    with pytest.raises(RuntimeError, match="within `async with`"):
        ids.claim()
    async with ids:
        ids.claim()
    with pytest.raises(RuntimeError, match="within `async with`"):
        ids.claim()


@pytest.mark.parametrize("by_kafka", [False, True])
async def test_a_token_lets_it_in_and_another_one_does_not(tmp_path: Path, by_kafka: bool) -> None:
    tokens, operators, own = Tokens(tmp_path / "tokens"), tmp_path / "operators", tmp_path / "own"
    nobodys = tmp_path / "nobodys"
    own.write_text(tokens.create("seven", "broker:7"))
    operators.write_text("the operators' token")
    nobodys.write_text("nobody's token")
    options = CONTROLLER_OPTIONS | {"tokens_file": str(tokens.file), "operator_token_file": str(operators)}
    cluster = LocalCluster(tmp_path / "cluster", controllers=1, agents=0, controller_options=options)
    try:
        await asyncio.to_thread(cluster.start)
        await asyncio.to_thread(cluster.wait_ready)
        (one,) = cluster.layout.controllers
        url = cluster.kafka_url(one) if by_kafka else one.http
        async with asyncio.timeout(PATIENCE_SECONDS):
            async with ProducerIds([url], 7, token_file=str(own)) as ids:
                ids.claim()
            for broker, token in ((8, own), (7, nobodys)):
                with pytest.raises(FatalAgentError, match="CLUSTER_AUTHORIZATION_FAILED"):
                    await ProducerIds([url], broker, token_file=str(token)).__aenter__()
    finally:
        cluster.kill(*[member for member in cluster.members() if cluster.running(member)])


@pytest.mark.parametrize(
    "addresses",
    [[], ["127.0.0.1:9093"], ["http://a:1", "kafka://a:1"], ["kafka://a"], ["kafka://a:1", "kafka+ssl://a"]],
)
def test_addresses_that_cannot_be_are_named(addresses: list[str]) -> None:
    with pytest.raises(ValueError, match="controllers: "):
        ProducerIds(addresses, 7)
