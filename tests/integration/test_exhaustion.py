"""The end of the IDs at real processes: who needs one is told so for good, and who needs none goes on."""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from pidkeeper.cli.local_cluster import LocalCluster
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.metadata_version import TRANSACTIONAL_BLOCKS
from tests.support.cluster import pidkeeper, quorum, running_cluster, wait_until
from tests.support.http_calls import call
from tests.support.kafka_oracles import kafka_python_request, kafka_python_response

SIZE = 10
EXHAUSTED = ErrorCode.PRODUCER_IDS_EXHAUSTED
VERSION = 4


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """One controller and one agent, which hold a few small blocks."""
    token = tmp_path / "operators"
    token.write_text("a token for operators")
    with running_cluster(
        tmp_path / "cluster",
        controllers=1,
        agents=1,
        controller_options={"operator_token_file": str(token), "block_size": SIZE},
        agent_options={"min_reserve_ids": SIZE, "min_blocks": 1, "max_reserve_blocks": 2},
    ) as running:
        yield running


def init(cluster: LocalCluster, name: str | None) -> tuple[int, int, int]:
    """Error code, producer ID and epoch of an InitProducerId from a Kafka client."""
    host, _, port = cluster.layout.agents[0].kafka.rpartition(":")
    fields = {"transactional_id": name, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    frame = kafka_python_request("init_producer_id", VERSION, 1, "c", **fields)
    with socket.create_connection((host, int(port)), timeout=10.0) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        answer = answers.read(struct.unpack(">i", answers.read(4))[0])
    response = kafka_python_response("init_producer_id", VERSION, answer)
    return response.error_code, response.producer_id, response.producer_epoch


def use_up(cluster: LocalCluster, names: Iterator[str | None]) -> None:
    """Ask for IDs until none is left, of those who ask with `names`."""
    asked = (init(cluster, name)[0] for name in names)
    wait_until(lambda: next(asked) == EXHAUSTED.kafka_code, "the end of the IDs")


def test_at_the_end_of_the_ids_who_needs_one_is_told_so_and_all_others_go_on(cluster: LocalCluster) -> None:
    agent, controller = cluster.layout.agents[0], cluster.layout.controllers[0]
    wait_until(lambda: quorum(controller)["metadata_version"] >= TRANSACTIONAL_BLOCKS, "own blocks of the quorum")
    code, producer_id, epoch = init(cluster, "early")
    assert (code, epoch) == (0, 0)
    token = "--token-file", cluster.directory.with_name("operators")
    floor = str(MAX_PRODUCER_ID - 2 * SIZE)
    raised = pidkeeper("ids", "raise-floor", floor, "--force", "--yes", "--cluster", cluster.directory, *token)
    assert raised.returncode == 0, raised.stderr

    use_up(cluster, (f"late-{number}" for number in itertools.count()))
    use_up(cluster, itertools.repeat(None))
    for name in (None, "last"):
        assert init(cluster, name) == (-1, -1, -1)
        body = {"transactional_id": name, "transaction_timeout_ms": 60_000}
        answer = call(agent.http, "POST", "/v1/init-producer-id", body)
        told = answer.json()
        assert (answer.status, told["code"], told["retryable"]) == (507, EXHAUSTED.name, False)
    assert init(cluster, "early") == (0, producer_id, 1), "it needs no new ID"
    producer = {"transactional_id": "early", "producer_id": producer_id, "producer_epoch": 1}
    topics = {"topics": [{"topic": "t", "partitions": [0]}]}
    assert call(agent.http, "POST", "/v1/transactions/add-partitions", producer | topics).status == 200
    assert call(agent.http, "POST", "/v1/transactions/end", producer | {"committed": True}).status == 200
