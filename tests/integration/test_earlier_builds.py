"""The build before foundings: its directories open and rise, and its processes serve beside those of this build."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import threading
import time
from array import array
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pytest

from pidkeeper.cli.local_cluster import Agent, Controller, LocalCluster, Member, member_name
from pidkeeper.controller.storage.founding import read_founding
from pidkeeper.disk.files import OsFiles
from pidkeeper.protocol.metadata_version import LATEST, UNTOLD
from pidkeeper.snapshots.archive_format import decode_archive, encode_archive
from pidkeeper.snapshots.snapshot_format import decode_snapshot
from tests.integration.test_agents import assert_lawful, status
from tests.support.checking_client import CheckingClient
from tests.support.cluster import (
    CONTROLLER_OPTIONS,
    allocate,
    assert_healthy,
    exit_code,
    followers,
    ledger,
    log_of,
    pidkeeper,
    quorum,
    register,
    wait_until,
)
from tests.support.earlier_build import (
    METADATA_VERSION,
    EarlierBuild,
    MixedCluster,
    NoHistory,
    Told,
    golden_cluster,
)
from tests.support.http_calls import Answer, call
from tests.support.snapshot_file import snapshot_file

OBSERVED_SECONDS: Final = 2.0
"""How long it is watched that nobody is elected: several election timeouts of at most 0.6 s."""

CLAIM_SECONDS: Final = 0.002
"""Between two claims: some hundred a second, several blocks of BLOCK_SIZE."""

BLOCK_SIZE: Final = 100
CONTROLLERS: Final = CONTROLLER_OPTIONS | {
    "snapshot_entries": 100,
    # The golden directories grow old, and nothing of them is to be forgotten.
    "transactional_id_expiration_ms": 2**53,
}
AGENTS: Final = {"min_reserve_ids": 5_000, "ask_fraction": 0.0}
"""Claims of ten seconds and more are in store, so an agent that is refused one has not been served for long."""

Pair = tuple[int, int]
NO_PAIR: Final[Pair] = (-1, -1)


# Golden directories.


@pytest.fixture
def golden(tmp_path: Path) -> Iterator[tuple[LocalCluster, Told]]:
    cluster, told = golden_cluster(tmp_path, agents=1, controller_options={**CONTROLLERS})
    with killed_at_the_end(cluster):
        yield cluster, told


@contextlib.contextmanager
def killed_at_the_end(cluster: LocalCluster) -> Iterator[None]:
    try:
        yield
    finally:
        cluster.kill(*(one for one in cluster.members() if cluster.running(one)))


def test_the_golden_directories_are_of_a_member_that_led_and_lagged(golden: tuple[LocalCluster, Told]) -> None:
    cluster, told = golden
    assert told.metadata_version == METADATA_VERSION
    ends = {}
    for one in cluster.layout.controllers:
        dumped = pidkeeper("log", "dump", "--dir", one.data_dir, "--output", "json")
        frames = [json.loads(line) for line in dumped.stdout.splitlines()]
        ends[one.id] = max(frame["index"] for frame in frames)
        if one.id == told.lagging:
            records = [record for frame in frames for record in frame["records"]]
            led = {record["leader_id"] for record in records if record["record"] == "LeaderChangeRecord"}
            votes = [frame["detail"] for frame in frames if frame["type"] == "hard state"]
            assert (led, votes[-1]) == ({one.id}, f"vote {one.id}")
        assert not (Path(one.data_dir) / "founding.json").exists()
    assert min(ends, key=ends.__getitem__) == told.lagging
    assert max(ends.values()) > ends[told.lagging] + 100


def test_every_byte_of_the_golden_directories_is_read_and_would_be_written_again(
    golden: tuple[LocalCluster, Told],
) -> None:
    """Members of two builds make the same snapshots, so these are the bytes of both."""
    cluster, told = golden
    for one in cluster.layout.controllers:
        directory = Path(one.data_dir)
        verified = pidkeeper("storage", "verify", "--dir", directory)
        assert verified.returncode == 0, verified.stdout + verified.stderr
        snapshots, archives = [*directory.glob("snapshots/*")], [*directory.glob("archive/*")]
        assert snapshots and archives
        for path in snapshots:
            image = decode_snapshot(path.read_bytes(), path.name, told.cluster_id)
            assert snapshot_file(told.cluster_id, image) == path.read_bytes()
        for path in archives:
            header, blocks = decode_archive(path.read_bytes())
            again = encode_archive(told.cluster_id, header.from_offset, header.to_offset, blocks)
            assert again == path.read_bytes()


def test_golden_directories_open_serve_and_raise_the_metadata_version_by_themselves(
    golden: tuple[LocalCluster, Told],
) -> None:
    cluster, told = golden
    cluster.start()
    cluster.wait_ready()
    founding = risen(cluster)
    (agent,) = cluster.layout.agents
    assert claim(agent) >= told.next_producer_id
    assert granted(cluster.leader(), "new") >= told.next_producer_id
    assert_known(cluster, told)
    assert_transactions_go_on(cluster.leader(), agent, told)
    assert_healthy(cluster)
    highest = ledger(cluster)[-1]["last"]

    assert set(cluster.stop().values()) == {0}
    for one in cluster.layout.controllers:
        founded = read_founding(OsFiles(), Path(one.data_dir))
        assert founded is not None
        assert [voter.id for voter in founded.voters] == [1, 2, 3]
    cluster.start(*cluster.layout.controllers)
    cluster.wait_ready(*cluster.layout.controllers)
    assert risen(cluster) == founding
    assert granted(cluster.leader(), "again") > highest


def test_a_golden_member_that_lags_hands_out_nothing_until_it_has_caught_up(golden: tuple[LocalCluster, Told]) -> None:
    cluster, told = golden
    lagging = next(one for one in cluster.layout.controllers if one.id == told.lagging)
    second, third = followers(cluster, lagging)
    cluster.start(lagging)
    wait_until(lambda: quorum(lagging), "an answer")
    until = time.monotonic() + OBSERVED_SECONDS
    while time.monotonic() < until:
        assert quorum(lagging)["leader_id"] is None
        assert register(lagging, 7, "alone").status == 421
    cluster.start(second)
    cluster.wait_ready(lagging, second)
    assert cluster.leader() is second, "the other one lacks what was committed"
    first = granted(second, "two of three")
    assert first >= told.next_producer_id
    described = quorum(second)
    assert (described["metadata_version"], described["founding_id"]) == (METADATA_VERSION, None)

    cluster.start(third)
    cluster.wait_ready(*cluster.layout.controllers)
    risen(cluster)
    assert granted(cluster.leader(), "three of three") > first
    assert_known(cluster, told)


def test_a_golden_member_that_lags_and_is_alone_in_its_file_waits(golden: tuple[LocalCluster, Told]) -> None:
    """Its disk knows nobody else; it had elected itself, and handed out what the others have handed out."""
    cluster, told = golden
    lagging = next(one for one in cluster.layout.controllers if one.id == told.lagging)
    cluster.controller_options["voters"] = [{"id": lagging.id, "peer": lagging.peer, "http": lagging.http}]
    cluster.start(lagging)
    wait_until(lambda: quorum(lagging), "an answer")
    until = time.monotonic() + OBSERVED_SECONDS
    while time.monotonic() < until:
        described = quorum(lagging)
        assert (described["leader_id"], described["healthy"]) == (None, False)
        assert register(lagging, 7, "alone").status == 421
    assert any("an earlier build began this directory" in reason for reason in described["reasons"])
    assert not (Path(lagging.data_dir) / "founding.json").exists()

    cluster.kill(lagging)
    del cluster.controller_options["voters"]
    cluster.start()
    cluster.wait_ready()
    risen(cluster)
    assert granted(cluster.leader(), "three of three") >= told.next_producer_id
    assert_known(cluster, told)


def test_a_golden_member_that_knows_of_another_leader_refuses_a_file_without_it(
    golden: tuple[LocalCluster, Told],
) -> None:
    cluster, told = golden
    lagging = next(one for one in cluster.layout.controllers if one.id == told.lagging)
    for one in followers(cluster, lagging):
        cluster.controller_options["voters"] = [{"id": one.id, "peer": one.peer, "http": one.http}]
        cluster.start(one)
        assert exit_code(cluster, one) == 1
        assert f"names the voters [{one.id}], but members" in log_of(cluster, one)
        assert not (Path(one.data_dir) / "founding.json").exists()


def risen(cluster: LocalCluster, version: int = LATEST) -> str:
    """Wait until all controllers have this metadata version and the same founding; its uuid."""

    def look() -> set[str] | None:
        described = [quorum(one) for one in cluster.layout.controllers]
        versions = {one["metadata_version"] for one in described}
        foundings = {one["founding_id"] for one in described}
        return foundings if versions == {version} and None not in foundings else None

    foundings = wait_until(look, f"metadata version {version}, and a founding")
    assert foundings is not None
    (founding,) = foundings
    return founding


def granted(leader: Controller, incarnation_id: str) -> int:
    """The first ID of a new block."""
    epoch = register(leader, 9, incarnation_id).json()["broker_epoch"]
    return int(allocate(leader, 9, epoch).json()["producer_id_start"])


def claim(agent: Agent) -> int:
    answer = call(agent.http, "POST", "/v1/init-producer-id", {})
    assert answer.status == 200, answer
    return int(answer.json()["producer_id"])


def assert_known(cluster: LocalCluster, told: Told) -> None:
    """Every block that the earlier build handed out is in the history, and every later one is above them."""
    blocks = ledger(cluster)
    assert blocks[: len(told.blocks)] == told.blocks
    assert all(block["first"] >= told.next_producer_id for block in blocks[len(told.blocks) :])


def assert_transactions_go_on(leader: Controller, agent: Agent, told: Told) -> None:
    """All are as they were; what was open is committed, and a new instance gets the ID of its transactional id."""
    assert call(leader.http, "GET", "/v1/transactions").json()["transactions"] == told.transactions
    known = {one["transactional_id"]: (one["producer_id"], one["producer_epoch"]) for one in told.transactions}
    for name in ("open", "late"):
        asked(agent, "transactions/end", name, known[name], committed=True)
    for name, (producer_id, epoch) in known.items():
        assert pair(agent, name) == (producer_id, epoch + 1)
    assert pair(agent, "first of this build")[0] >= told.next_producer_id


def asked(agent: Agent, path: str, name: str, known: Pair, **more: Any) -> dict[str, Any]:
    """What an agent answers a transactional producer, once nothing is in its way that passes."""
    producer = {"transactional_id": name, "producer_id": known[0], "producer_epoch": known[1]}

    def attempt() -> Answer | None:
        answer = call(agent.http, "POST", f"/v1/{path}", producer | more)
        assert answer.status == 200 or answer.json()["retryable"], answer
        return answer if answer.status == 200 else None

    answer = wait_until(attempt, f"{path} of {name}")
    assert answer is not None
    found: dict[str, Any] = answer.json()
    return found


def pair(agent: Agent, name: str, known: Pair = NO_PAIR) -> Pair:
    """The pair that InitProducerId gives."""
    answer = asked(agent, "init-producer-id", name, known, transaction_timeout_ms=600_000)
    return answer["producer_id"], answer["producer_epoch"]


# Processes of both builds.


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> EarlierBuild:
    try:
        return EarlierBuild.unpack(tmp_path_factory.mktemp("earlier"))
    except NoHistory as error:
        pytest.skip(str(error))


@pytest.fixture
def mixed(tmp_path: Path, build: EarlierBuild) -> Iterator[MixedCluster]:
    """Three controllers and an agent of the earlier build, and an agent of the present one."""
    options = CONTROLLERS | {"block_size": BLOCK_SIZE}
    cluster = MixedCluster(tmp_path, build, agents=2, controller_options=options, agent_options=AGENTS)
    cluster.earlier.discard(member_name(cluster.layout.agents[1]))
    with killed_at_the_end(cluster):
        cluster.start()
        cluster.wait_ready()
        wait_until(lambda: quorum(cluster.leader())["metadata_version"] == METADATA_VERSION, "its newest version")
        assert [is_earlier(one) for one in cluster.layout.controllers] == [True, True, True]
        yield cluster


def is_earlier(controller: Controller) -> bool:
    """Whether a process of the earlier build answers: it says nothing of foundings."""
    return "founding_id" not in quorum(controller)


class Claims:
    """Claims IDs of one agent over HTTP, one after another. `failed` counts what came instead of an ID."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.ids: array[int] = array("q")
        self.failed: Counter[str] = Counter()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name=f"claims-{self.agent.id}")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._thread is not None
        self._stop.set()
        self._thread.join()

    def progress(self) -> None:
        """Wait until the agent was given a block from now on, and has handed out an ID."""
        blocks, count = status(self.agent)["blocks_received"], len(self.ids)
        wait_until(lambda: status(self.agent)["blocks_received"] > blocks, "a block for the agent")
        wait_until(lambda: len(self.ids) > count, "a claim at the agent")

    def _run(self) -> None:
        while not self._stop.wait(CLAIM_SECONDS):
            try:
                answer = call(self.agent.http, "POST", "/v1/init-producer-id", {})
            except (OSError, http.client.HTTPException) as error:
                self.failed[repr(error)] += 1
            else:
                self._take(answer)

    def _take(self, answer: Answer) -> None:
        if answer.status == 200:
            self.ids.append(answer.json()["producer_id"])
        else:
            self.failed[answer.body.decode(errors="replace")] += 1


