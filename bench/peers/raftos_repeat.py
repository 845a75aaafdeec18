"""Does raftos offer an id again that it had acknowledged? Three real nodes, one leader kill, asked N times.

Exit code: 0 when every run came to a finding, whichever it was; 1 when a run could not be completed; 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import socket
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

START_TIMEOUT: Final = 20.0
# raftos' own election timers are 1.5-4.5 s each and two of them pass between two candidacies.
ELECTION_TIMEOUT: Final = 60.0
ALLOCATE_TIMEOUT: Final = 10.0
# The first leader answers within two heartbeats of 0.3 s; this is more than ten times as long.
LAST_ALLOCATE_TIMEOUT: Final = 8.0
POLL_INTERVAL: Final = 0.05
MAX_RUNS: Final = 50
MAX_IDS: Final = 1000


class RunFailedError(Exception):
    """A run came to no finding: the message says in which step."""


@dataclass(slots=True)
class Finding:
    """What one run showed. `offered` is what the new leader would hand out; `answered` what it did acknowledge."""

    run: int
    acknowledged: list[int] = field(default_factory=list)
    election_seconds: float = 0.0
    entries_in_new_log: int = 0
    commit: int = 0
    applied: int = 0
    offered: int | None = None
    answered: int | None = None
    note: str = ""

    @property
    def repeat_offered(self) -> bool:
        return self.offered in self.acknowledged

    @property
    def repeat_acknowledged(self) -> bool:
        return self.answered in self.acknowledged


class Node:
    """One child process and the connection to its control port."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def connect(self) -> None:
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), START_TIMEOUT)
        if not line:
            raise RunFailedError(f"node {self.process.pid} ended before it was ready: see its output above")
        port = json.loads(line)["control_port"]
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)

    async def ask(self, op: str, seconds: float = ALLOCATE_TIMEOUT) -> dict[str, Any]:
        """One request and its answer. Raises TimeoutError when none came within `seconds`."""
        self.writer.write(json.dumps({"op": op}).encode() + b"\n")
        line = await asyncio.wait_for(self.reader.readline(), seconds)
        if not line:
            raise RunFailedError(f"node {self.process.pid} closed its control port: see its output above")
        reply: dict[str, Any] = json.loads(line)
        return reply

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


