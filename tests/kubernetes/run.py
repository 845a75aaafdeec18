"""`python -m tests.kubernetes.run`: the chart on a cluster of the run's own, with all that is done to it under load.

Prints one JSON document: what came of each step, and what callers were told. Ends with 1 where a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

from tests.kubernetes.api import ApiError
from tests.kubernetes.cluster import STORAGE_CLASS, Cluster, NotInTimeError
from tests.kubernetes.control_plane import ControlPlaneError, why_no_programs
from tests.kubernetes.dry_run import know_custom_resources, refusals
from tests.kubernetes.load import ServiceClaims
from tests.kubernetes.operations import AGENTS, OperationError, Operations
from tests.pods.namespaces import enter
from tests.pods.run import GIVEN, MOST_MOVES

VALUES: Final = ["--set=auth.peerKeySecret=ids-peer", f"--set=controller.storage.className={STORAGE_CLASS}"]
GROWN: Final = "2Gi"
"""What volumes are to have in the end."""
SIZES: Final = (5, 3, 5, 3)
"""Of the quorum, one after the other."""


def run(cluster: Cluster, rolls: int, *, briefly: bool = False) -> dict[str, Any]:
    """Install, and do everything to the release, or only roll it; what each step said."""
    for name, entries in GIVEN.items():
        cluster.add_secret(name, entries)
    operations = Operations(cluster, VALUES)
    know_custom_resources(cluster.api)
    told: dict[str, Any] = {
        "refused values": refusals(cluster.api),
        "install": operations.install(),
        "test": operations.test(),
    }
    with ServiceClaims(cluster.names, AGENTS) as claims:
        told["rolls"] = [_noted("roll", operations.roll()) for _ in range(rolls)]
        told["refused_upgrade"] = _noted("refused_upgrade", operations.refused_upgrade())
        if not briefly:
            for step in ("drain", "lose_pod", "lose_volume"):
                told[step] = _noted(step, getattr(operations, step)())
            told["scale"] = [_noted("scale", operations.scale(controllers)) for controllers in SIZES]
            told["roll_back"] = _noted("roll_back", operations.roll_back(SIZES[-2]))
            told["grow_volumes"] = _noted("grow_volumes", operations.grow_volumes(GROWN))
            told["recover"] = _noted("recover", operations.recover())
    told["peak memory, MiB"] = operations.peak_memory()
    told["uninstall"] = _noted("uninstall", operations.uninstall())
    if not briefly:
        told["reinstall"] = _noted("reinstall", operations.reinstall())
    told["ids"] = len(claims.ids)
    told["twice"] = sum(count - 1 for count in Counter(claims.ids).values())
    told["failed"] = claims.failed
    told["complaints"] = cluster.kubelets.complaints
    told["good"] = is_good(told)
    return told


def is_good(told: dict[str, Any]) -> bool:
    """Whether all promises were kept."""
    calm = all(roll["moves"] <= MOST_MOVES for roll in told["rolls"])
    refused = not told["refused_upgrade"]["changed"]
    bad = ("refused values", "twice", "failed", "complaints")
    kept = calm and refused and told["ids"] > 0 and not any(told[name] for name in bad)
    if "scale" not in told:
        return kept
    held = told["drain"]["refusals"] > 0 and told["drain"]["fewest controllers ready"] >= 2
    grown, recovered = told["grow_volumes"], told["recover"]
    kept &= set(grown["asked"]) == {GROWN} and not grown["restarted"] and recovered["of"] and recovered["floor"] == 0
    kept &= told["reinstall"]["founding"] == told["uninstall"]["founding"]
    running, low = recovered["refused"]
    kept &= "in use by another process" in running and "is too low" in low
    resized = [one["voters"] for one in (*told["scale"], told["roll_back"], recovered, told["reinstall"])]
    wanted = [[*range(1, size + 1)] for size in (*SIZES, *[SIZES[-2]] * 3)]
    return kept and held and resized == wanted and len(told["uninstall"]["claims"]) == max(SIZES)


def _noted(step: str, told: dict[str, Any]) -> dict[str, Any]:
    print(step, json.dumps(told), file=sys.stderr, flush=True)
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rolls", type=int, default=10, help="of all controllers and agents")
    parser.add_argument("--briefly", action="store_true", help="only install, roll, and refuse an upgrade")
    parser.add_argument("--directory", type=Path, default=None)
    options = parser.parse_args()
    if (reason := why_no_programs() or enter()) is not None:
        print(f"no cluster: {reason}", file=sys.stderr)
        return 2
    directory = options.directory or Path(tempfile.mkdtemp(prefix="pidkeeper-kubernetes-"))
    try:
        with Cluster(directory) as cluster:
            told = run(cluster, options.rolls, briefly=options.briefly)
    except (ApiError, ControlPlaneError, NotInTimeError, OperationError) as error:
        print(f"{error}\nWhat the cluster kept is in {directory}", file=sys.stderr)
        return 1
    print(json.dumps(told, indent=2))
    if told["good"] and options.directory is None:
        shutil.rmtree(directory)
    return 0 if told["good"] else 1


if __name__ == "__main__":
    sys.exit(main())
