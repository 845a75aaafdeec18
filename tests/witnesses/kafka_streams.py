"""Kafka Streams' own smoke test under `exactly_once_v2`, while its clients and what serves are killed.

A driver writes numbers by keys, and clients of one application count, sum, window and join them. Then the driver reads
what came of it, and compares it with what it wrote: nothing may be missing, and nothing counted twice.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.clients.record_witnesses import SECONDS
from tests.support.java_servers import JVM
from tests.support.kafka_broker import JARS
from tests.support.kafka_broker import why_unavailable as why_no_broker
from tests.witnesses.judgement import Outcome, Outcomes, failed, passed
from tests.witnesses.places import Place
from tests.witnesses.programs import observed

WITNESS: Final = "Kafka Streams 4.3.0"
DIRECTORY: Final = Path(__file__).resolve().parents[2] / ".tools" / "streams"
MAIN: Final = "org.apache.kafka.streams.tests.StreamsSmokeTest"
TOPICS: Final = (
    *("data", "echo", "max", "min", "min-suppressed", "min-raw", "dif", "sum", "sws-raw", "sws-suppressed", "cnt"),
    *("avg", "tagg", "fk"),
)
PARTITIONS: Final = 3
CLIENTS: Final = 2
SESSION_MS: Final = 10_000
COMMIT_MS: Final = 500

BEFORE_SECONDS: Final = 12.0
"""For how long all is well first: the clients have their tasks then, and some hundred transactions are done."""

DRIVER_SECONDS: Final = 400.0
_END: Final = "SUCCESS"


def why_unavailable() -> str | None:
    """None if its jars are there, else what is missing."""
    if (reason := why_no_broker()) is not None:
        return reason
    if DIRECTORY.exists():
        return None
    return "no Kafka Streams: .tools/streams is empty; tools/fetch-jars streams fills it with Maven"


def outcomes(place: Place) -> Outcomes:
    """Of the one test."""
    return {"exactly_once_v2, while clients and servers are killed": observed(lambda: _ran(place))}


def _ran(place: Place) -> Outcome:
    admin = AdminClient({"bootstrap.servers": place.bootstrap, "log_level": 0})
    for created in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in TOPICS]).values():
        created.result(SECONDS)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        clients = [stack.enter_context(_started(place, directory, number)) for number in range(CLIENTS)]
        driver = stack.enter_context(_running(_settings(place, directory, "driver"), "run", directory / "driver.out"))
        time.sleep(BEFORE_SECONDS)
        clients[0].kill()
        clients[0].wait()
        # Under the same number it finds the state that the one before left.
        stack.enter_context(_started(place, directory, 0))
        place.harm()
        try:
            code = driver.wait(DRIVER_SECONDS)
        except subprocess.TimeoutExpired:
            return failed(f"the driver did not end within {DRIVER_SECONDS:g} s")
        text = (directory / "driver.out").read_text(errors="replace")
    return passed() if code == 0 and _END in text.splitlines() else failed(f"ended with {code}: {text[-2000:]}")


def _settings(place: Place, directory: Path, name: str) -> Path:
    path = directory / f"{name}.properties"
    settings = {
        "bootstrap.servers": place.bootstrap,
        "processing.guarantee": "exactly_once_v2",
        "replication.factor": "1",
        "state.dir": str(directory / name),
        "session.timeout.ms": str(SESSION_MS),
        "commit.interval.ms": str(COMMIT_MS),
        "num.stream.threads": "1",
    }
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


@contextmanager
def _started(place: Place, directory: Path, number: int) -> Iterator[subprocess.Popen[bytes]]:
    name = f"client-{number}"
    with _running(_settings(place, directory, name), "process", directory / f"{name}.out") as client:
        yield client


@contextmanager
def _running(settings: Path, what: str, told: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The program, which is killed in the end. What it prints is added to `told`."""
    command = ["java", "-Xmx256m", *JVM, "-cp", f"{DIRECTORY}/*:{JARS}/*", MAIN, str(settings), what]
    with told.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
