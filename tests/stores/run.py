"""`make seaweedfs`, `make azurite`: a real object store under the port's contract, and under producers and faults.

Producers write, one idempotent and one transactional, while agents are killed, the store stands still, agents are
started meanwhile, and a store that survives it is killed. All that was acknowledged has to be read back exactly once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from pidkeeper.cli.local_cluster import LocalCluster
from tests.clients.record_load import loaded
from tests.stores.azurite import Azurite, azurite
from tests.stores.seaweed import SeaweedFS, weed
from tests.stores.server import ROOT, StoreServer
from tests.support.cluster import running_cluster
from tests.support.s3_store import NAMED

AWAY_SECONDS: Final = 30.0
KILLED_SECONDS: Final = 3.0
CALM_SECONDS: Final = 3.0
CONTRACT_SECONDS: Final = 300.0
CONTRACT: Final = ("test_contract.py", "test_identity.py")
STORES: Final = {"seaweedfs": (SeaweedFS, weed), "azurite": (Azurite, azurite)}
SESSION_TIMEOUT_MS: Final = 2000


def main(arguments: list[str]) -> int:
    """Run from the command line; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("store", choices=STORES)
    parser.add_argument("--away", type=float, default=AWAY_SECONDS, help="seconds for which the store stands still")
    told = parser.parse_args(arguments)
    kind, find = STORES[told.store]
    program = find()
    if program is None:
        _say(f"skipped: there is no {kind.name} here: see what `tools/fetch-{told.store}` says")
        return 0
    with tempfile.TemporaryDirectory(prefix=f"pidkeeper-{told.store}-") as directory:
        store = kind(program, Path(directory) / told.store)
        try:
            begun = time.monotonic()
            store.start()
            _say(f"{store.name} serves after {time.monotonic() - begun:.1f} s")
            if not _keeps_the_contract(store):
                return 1
            _under_load(store, Path(directory) / "cluster", told.away)
        finally:
            store.stop()
    return 0


def _keeps_the_contract(store: StoreServer) -> bool:
    """Run the tests of the port's contract with it as the remote store."""
    tests = ROOT / "tests" / "unit" / "broker_agent" / "data" / "store"
    chosen = " and not ".join(("remote", *store.misses))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen]
    bucket = json.dumps({"url": store.url, "options": store.options})
    done = subprocess.run(
        command + [str(tests / name) for name in CONTRACT],
        env=os.environ | {NAMED: bucket},
        timeout=CONTRACT_SECONDS,
        cwd=ROOT,
        check=False,
    )
    return done.returncode == 0


def _under_load(store: StoreServer, directory: Path, away: float) -> None:
    options = {"data": {"store": f"{store.url}/cluster", "store_options": store.options}}
    with running_cluster(
        directory,
        agents=2,
        controller_options={"broker_session_timeout_ms": SESSION_TIMEOUT_MS},
        agent_options={"heartbeat_interval_ms": 200, **options},
        data=True,
    ) as cluster:
        with loaded(",".join(agent.kafka for agent in cluster.layout.agents)) as load:
            _harm(store, cluster, away)
        ended = [*load.ended.values()]
        _say(
            f"{len(load.acknowledged)} records acknowledged, {ended.count(True)} transactions committed and "
            f"{ended.count(False)} aborted: all read back exactly once"
        )


def _harm(store: StoreServer, cluster: LocalCluster, away: float) -> None:
    time.sleep(CALM_SECONDS)
    for agent in cluster.layout.agents:
        cluster.kill(agent)
        cluster.start(agent)
        cluster.wait_ready(agent)
        time.sleep(CALM_SECONDS)
    begun = time.monotonic()
    store.pause()
    restarted = cluster.layout.agents[0]
    cluster.kill(restarted)
    cluster.start(restarted)
    cluster.wait_ready(restarted)
    _say(f"an agent is ready {time.monotonic() - begun:.1f} s after the store stands still")
    time.sleep(max(0.0, begun + away - time.monotonic()))
    store.go_on()
    time.sleep(CALM_SECONDS)
    if store.survives:
        store.kill()
        time.sleep(KILLED_SECONDS)
        store.start()
        time.sleep(CALM_SECONDS)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
