"""`pidkeeper dev`: what it promises to those who build on a local cluster."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from pidkeeper.cli.kafka_load import ANSWER_BYTES, request_frame
from tests.support.cluster import REPOSITORY, WAIT_SECONDS, pidkeeper, wait_until
from tests.support.http_calls import call, exchange


class DevRun:
    """One running `pidkeeper dev --dir directory`."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self._said = directory.with_name(f"{directory.name}.out")
        self._complained = directory.with_name(f"{directory.name}.err")
        command = [sys.executable, "-m", "pidkeeper.cli", "dev", "--dir", str(directory), *options]
        with self._said.open("wb") as out, self._complained.open("wb") as err:
            self.process = subprocess.Popen(
                command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )
        wait_until(lambda: self.process.poll() is not None or self.output().endswith("\n"), "the ready line")
        assert self.process.poll() is None, self.complaints()

    def output(self) -> str:
        """What it wrote to stdout."""
        return self._said.read_text()

    def complaints(self) -> str:
        """What it wrote to stderr."""
        return self._complained.read_text()

    def layout(self) -> dict[str, Any]:
        """cluster.json as it is now."""
        layout: dict[str, Any] = json.loads((self.directory / "cluster.json").read_text())
        return layout

    def pids(self) -> list[int]:
        """The processes of all members."""
        layout = self.layout()
        return [member["pid"] for member in layout["controllers"] + layout["agents"]]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to stop; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=WAIT_SECONDS)

    def clean_up(self) -> None:
        """End it and its members, however far it came."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
            for pid in filter(alive, self.pids()):
                os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def dev(directory: Path, *options: str) -> Iterator[DevRun]:
    run = DevRun(directory, *options)
    try:
        yield run
    finally:
        run.clean_up()


def alive(pid: int) -> bool:
    """Whether there is such a process."""
    return Path(f"/proc/{pid}").exists()


def claim_over_http(agent: dict[str, Any]) -> int:
    answer = call(agent["http"], "POST", "/v1/init-producer-id", {}).json()
    assert (answer["error_code"], answer["producer_epoch"]) == (0, 0)
    return int(answer["producer_id"])


def claim_over_kafka(agent: dict[str, Any]) -> int:
    answer = exchange(agent["kafka"], request_frame(), wanted=ANSWER_BYTES)
    error, producer_id, epoch = struct.unpack_from(">hqh", answer, 13)
    assert (error, epoch) == (0, 0)
    return int(producer_id)


def is_ready(member: dict[str, Any]) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException):
        return call(member["http"], "GET", "/readyz").status == 200
    return False


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevRun]:
    with dev(tmp_path_factory.mktemp("dev") / "cluster") as run:
        yield run


def test_one_line_says_that_all_is_ready_and_where(running: DevRun) -> None:
    (line,) = running.output().splitlines()
    layout = running.layout()
    assert line.startswith(f"ready: cluster {layout['cluster_id']}, 3 controllers")
    assert str(running.directory / "cluster.json") in line
    assert all(member["http"] in line for member in layout["controllers"])
    assert all(agent["kafka"] in line for agent in layout["agents"])
    assert all(is_ready(member) for member in layout["controllers"] + layout["agents"])


def test_cluster_json_has_the_promised_shape(running: DevRun) -> None:
    layout = running.layout()
    assert set(layout) == {"cluster_id", "controllers", "agents"}
    assert [set(one) for one in layout["controllers"]] == [{"id", "http", "peer", "kafka", "pid", "data_dir"}] * 3
    assert [set(one) for one in layout["agents"]] == [{"id", "http", "kafka", "pid"}] * 2
    assert [one["id"] for one in layout["controllers"]] == [1, 2, 3]
    assert all(one["http"].startswith("http://127.0.0.1:") for one in layout["controllers"] + layout["agents"])
    assert all(one["peer"].startswith("127.0.0.1:") for one in layout["controllers"])
    assert all(Path(one["data_dir"]).is_dir() for one in layout["controllers"])
    assert all(alive(pid) for pid in running.pids())


def test_every_agent_answers_over_both_of_its_ports(running: DevRun) -> None:
    agents = running.layout()["agents"]
    ids = [claim(agent) for agent in agents for claim in (claim_over_http, claim_over_kafka) for _ in range(5)]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("group", ["controllers", "agents"])
def test_a_member_that_dies_is_started_again(running: DevRun, group: str) -> None:
    victim = running.layout()[group][0]
    os.kill(victim["pid"], signal.SIGKILL)

    def is_back() -> bool:
        now = running.layout()[group][0]
        return now["pid"] != victim["pid"] and is_ready(now)

    wait_until(is_back, f"{group[:-1]}-1 to be back")
    now = running.layout()[group][0]
    assert {key: now[key] for key in now if key != "pid"} == {key: victim[key] for key in victim if key != "pid"}
    assert f"{group[:-1]}-1 died; starting it again" in running.complaints()


def test_a_second_run_on_a_directory_in_use_is_refused(running: DevRun) -> None:
    before = running.layout()
    second = pidkeeper("dev", "--dir", running.directory)
    assert second.returncode == 5, second
    (line,) = second.stderr.splitlines()
    assert f"{running.directory} is in use by another `pidkeeper dev`" in line
    assert second.stdout == ""
    assert running.layout() == before
    assert all(is_ready(member) for member in before["controllers"] + before["agents"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_as_a_whole_and_resumes_the_same_cluster(tmp_path: Path, number: signal.Signals) -> None:
    with dev(tmp_path / "cluster", "--agents", "1") as first:
        layout, pids = first.layout(), first.pids()
        claimed = claim_over_http(layout["agents"][0])
        assert first.stop(number) == 0
        assert [pid for pid in pids if alive(pid)] == []
        assert first.complaints() == ""
    # What it is told now does not matter: the directory says what the cluster is.
    with dev(tmp_path / "cluster", "--controllers", "1", "--agents", "2") as second:
        again = second.layout()
        for group in ("controllers", "agents"):
            for member in (*layout[group], *again[group]):
                member.pop("pid")
        assert again == layout
        block = call(layout["controllers"][0]["http"], "GET", f"/v1/producer-ids/{claimed}/owner").json()
        assert claim_over_http(again["agents"][0]) > block["last"]
        assert second.stop() == 0


def test_members_that_outlived_their_run_are_not_taken_for_new_ones(tmp_path: Path) -> None:
    with dev(tmp_path / "cluster", "--controllers", "1", "--agents", "0") as first:
        first.process.kill()
        first.process.wait()
        (pid,) = first.pids()
        try:
            second = pidkeeper("dev", "--dir", first.directory)
            assert second.returncode == 5, second
            (line,) = second.stderr.splitlines()
            assert f"another process already answers at {first.layout()['controllers'][0]['http']}" in line
            assert str(pid) in line
            assert alive(pid)
        finally:
            os.kill(pid, signal.SIGKILL)


def test_a_secure_cluster_has_a_user_for_kafka_clients_who_stays_the_same(tmp_path: Path) -> None:
    told = []
    for _ in range(2):
        with dev(tmp_path / "d", "--secure", "--controllers", "1", "--agents", "1") as run:
            wait_until(lambda run=run: run.output().count("\n") == 2, "both lines")  # type: ignore[misc]
            client = tmp_path / "d" / "client.properties"
            assert f"Kafka clients take {client}, which logs in as user dev" in run.output()
            assert client.stat().st_mode & 0o077 == 0, "it has the password"
            settings = dict(line.split("=", 1) for line in client.read_text().splitlines())
            told.append(settings)
            found = re.search(r'username="(.+)" password="(.+)";', settings["sasl.jaas.config"])
            assert found is not None
            producer = Producer(
                {
                    "bootstrap.servers": run.layout()["agents"][0]["kafka"],
                    "transactional.id": "shop",
                    "security.protocol": settings["security.protocol"],
                    "ssl.ca.location": settings["ssl.truststore.location"],
                    "sasl.mechanism": settings["sasl.mechanism"],
                    "sasl.username": found[1],
                    "sasl.password": found[2],
                }
            )
            producer.init_transactions(WAIT_SECONDS)
            assert run.stop() == 0
    assert told[0] == told[1]
