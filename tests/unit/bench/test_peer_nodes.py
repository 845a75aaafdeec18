from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.peers.nodes import Node, wait_for
from pidkeeper.cli.local_cluster import import_root

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
PARENT = """
import sys
from pathlib import Path
from bench.peers.nodes import Node
node = Node("one", ["sleep", "600"], Path(sys.argv[1]), 1)
node.start()
print(node.pid, flush=True)
sys.stdin.read()
"""


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def test_it_is_started_signalled_and_brought_back(tmp_path: Path) -> None:
    node = Node("one", SLEEP, tmp_path / "one", 1)
    try:
        node.start()
        wait_for(lambda: "up" in node.log_end(), "its first line", [node], 30.0)
        node.signal(signal.SIGTERM)
        node.wait_ended()
        node.start()
        wait_for(lambda: node.log_end().count("up") == 2, "its second line", [node], 30.0)
        assert node.running
    finally:
        node.close()
    assert not alive(node.pid)


def test_it_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path / "one")]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=import_root())
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert alive(pid)
    parent.kill()
    parent.communicate()
    wait_for(lambda: not alive(pid), "the end of the node", [], 30.0)


def test_waiting_in_vain_shows_the_logs(tmp_path: Path) -> None:
    node = Node("one", [sys.executable, "-c", "print('no licence')"], tmp_path / "one", 1)
    node.start()
    node.wait_ended()
    with pytest.raises(TimeoutError, match=r"a leader\none \(running: False\):\nno licence"):
        wait_for(lambda: None, "a leader", [node], 0.1)
    node.close()
