"""The official Java client in a process of its own; the sources in java/ say what each witness understands."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
JARS: Final = REPOSITORY / ".tools" / "java"
SOURCES: Final = Path(__file__).with_name("java")
CODECS: Final = ("lz4-java", "snappy-java", "zstd-jni")
"""What the client compresses with beyond gzip: jars that come with the broker."""

JVM_OPTIONS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m")
"""Few threads and little memory: it shares the machine with the cluster."""

COMPILE_SECONDS: Final = 60.0
ANSWER_SECONDS: Final = 40.0
"""Longer than any call of the client itself may block."""


class JavaError(Exception):
    """What the client threw, from the outermost exception to the cause."""


def why_no_java() -> str | None:
    """What is missing for the Java client; None if nothing is."""
    for program in ("java", "javac"):
        if shutil.which(program) is None:
            return f"{program} is not on PATH; the Java client of Kafka needs a JDK, version 17 or newer"
    if not list(JARS.glob("kafka-clients-*.jar")):
        return "the Java client of Kafka is not in .tools/java; tools/fetch-java-client gets it with Maven"
    return None


def codec_jars() -> list[Path]:
    """The jars of CODECS; fewer where the broker's are not there."""
    return [jar for name in CODECS for jar in (REPOSITORY / ".tools" / "kafka").glob(f"{name}-*.jar")]


class JavaProcess:
    """Asks one question at a time, from whatever thread."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._turn = threading.Lock()
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._numbers = itertools.count(1)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put("error the process ended")

    def new_name(self) -> str:
        """A name for a producer that no other has."""
        return f"producer-{next(self._numbers)}"

    def ask(self, *command: str) -> str:
        """What follows "ok". Raises JavaError, and TimeoutError after ANSWER_SECONDS: then the process is of no use."""
        assert self._process.stdin is not None
        with self._turn:
            self._process.stdin.write(" ".join(command) + "\n")
            self._process.stdin.flush()
            try:
                outcome, _, rest = self._lines.get(timeout=ANSWER_SECONDS).partition(" ")
            except queue.Empty:
                raise TimeoutError(f"the Java client did not answer {command} in {ANSWER_SECONDS:g} s") from None
        if outcome != "ok":
            raise JavaError(f"{command[0]}: {rest}")
        return rest


@contextlib.contextmanager
def java_process(directory: Path, witness: str = "TransactionalWitness") -> Iterator[JavaProcess]:
    """Compile the `witness` into `directory`, start it, and kill it at the end."""
    compiled = subprocess.run(
        ["javac", "-Xlint:all", "-Werror", "-cp", f"{JARS}/*", "-d", str(directory), str(SOURCES / f"{witness}.java")],
        capture_output=True,
        text=True,
        timeout=COMPILE_SECONDS,
        check=False,
    )
    assert compiled.returncode == 0, compiled.stderr
    classes = os.pathsep.join((f"{JARS}/*", *map(str, codec_jars()), str(directory)))
    with (directory / "stderr.log").open("wb") as log:
        process = subprocess.Popen(
            ["java", *JVM_OPTIONS, "-cp", classes, witness],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    started = JavaProcess(process)
    try:
        yield started
    finally:
        process.kill()
        process.wait()
        started._reader.join()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