def free_udp_addresses(count: int) -> list[str]:
    """Loopback addresses that were free a moment ago; all are held at once so that none is given twice."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    try:
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{sock.getsockname()[1]}" for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


async def start_nodes(directory: Path, stack: AsyncExitStack) -> list[Node]:
    addresses = free_udp_addresses(3)
    nodes: list[Node] = []
    for index, address in enumerate(addresses):
        log_path = f"{directory / str(index)}/"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.peers.raftos_node", "--address", address),
            *("--cluster", ",".join(addresses), "--log-path", log_path),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        node = Node(process)
        stack.push_async_callback(node.kill)
        nodes.append(node)
    for node in nodes:
        await node.connect()
    return nodes


async def wait_for_leader(nodes: list[Node]) -> Node:
    deadline = time.monotonic() + ELECTION_TIMEOUT
    while time.monotonic() < deadline:
        for node in nodes:
            if (await node.ask("state"))["role"] == "Leader":
                return node
        await asyncio.sleep(POLL_INTERVAL)
    raise RunFailedError(f"no leader among {len(nodes)} nodes after {ELECTION_TIMEOUT:.0f} s")


async def allocate_on(leader: Node, count: int) -> list[int]:
    """`count` ids, asked for one at a time. Raises RunFailedError when one is not acknowledged."""
    ids: list[int] = []
    for _ in range(count):
        try:
            reply = await leader.ask("allocate")
        except TimeoutError:
            raise RunFailedError(
                f"the first leader did not answer allocation {len(ids) + 1} of {count} in {ALLOCATE_TIMEOUT:.0f} s"
            ) from None
        if "id" not in reply:
            raise RunFailedError(f"the first leader refused allocation {len(ids) + 1} of {count}: {reply['error']}")
        ids.append(reply["id"])
    return ids


async def question_new_leader(leader: Node, finding: Finding) -> None:
    state = await leader.ask("state")
    finding.entries_in_new_log = len(state["log"])
    finding.commit, finding.applied = state["commit"], state["applied"]
    reply = await leader.ask("next")
    if "id" not in reply:
        raise RunFailedError(f"the new leader does not say which id is next: {reply['error']}")
    finding.offered = reply["id"]
    try:
        reply = await leader.ask("allocate", LAST_ALLOCATE_TIMEOUT)
    except TimeoutError:
        finding.note = f"no answer in {LAST_ALLOCATE_TIMEOUT:.0f} s"
        return
    finding.answered = reply.get("id")
    finding.note = reply.get("error", "answered")


async def run_once(number: int, ids: int) -> Finding:
    finding = Finding(run=number)
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="raftos-repeat-"))
        nodes = await start_nodes(Path(directory), stack)
        first = await wait_for_leader(nodes)
        finding.acknowledged = await allocate_on(first, ids)
        await first.kill()
        killed_at = time.monotonic()
        second = await wait_for_leader([node for node in nodes if node is not first])
        finding.election_seconds = round(time.monotonic() - killed_at, 1)
        await question_new_leader(second, finding)
    return finding


def as_row(finding: Finding) -> tuple[str, ...]:
    ids = finding.acknowledged
    return (
        str(finding.run),
        f"{ids[0]}..{ids[-1]}" if ids == list(range(len(ids))) else str(ids),
        f"{finding.election_seconds:.1f}",
        f"{finding.entries_in_new_log}/{finding.commit}/{finding.applied}",
        f"{finding.offered}{'  REPEAT' if finding.repeat_offered else ''}",
        f"{finding.answered}  REPEAT" if finding.repeat_acknowledged else finding.note,
    )


def print_table(findings: list[Finding]) -> None:
    head = ("run", "acknowledged", "election s", "log/commit/applied", "would hand out", "then allocate")
    rows = [head, *(as_row(finding) for finding in findings)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def summarise(findings: list[Finding], failures: list[str]) -> dict[str, Any]:
    return {
        "peer": f"raftos {version('raftos')}",
        "python": platform.python_version(),
        "runs_completed": len(findings),
        "runs_failed": failures,
        "repeats_offered": sum(finding.repeat_offered for finding in findings),
        "repeats_acknowledged": sum(finding.repeat_acknowledged for finding in findings),
        "runs": [asdict(finding) for finding in findings],
    }


async def run_all(runs: int, ids: int) -> tuple[list[Finding], list[str]]:
    findings: list[Finding] = []
    failures: list[str] = []
    for number in range(1, runs + 1):
        try:
            findings.append(await run_once(number, ids))
        except (RunFailedError, TimeoutError, ConnectionError) as error:
            failures.append(f"run {number}: {error or 'a node did not answer its control port'}")
    return findings, failures


def bounded(limit: int) -> Any:
    def parse(text: str) -> int:
        value = int(text)
        if not 1 <= value <= limit:
            raise argparse.ArgumentTypeError(f"{value} is not between 1 and {limit}")
        return value

    return parse


def main() -> int:
    parser = argparse.ArgumentParser(prog="raftos_repeat", description=__doc__)
    parser.add_argument("--runs", type=bounded(MAX_RUNS), default=3, help="how often (default 3)")
    parser.add_argument("--ids", type=bounded(MAX_IDS), default=8, help="ids to allocate before the kill (default 8)")
    parser.add_argument("--json", action="store_true", help="print one JSON object in place of the table")
    args = parser.parse_args()
    findings, failures = asyncio.run(run_all(args.runs, args.ids))
    summary = summarise(findings, failures)
    if args.json:
        print(json.dumps(summary, indent=2))
    else:
        print(f"{summary['peer']} on Python {summary['python']}, three nodes, leader killed after {args.ids} ids")
        print_table(findings)
        for failure in failures:
            print(f"not completed: {failure}")
        print(f"{summary['repeats_offered']} of {len(findings)} runs: the new leader offers an acknowledged id again;")
        print(f"{summary['repeats_acknowledged']} of {len(findings)} runs: it acknowledged that id a second time")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
