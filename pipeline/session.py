"""The Spark session of the audit: bounded memory, quiet, and a clear word where something is missing."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pidkeeper
from pidkeeper.pipeline.interrupts import Interrupts, end_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_JAVA: Final = 17
"""What PySpark 4 asks for."""
DEFAULT_MASTER: Final = "local[*]"
DEFAULT_MEMORY: Final = "1g"
"""Java heap. What is read and judged is in the Python workers; the heap sees blobs of some MiB, and spills them."""
REQUIRED: Final = {
    # A part is a row, and so is a blob of up to some MiB: rows are few, and large.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16",
    # Compiling and planning anew is for queries over rows, of which Spark has none here.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""What the engine rests on, so that nobody can set it otherwise."""
VERSION_SECONDS: Final = 30.0
EXTRA: Final = "pip install 'pidkeeper[audit]'"
_NEEDED: Final = ("pyspark", "pandas", "pyarrow", "numpy", "duckdb", "jinja2", "plotly")
_PACKAGES: Final = ("pipeline", "protocol", "snapshots")
"""All that a task imports of this project."""
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Where `spark-submit` tells a program how to reach the Java process that runs it."""
_LOG_TAIL_LINES: Final = 5
START_POLL_SECONDS: Final = 0.1
START_GRACE_SECONDS: Final = 5.0
"""A start that was interrupted has so long to end by itself: on a machine at rest it takes that long."""


class SessionError(RuntimeError):
    """There is no session; the message says what is missing and what to do."""


def why_no_spark(master: str | None = None) -> str | None:
    """None if a session can start here, else what is missing and how to get it; a Connect server has its own Java."""
    if master is None or not is_connect(master):
        return why_no_audit() or _why_no_java()
    absent = "" if importlib.util.find_spec("grpc") else f"{master} needs grpc: pip install 'pyspark[connect]'"
    return why_no_audit() or absent or None


def why_no_audit() -> str | None:
    """The same for an audit in one process, which needs no Java."""
    absent = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    return f"the audit needs {', '.join(absent)}: {EXTRA}" if absent else None


def is_local(master: str) -> bool:
    """Whether the executors are threads of this process's Java."""
    return master == "local" or master.startswith("local[")


def is_connect(master: str) -> bool:
    """Whether it is the address of a Spark Connect server, `sc://HOST:PORT`."""
    return master.startswith("sc://")


def submitted() -> bool:
    """Whether `spark-submit` runs this process. Then it has named the master, and Java is there already."""
    return _SUBMITTED in os.environ


@contextlib.contextmanager
def session(
    master: str | None = None,
    memory: str | None = None,
    log: Path | None = None,
    conf: Mapping[str, str] | None = None,
    interrupts: Interrupts | None = None,
) -> Iterator[SparkSession]:
    """A session, stopped at the end. Raises SessionError.

    `master`: DEFAULT_MASTER without one; that of `spark-submit` where this runs below it. `memory`: Java heap of the
    driver, and of every executor of a master that is not local; without it a local one gets DEFAULT_MEMORY and any
    other what spark-defaults.conf says. `log`: what Java and the workers print, else it is dropped. `conf`: settings of
    Spark, which win over all but REQUIRED; those of spark-defaults.conf (in SPARK_CONF_DIR) hold where nothing here
    sets them. `interrupts`: once asked, a start ends with KeyboardInterrupt.

    A master that is not local gets this project's code as a zip file, so its machines need Python of the same minor
    version with `duckdb`, `numpy`, `pandas`, `pyarrow`, `msgspec` and `google-crc32c` (and `fsspec` and `requests` for
    webhdfs://), and every path, the output directory's included, is a URI or on a file system that they share.
    """
    if (missing := why_no_spark(master)) is not None:
        raise SessionError(missing)
    if master is not None and is_connect(master) and memory is not None:
        raise SessionError("a Spark Connect server has its memory already: leave --memory out")
    if not submitted():
        master = master or DEFAULT_MASTER
    elif master is not None or memory is not None:
        raise SessionError("spark-submit has its own --master, --driver-memory and --executor-memory: name them there")
    settings = _settings(master, memory) | dict(conf or {}) | REQUIRED
    spark = _start_aside(master, settings, log, interrupts or Interrupts())
    try:
        with tempfile.TemporaryDirectory(prefix="pidkeeper-code-") as directory:
            if master is not None and is_connect(master):
                spark.addArtifacts(str(_zip_code(Path(directory))), pyfile=True)
            elif master is None or not is_local(master):
                spark.sparkContext.addPyFile(str(_zip_code(Path(directory))))
            yield spark
    finally:
        with _streams_to(log):
            spark.stop()


