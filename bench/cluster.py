"""The real thing to measure: a local cluster whose limits are raised, so that they are not what is measured."""

from __future__ import annotations

import http.client
import json
import re
import uuid
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from pidkeeper.cli.local_cluster import Controller, LocalCluster

UNLIMITED: Final = {"per_second": 1_000_000.0, "burst": 10_000_000}
RAISED_OPTIONS: Final[dict[str, Any]] = {
    "limits": {
        "broker_allocations": UNLIMITED,
        "cluster_allocations": UNLIMITED,
        "broker_sessions": UNLIMITED,
        "cluster_sessions": UNLIMITED,
        "broker_transactional_inits": UNLIMITED,
        "cluster_transactional_inits": UNLIMITED,
        "broker_transactions": UNLIMITED,
        "cluster_transactions": UNLIMITED,
    },
    # The load sends no heartbeats.
    "broker_session_timeout_ms": 3_600_000,
}
"""The only keys that differ from the defaults."""

LOAD_BROKER_ID: Final = 1001

Cluster = TypeVar("Cluster", bound=LocalCluster)

_FSYNCS: Final = re.compile(rb"^pidkeeper_raft_fsyncs_total ([0-9.e+]+)$", re.MULTILINE)


def raised_cluster(
    kind: type[Cluster],
    directory: Path,
    *,
    agents: int,
    secure: bool = False,
    transport: str = "http",
    data: bool = False,
) -> Cluster:
    """Three controllers on free ports, not started yet; `transport`: the protocol in which agents ask them.

    `data`: whether agents keep partition logs.
    """
    return kind(
        directory,
        controllers=3,
        agents=agents,
        secure=secure,
        controller_options=RAISED_OPTIONS,
        agent_options={"transport": transport},
        data=data,
    )


def host_port(base_url: str) -> tuple[str, int]:
    """Host and port of a base URL."""
    parts = urlsplit(base_url)
    assert parts.hostname is not None and parts.port is not None, f"no host and port in {base_url}"
    return parts.hostname, parts.port


def register(leader: Controller, broker_id: int = LOAD_BROKER_ID) -> str:
    """Register the load as a broker; returns the body of its allocation requests. Raises OSError, RuntimeError."""
    body = json.dumps({"incarnation_id": str(uuid.uuid4())})
    connection = http.client.HTTPConnection(*host_port(leader.http), timeout=5.0)
    try:
        connection.request(
            "POST", f"/v1/brokers/{broker_id}/register", body, headers={"Content-Type": "application/json"}
        )
        response = connection.getresponse()
        answer = json.loads(response.read())
    finally:
        connection.close()
    if response.status != 200:
        raise RuntimeError(f"registering broker {broker_id} was refused: {answer}")
    return json.dumps({"broker_id": broker_id, "broker_epoch": answer["broker_epoch"]})


def fdatasyncs(cluster: LocalCluster, member: Controller) -> int:
    """How often the member's log called fdatasync, from its /metrics. Raises RuntimeError without that counter."""
    text = cluster.get(member, "/metrics", timeout=5.0)[1]
    match = _FSYNCS.search(text)
    if match is None:
        raise RuntimeError(f"{member.http}/metrics has no counter of fdatasyncs")
    return int(float(match[1]))
