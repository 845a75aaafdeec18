"""A real HDFS on loopback, from the jar of tools/fetch-jars hadoop and PySpark's own: one NameNode and one DataNode."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Final

from bench.spark_cluster import spark_home
from pidkeeper.cli.local_cluster import free_ports
from tests.support.java_servers import JVM, LOG4J, end_with_this_process

HOST: Final = "127.0.0.1"
JARS: Final = Path(__file__).resolve().parents[2] / ".tools" / "hadoop"
SUPERUSER: Final = "hdfs"
"""Not the user of the tests, so that permissions hold for them."""
START_SECONDS: Final = 120.0
"""When a test gives up on it; never how fast it must be."""
CALL_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.2
_HEAP: Final = "-Xmx192m"
_SERVERS: Final = "org.apache.hadoop.hdfs.server"


def why_unavailable() -> str | None:
    """None if an Hdfs can start here (given the Java that Spark needs too), else what is missing."""
    if shutil.which("java") is None:
        return "no HDFS: no java on PATH"
    if not list(JARS.glob("hadoop-client-minicluster-*.jar")):
        return "no HDFS: .tools/hadoop is empty; tools/fetch-jars hadoop fills it with Maven"
    return None


class Hdfs:
    """A file system of its own, with everything under `directory`. `uri` and `web`: its address by RPC and by HTTP."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        rpc, self._http, *self._ports = free_ports(5)
        self.uri: Final = f"hdfs://{HOST}:{rpc}"
        self.web: Final = f"webhdfs://{HOST}:{self._http}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._killer: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Format, start both and wait until files can be written. Raises AssertionError with the log if not."""
        conf = self._directory / "conf"
        conf.mkdir(parents=True)
        lines = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in self._settings())
        site = f"<configuration>{''.join(lines)}</configuration>"
        for name in ("core-site.xml", "hdfs-site.xml"):
            (conf / name).write_text(site)
        (conf / "log4j2.properties").write_text(LOG4J)
        formatted = self._spawn("namenode.NameNode", "-format", "-nonInteractive").wait(START_SECONDS)
        assert formatted == 0, f"the NameNode was not formatted\n{self._log()}"
        self._processes = [self._spawn("namenode.NameNode"), self._spawn("datanode.DataNode")]
        self._killer = end_with_this_process(*self._processes)
        self._wait_until_it_serves()

    def make(self, path: str, owner: str, permission: int) -> None:
        """Create a directory."""
        self._call("PUT", path, op="MKDIRS")
        self._call("PUT", path, op="SETOWNER", owner=owner)
        self._call("PUT", path, op="SETPERMISSION", permission=f"{permission:o}")

    def put(self, source: Path, target: str) -> None:
        """Copy a file, or a directory with all that is in it."""
        for file in sorted(source.rglob("*")) if source.is_dir() else [source]:
            if file.is_file():
                name = file.relative_to(source).as_posix() if source.is_dir() else ""
                self._write(f"{target}/{name}".rstrip("/"), file.read_bytes())

    def names(self, path: str) -> list[str]:
        """What is in a directory, sorted."""
        found = self._call("GET", path, op="LISTSTATUS")["FileStatuses"]["FileStatus"]
        return sorted(status["pathSuffix"] for status in found)

    def close(self) -> None:
        """`kill -9` of both, and wait until they are gone."""
        # The killer goes first: after the wait the numbers may belong to other processes.
        if self._killer is not None:
            self._killer.kill()
            self._killer.communicate()
            self._killer = None
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes = []

    def _settings(self) -> list[tuple[str, str]]:
        data, data_http, data_ipc = (f"{HOST}:{port}" for port in self._ports)
        return [
            ("fs.defaultFS", self.uri),
            ("hadoop.tmp.dir", str(self._directory / "tmp")),
            ("dfs.namenode.name.dir", (self._directory / "name").as_uri()),
            ("dfs.datanode.data.dir", (self._directory / "data").as_uri()),
            ("dfs.namenode.http-address", f"{HOST}:{self._http}"),
            ("dfs.namenode.datanode.registration.ip-hostname-check", "false"),
            ("dfs.datanode.hostname", HOST),
            ("dfs.datanode.address", data),
            ("dfs.datanode.http.address", data_http),
            ("dfs.datanode.ipc.address", data_ipc),
            ("dfs.replication", "1"),
            ("dfs.heartbeat.interval", "1"),
        ]

    def _spawn(self, server: str, *arguments: str) -> subprocess.Popen[bytes]:
        conf = self._directory / "conf"
        options = [_HEAP, *JVM, f"-Dlog4j2.configurationFile={conf / 'log4j2.properties'}"]
        path = f"{conf}:{JARS}/*:{spark_home()}/jars/*"
        with (self._directory / "hdfs.log").open("ab") as log:
            return subprocess.Popen(
                ["java", *options, "-cp", path, f"{_SERVERS}.{server}", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                env={**os.environ, "LC_ALL": "C", "HADOOP_USER_NAME": SUPERUSER},
            )

    def _wait_until_it_serves(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            ended = [process.pid for process in self._processes if process.poll() is not None]
            assert not ended, f"HDFS ended: {ended}\n{self._log()}"
            if self._is_up():
                return
            time.sleep(POLL_SECONDS)
        raise AssertionError(f"HDFS does not serve after {START_SECONDS:g} s\n{self._log()}")

    def _is_up(self) -> bool:
        """Out of safe mode, with a DataNode that takes a block."""
        query = f"http://{HOST}:{self._http}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
        try:
            with urllib.request.urlopen(query, timeout=CALL_SECONDS) as answer:
                beans = json.load(answer)["beans"]
            if not beans or beans[0]["FSState"] != "Operational" or beans[0]["NumLiveDataNodes"] < 1:
                return False
            self._write("/probe", b"1")
        except (OSError, ValueError):
            return False
        return True

    def _write(self, path: str, data: bytes) -> None:
        place = self._call("PUT", path, op="CREATE", overwrite="true", noredirect="true")["Location"]
        with urllib.request.urlopen(urllib.request.Request(place, data, method="PUT"), timeout=CALL_SECONDS):
            return

    def _call(self, method: str, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters | {"user.name": SUPERUSER})
        url = f"http://{HOST}:{self._http}/webhdfs/v1{urllib.parse.quote(path)}?{query}"
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=CALL_SECONDS) as answer:
            return json.loads(answer.read() or b"null")

    def _log(self) -> str:
        return (self._directory / "hdfs.log").read_text(errors="replace")[-4000:]
