"""Processes under a supervisor, and what they write for machines: a log in JSON, and their settings."""

from __future__ import annotations

import json
import os
import signal
import socket
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pidkeeper.cli.local_cluster import LocalCluster
from tests.support.cluster import config_of, log_of, pidkeeper, running_cluster, wait_until

WATCHDOG_SECONDS = 0.6
JSON = {"log_format": "json"}


class Supervisor:
    """Hears what services say, as systemd does."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.setblocking(False)
        self.heard: list[str] = []

    def has_heard(self, state: str, times: int = 1) -> bool:
        while True:
            try:
                self.heard.append(self._socket.recv(100).decode())
            except BlockingIOError:
                return self.heard.count(state) >= times

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    path = Path("/tmp") / f"pidkeeper-notify-{os.getpid()}"
    made = Supervisor(path)
    monkeypatch.setenv("NOTIFY_SOCKET", str(path))
    monkeypatch.setenv("WATCHDOG_USEC", str(int(WATCHDOG_SECONDS * 1e6)))
    yield made
    made.close()
    path.unlink()


@pytest.fixture
def cluster(tmp_path: Path, supervisor: Supervisor) -> Iterator[LocalCluster]:
    with running_cluster(
        tmp_path / "cluster", controllers=1, agents=1, controller_options=JSON, agent_options=JSON
    ) as running:
        yield running


def test_a_supervisor_hears_of_start_life_and_stop(cluster: LocalCluster, supervisor: Supervisor) -> None:
    (controller,), (agent,) = cluster.layout.controllers, cluster.layout.agents
    wait_until(lambda: supervisor.has_heard("READY=1", 2), "the start of two services")
    wait_until(lambda: supervisor.has_heard("WATCHDOG=1", 8), "signs of life")
    os.kill(agent.pid, signal.SIGTERM)
    wait_until(lambda: supervisor.has_heard("STOPPING=1"), "the stop of one")
    wait_until(lambda: not cluster.running(agent), "its end")
    for member, fields in ((controller, {"member", "term", "index"}), (agent, {"broker", "epoch"})):
        events = [json.loads(line) for line in log_of(cluster, member).splitlines()]
        assert len(events) > 2
        assert all(event.keys() >= {"time", "level", "logger", "message"} for event in events)
        assert events[-1].keys() >= fields


def test_the_settings_that_are_printed_are_those_that_are_taken(cluster: LocalCluster, tmp_path: Path) -> None:
    (controller,), (agent,) = cluster.layout.controllers, cluster.layout.agents
    for kind, member in (("controller", controller), ("agent", agent)):
        printed = pidkeeper(kind, "config", "--config", config_of(cluster, member)).stdout
        settings, given = tomllib.loads(printed), tomllib.loads(config_of(cluster, member).read_text())
        # In its tables, a file need not have all keys.
        plain = {key: value for key, value in given.items() if isinstance(value, str | int)}
        assert {key: settings[key] for key in plain} == plain
        again = tmp_path / "again.toml"
        again.write_text(printed)
        assert pidkeeper(kind, "config", "--config", again).stdout == printed
    wrong = pidkeeper("agent", "config", "--config", config_of(cluster, controller))
    assert (wrong.returncode, "there is no key" in wrong.stderr) == (2, True)


def test_a_bundle_has_what_all_members_say(cluster: LocalCluster, tmp_path: Path) -> None:
    out = tmp_path / "b.tar.gz"
    made = pidkeeper("debug", "bundle", "--cluster", cluster.directory, "--out", out)
    assert made.returncode == 0, made.stderr
    with tarfile.open(out) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    (controller,), (agent,) = cluster.layout.controllers, cluster.layout.agents
    place, of_agent = (member.http.partition("://")[2].replace(":", "_") for member in (controller, agent))
    assert names >= {f"controllers/{place}/{name}" for name in ("quorum.json", "metrics.txt", "readyz.txt")}
    assert names >= {f"agents/{of_agent}/status.json", "config/agent-1.toml", "logs/controller-1.log", "bundle.json"}
    with tarfile.open(out) as archive:
        contents = b"".join(file.read() for entry in archive if (file := archive.extractfile(entry)) is not None)
    assert (cluster.directory / "config" / "peer-key").read_text().strip().encode() not in contents
