"""How many sync calls does PySyncObj make for 100 commits with a journal and a dump file? strace counts them.

Exit code: 0 when the count is known or the experiment is skipped with its reason; 1 when it could not be completed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

NODES: Final = 3
COMMITS: Final = 100
SYNC_CALLS: Final = "fsync,fdatasync,msync,sync,syncfs,sync_file_range"
READY_TIMEOUT: Final = 30.0
COMMIT_TIMEOUT: Final = 5.0
COMPACTION_TIMEOUT: Final = 20.0
STRACE_TIMEOUT: Final = 180.0
# The positive control: the same strace has to see the one fsync that this program makes.
ONE_FSYNC: Final = "import os, sys; fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY); os.fsync(fd)"


class NotCompletedError(Exception):
    """The experiment came to no count: the message says in which step."""


def free_tcp_addresses(count: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [f"127.0.0.1:{sock.getsockname()[1]}" for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


def wait_until(condition: Any, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise NotCompletedError(f"{what}: not seen in {seconds:.0f} s")
        time.sleep(0.02)


def commit_in(directory: Path) -> None:
    """The traced part: three nodes commit 100 increments, then each compacts its log. Prints what came of it."""
    from pysyncobj import SyncObj, SyncObjConf  # type: ignore[import-not-found]
    from pysyncobj.batteries import ReplCounter  # type: ignore[import-not-found]

    addresses = free_tcp_addresses(NODES)
    nodes, counters = [], []
    for index, address in enumerate(addresses):
        conf = SyncObjConf(
            journalFile=str(directory / f"{index}.journal"),
            fullDumpFile=str(directory / f"{index}.dump"),
            appendEntriesUseBatch=False,
            useFork=False,
        )
        counters.append(ReplCounter())
        nodes.append(SyncObj(address, [a for a in addresses if a != address], conf=conf, consumers=[counters[-1]]))
    wait_until(lambda: all(node.isReady() for node in nodes), READY_TIMEOUT, "three ready nodes")
    for _ in range(COMMITS):
        counters[0].inc(sync=True, timeout=COMMIT_TIMEOUT)
    wait_until(lambda: all(c.get() == COMMITS for c in counters), READY_TIMEOUT, "all commits on all nodes")
    for node in nodes:
        node.forceLogCompaction()
    dumps = [directory / f"{index}.dump" for index in range(NODES)]
    wait_until(lambda: all(dump.exists() for dump in dumps), COMPACTION_TIMEOUT, "a dump from each node")
    print(json.dumps({"pysyncobj": version("pysyncobj"), "committed": [counter.get() for counter in counters]}))
    sys.stdout.flush()
    os._exit(0)  # its own threads have no end that can be waited for


def traced(directory: Path, *command: str) -> tuple[dict[str, int], str]:
    """Runs `command` under strace. Returns the calls by name, and what the command printed."""
    table = directory / "strace.txt"
    strace = ["strace", "-f", "-c", "-e", f"trace={SYNC_CALLS}", "-o", str(table)]
    done = subprocess.run([*strace, *command], stdout=subprocess.PIPE, text=True, check=False, timeout=STRACE_TIMEOUT)
    if done.returncode != 0:
        raise NotCompletedError(f"`{' '.join(command[:3])} ...` under strace ended with exit code {done.returncode}")
    return count_calls(table.read_text()), done.stdout


def count_calls(table: str) -> dict[str, int]:
    """Calls by name from the summary that ``strace -c`` writes: the count is the fourth column."""
    counts: dict[str, int] = {}
    for line in table.splitlines():
        words = line.split()
        if words and words[-1] in SYNC_CALLS.split(","):
            counts[words[-1]] = int(words[3])
    return counts


def measure() -> dict[str, Any]:
    if shutil.which("strace") is None:
        return {"skipped": "strace is not on PATH; install the package strace of your distribution"}
    with tempfile.TemporaryDirectory(prefix="pysyncobj-nosync-") as name:
        directory = Path(name)
        control, _ = traced(directory, sys.executable, "-c", ONE_FSYNC, str(directory / "control"))
        if control != {"fsync": 1}:
            return {"skipped": f"strace cannot be relied on here: it counted {control} where one fsync was made"}
        counts, output = traced(directory, sys.executable, "-m", "bench.peers.pysyncobj_nosync", "--inside", name)
    facts = json.loads(output)
    return {
        "peer": f"PySyncObj {facts['pysyncobj']}",
        "python": platform.python_version(),
        "commits_by_node": facts["committed"],
        "control_fsync_calls": control["fsync"],
        "sync_calls": counts,
        "sync_calls_total": sum(counts.values()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="pysyncobj_nosync", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object in place of the text")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    try:
        if args.inside is not None:
            commit_in(args.inside)
        result = measure()
    except (NotCompletedError, subprocess.TimeoutExpired) as error:
        print(f"not completed: {error}", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps(result, indent=2))
    elif "skipped" in result:
        print(f"skipped: {result['skipped']}")
    else:
        print(f"{result['peer']} on Python {result['python']}: {NODES} nodes, journal and dump file set")
        print(f"commits seen by each node: {result['commits_by_node']}, then one log compaction on each")
        print(f"sync calls ({SYNC_CALLS}): {result['sync_calls_total']}")
        print(f"positive control, a program that makes one fsync: {result['control_fsync_calls']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
