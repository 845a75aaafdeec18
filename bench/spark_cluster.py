"""A standalone Spark cluster on loopback from PySpark's own jars: a master and workers of one core each."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Self

from bench.process_tree import descendants
from pidkeeper.cli.local_cluster import free_ports

HOST: Final = "127.0.0.1"
START_SECONDS: Final = 120.0
"""When to give up on it; never how fast it must be."""
STOP_SECONDS: Final = 20.0
POLL_SECONDS: Final = 0.2
_KILLER: Final = 'cat; kill -9 "$@" 2>/dev/null'
"""Its standard input ends with this process, however that ends; executors go with their worker."""
_DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}


class SparkCluster:
    """Use as a context. `memory`: what a worker has for executors, as "1g". `settings`: more of Spark's for drivers."""

    def __init__(
        self, directory: Path, *, workers: int = 2, memory: str = "1g", settings: Mapping[str, str] | None = None
    ) -> None:
        self._directory = directory
        self._workers = workers
        self._memory = memory
        self._settings = dict(settings or {})
        self._port, self._ui_port, *self._worker_ports = free_ports(2 + 2 * workers)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._killer: subprocess.Popen[bytes] | None = None

    @property
    def master(self) -> str:
        """What `--master` takes."""
        return f"spark://{HOST}:{self._port}"

    @property
    def pids(self) -> list[int]:
        """Master and workers."""
        return [process.pid for process in self._processes]

    def environment(self) -> dict[str, str]:
        """For the driver: everything on loopback, this interpreter on both sides, and a log of events."""
        conf, events = self._directory / "conf", self._directory / "events"
        conf.mkdir(parents=True, exist_ok=True)
        events.mkdir(exist_ok=True)
        lines = _DEFAULTS | {"spark.eventLog.dir": events.as_uri()} | self._settings
        (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
        return _environment() | {"SPARK_CONF_DIR": str(conf), "PYSPARK_PYTHON": sys.executable}

    def tasks(self) -> dict[str, int]:
        """Successful tasks of all drivers that have ended, by worker: its executors are the folders that it made."""
        tasks: Counter[str] = Counter()
        for log in (self._directory / "events").iterdir():
            for executor, count in _tasks(log).items():
                (folder,) = self._directory.glob(f"work-*/{log.name}/{executor}")
                tasks[folder.parts[-3]] += count
        return dict(tasks)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End master, workers and their executors."""
        below = descendants(self.pids)
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._killer is not None:
            self._killer.kill()
            self._killer.communicate()
            self._killer = None
        self._processes.clear()
        _end(below)

    def _start(self) -> None:
        ports = ("--host", HOST, "--port", str(self._port), "--webui-port", str(self._ui_port))
        self._spawn("master", *ports)
        self._wait("master", lambda: self._alive() >= 0)
        for number in range(self._workers):
            port, ui_port = self._worker_ports[2 * number : 2 * number + 2]
            limits = ("--cores", "1", "--memory", self._memory, "--work-dir", str(self._directory / f"work-{number}"))
            ports = ("--host", HOST, "--port", str(port), "--webui-port", str(ui_port))
            self._spawn("worker", *ports, *limits, self.master)
        command = ["sh", "-c", _KILLER, "killer", *map(str, self.pids)]
        self._killer = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        self._wait("workers", lambda: self._alive() == self._workers)

    def _spawn(self, role: str, *arguments: str) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{spark_home()}/jars/*"]
        main = f"org.apache.spark.deploy.{role}.{role.capitalize()}"
        with (self._directory / "cluster.log").open("ab") as log:
            process = subprocess.Popen(
                [*java, main, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                env=_environment(),
            )
        self._processes.append(process)

    def _wait(self, what: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not ready():
            ended = [process.pid for process in self._processes if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                log = (self._directory / "cluster.log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"the {what} of Spark did not start (ended: {ended}):\n{log}")
            time.sleep(POLL_SECONDS)

    def _alive(self) -> int:
        """Workers that the master knows, -1 while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._ui_port}/json/", timeout=5.0) as answer:
                return int(json.load(answer)["aliveworkers"])
        except (urllib.error.URLError, OSError, ValueError):
            return -1


def spark_home() -> Path:
    """The folder of PySpark, which holds its jars."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.submodule_search_locations, "pyspark is installed where this is used"
    return Path(found.submodule_search_locations[0])


def _environment() -> dict[str, str]:
    home = spark_home()
    # A worker asks for it when it starts an executor; Spark's shell scripts would have set it.
    scala = next(home.glob("jars/spark-core_*.jar")).name.removeprefix("spark-core_").partition("-")[0]
    where = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": HOST, "SPARK_LOCAL_HOSTNAME": HOST}
    return os.environ | where | {"SPARK_SCALA_VERSION": scala}


def _tasks(log: Path) -> Counter[str]:
    """Successful tasks by the id of the executor."""
    tasks: Counter[str] = Counter()
    with log.open() as lines:
        for line in lines:
            if not line.startswith('{"Event":"SparkListenerTaskEnd"'):
                continue
            event = json.loads(line)
            if event["Task End Reason"]["Reason"] == "Success":
                tasks[event["Task Info"]["Executor ID"]] += 1
    return tasks


def _end(pids: Mapping[int, object]) -> None:
    """Executors that outlived their worker, which ends them itself as a rule."""
    deadline = time.monotonic() + STOP_SECONDS
    while (left := [pid for pid in pids if Path(f"/proc/{pid}").exists()]) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    for pid in left:
        os.kill(pid, 9)