def why_not(name: str, value: str) -> str | None:
    """None if a user may give a setting of Spark this value, else what is wrong with it."""
    if not name.startswith("spark."):
        return f"Spark drops settings that do not start with spark.; one of Hadoop is spark.hadoop.{name}"
    if name == "spark.master":
        return "the master is named by --master"
    if REQUIRED.get(name, value) != value:
        return f"the audit needs {name}={REQUIRED[name]}"
    return None


def _settings(master: str | None, memory: str | None) -> dict[str, str]:
    """A cluster is for its users to set up: it gets what belongs to this command alone, and the rest is theirs."""
    if master is not None and is_connect(master):
        return {}
    root = str(_import_root())
    settings = {
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        # Else every expression asks Java several times more, for error messages that would name a line of a check.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }
    if master is None:
        return settings
    if is_local(master):
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        paths = [root, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path for path in paths if path))
        settings |= {
            "spark.driver.memory": memory or DEFAULT_MEMORY,
            # Java only passes blobs on: what starts fast is faster from beginning to end.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
    elif memory is not None:
        settings |= {"spark.driver.memory": memory, "spark.executor.memory": memory}
    return settings


def _start_aside(
    master: str | None, settings: dict[str, str], log: Path | None, interrupts: Interrupts
) -> SparkSession:
    """Start in another thread: in the main one PySpark would put a handler of its own in place of ours."""
    outcome: list[SparkSession | BaseException] = []

    def start() -> None:
        try:
            outcome.append(_start(master, settings, log))
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            outcome.append(error)

    thread = threading.Thread(target=start, daemon=True, name="start of Spark")
    patience = START_GRACE_SECONDS
    with _streams_to(log):
        thread.start()
        while thread.is_alive():
            thread.join(START_POLL_SECONDS)
            patience -= START_POLL_SECONDS if interrupts.asked else 0
            if interrupts.insisted or patience < 0:
                # A Java process that is not known yet ends with its standard input, so with this process.
                end_java()
                raise KeyboardInterrupt
    if interrupts.asked:
        if not isinstance(outcome[0], BaseException):
            outcome[0].stop()
        raise KeyboardInterrupt
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def _start(master: str | None, settings: dict[str, str], log: Path | None) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("pidkeeper audit")
    if master is not None:
        builder = builder.remote(master) if is_connect(master) else builder.master(master)
    of = "from spark-submit" if master is None else f"with --master {master}"
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except (PySparkException, OSError, RuntimeError) as error:
        raise SessionError(f"Spark did not start {of}: {error}{_tail(log)}") from error
    except Exception as error:
        # py4j passes on what Java threw: its first line says what it was.
        if type(error).__module__.startswith("py4j"):
            first = str(error).strip().splitlines()[:2]
            raise SessionError(f"Spark did not start {of}: {' '.join(first)}{_tail(log)}") from error
        raise


def _tail(log: Path | None) -> str:
    if log is None or not log.exists():
        return ""
    lines = log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
    return "".join(f"\n  {line}" for line in lines) + f"\n  ({log})"


@contextlib.contextmanager
def _streams_to(log: Path | None) -> Iterator[None]:
    """Java inherits standard error when it starts: give it a file, so that ours stays readable."""
    sys.stderr.flush()
    kept = os.dup(2)
    target = os.open(os.devnull if log is None else log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(target)


def _why_no_java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    package = f"a JRE, as Debian's openjdk-{LEAST_JAVA}-jre-headless; --engine local needs none"
    ask = f"Spark needs Java {LEAST_JAVA} or newer ({package})"
    if java is None:
        return f"{ask}: there is no java on PATH, and JAVA_HOME is not set"
    try:
        ran = subprocess.run(  # noqa: S603 - the program that Spark starts in a moment
            [java, "-version"], capture_output=True, text=True, timeout=VERSION_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{ask}: {java} does not run: {error}"
    found = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    if found is None or int(found[1]) < LEAST_JAVA:
        return f"{ask}: {java} is {'of no known version' if found is None else f'Java {found[1]}'}"
    return None


def _zip_code(directory: Path) -> Path:
    root = _import_root()
    package = root / "pidkeeper"
    target = directory / "pidkeeper.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(package / "__init__.py", "pidkeeper/__init__.py")
        for name in _PACKAGES:
            for source in sorted((package / name).rglob("*.py")):
                archive.write(source, source.relative_to(root))
    return target


def _import_root() -> Path:
    """The folder that holds the package `pidkeeper`: the checkout, or what it was installed into."""
    return Path(pidkeeper.__file__).parents[1]