class Producers:
    """Producers at both agents: idempotent ones without a pause, and now and then some with a transactional id."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self.claims = [Claims(agent) for agent in cluster.layout.agents]
        self.transactional: list[int] = []
        self._kept = NO_PAIR

    def progress(self) -> None:
        """Both agents get blocks and hand out IDs; an id is new at each, and another one goes from agent to agent."""
        for claims in self.claims:
            claims.progress()
            self.transactional.append(pair(claims.agent, f"id-{len(self.transactional)}")[0])
            self._transaction(claims.agent)

    def _transaction(self, agent: Agent) -> None:
        """Take over, begin and commit."""
        before, self._kept = self._kept, pair(agent, "kept", self._kept)
        assert before == NO_PAIR or (before[0] == self._kept[0] and before[1] < self._kept[1])
        topics = [{"topic": "t", "partitions": [0, 1]}]
        asked(agent, "transactions/add-partitions", "kept", self._kept, topics=topics)
        asked(agent, "transactions/end", "kept", self._kept, committed=True)

    def check(self) -> None:
        """Not one claim failed, no ID was given twice, and idempotent producers have those of their agent."""
        for claims in self.claims:
            assert dict(claims.failed) == {}
            assert len(claims.ids) > 2 * BLOCK_SIZE
        assert_lawful(self._cluster, {claims.agent.id: claims.ids for claims in self.claims})
        claimed = {producer_id for claims in self.claims for producer_id in claims.ids}
        given = [*self.transactional, self._kept[0]]
        assert len(given) == len({*given} - claimed), "an ID of a transactional producer was given twice"


def test_controllers_are_rolled_under_claims_at_an_earlier_and_a_present_agent(mixed: MixedCluster) -> None:
    """Agent 2 was upgraded before the controllers, agent 1 is upgraded after them."""
    begun = mixed.leader()
    first, second = followers(mixed, begun)
    producers = Producers(mixed)
    earlier_agent, present_agent = producers.claims
    with CheckingClient(mixed, threads=1) as client, present_agent:
        with earlier_agent:
            producers.progress()
            upgrade(mixed, first)
            assert_same_snapshots(first, second)
            lead(mixed, first)
            producers.progress()  # A present leader of two earlier members.
            upgrade(mixed, second)
            lead(mixed, begun)
            producers.progress()  # An earlier leader of two present members.
            client.more()
            described = quorum(first)
            assert (described["metadata_version"], described["founding_id"]) == (METADATA_VERSION, None)
            upgrade(mixed, begun)
            founding = risen(mixed, UNTOLD)  # The earlier agent is waited for.
            client.more()
            producers.progress()
            told = f"the quorum is of founding {founding}"
            assert [told in log_of(mixed, agent) for agent in mixed.layout.agents] == [False, True]
        upgrade(mixed, earlier_agent.agent)
        assert risen(mixed) == founding
        with earlier_agent:
            producers.progress()
    client.check()
    producers.check()
    assert mixed.earlier == set()
    for member in mixed.members():
        assert "Traceback" not in log_of(mixed, member)


def test_a_member_may_return_to_the_earlier_build_until_the_metadata_version_has_risen(mixed: MixedCluster) -> None:
    controllers = mixed.layout.controllers
    with CheckingClient(mixed, threads=1) as client:
        upgrade(mixed, controllers[0])
        client.more()
        downgrade(mixed, controllers[0])
        mixed.wait_ready(controllers[0])
        assert is_earlier(controllers[0])
        client.more()
        for one in controllers:
            upgrade(mixed, one)
        founding = risen(mixed, UNTOLD)
        downgrade(mixed, controllers[0])
        assert exit_code(mixed, controllers[0]) == 1
        refusal = f"metadata version (is )?{UNTOLD}, this build reads {METADATA_VERSION} at most: upgrade it"
        assert re.search(refusal, log_of(mixed, controllers[0])), mixed.log_end(controllers[0])
        client.more()
        mixed.start_present(controllers[0])
        client.more()
    client.check()
    assert risen(mixed, UNTOLD) == founding


def upgrade(cluster: MixedCluster, member: Member) -> None:
    """Stop it, start the present build, and wait until it is ready."""
    cluster.upgrade(member)
    assert isinstance(member, Agent) or not is_earlier(member)


def downgrade(cluster: MixedCluster, member: Member) -> None:
    """Stop it, and start the earlier build."""
    cluster.leave(member)
    cluster.earlier.add(member_name(member))
    cluster.start(member)


def lead(cluster: LocalCluster, wanted: Controller) -> None:
    """Transfer leadership to `wanted`; again if it comes to nothing."""

    def leads() -> bool:
        leader = cluster.leader()
        if leader is not wanted:
            call(leader.http, "POST", "/v1/quorum/transfer", {"target": wanted.id})
        return leader is wanted

    wait_until(leads, f"member {wanted.id} to lead")


def assert_same_snapshots(one: Controller, other: Controller) -> None:
    """Wait for a snapshot that both have made: it is the same, whichever build made it."""
    before = snapshots(one) | snapshots(other)

    def made() -> list[bytes]:
        # One that has gone meanwhile raises OSError, and the next one is looked at.
        names = sorted((snapshots(one) & snapshots(other)) - before)
        return [snapshot_path(member, name).read_bytes() for name in names[-1:] for member in (one, other)]

    assert len({*wait_until(made, "a snapshot of both members")}) == 1


def snapshots(member: Controller) -> set[str]:
    return {path.name for path in snapshot_path(member, "").glob("*.snap")}


def snapshot_path(member: Controller, name: str) -> Path:
    return Path(member.data_dir) / "snapshots" / name
