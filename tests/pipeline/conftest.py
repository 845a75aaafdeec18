"""What the tests of the audit share: one broker with all that producers can write, one Spark session."""

from __future__ import annotations

import getpass
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from pidkeeper.pipeline.engine.spark import SparkEngine
from pidkeeper.pipeline.session import REQUIRED
from tests.pipeline.real_producers import write_everything
from tests.support import kafka_broker, s3, zookeeper
from tests.support.kafka_broker import HOST, KafkaBroker
from tests.support.s3 import S3
from tests.support.spark_driver import FORGETFUL, SHORT_LIVED

REPOSITORY: Final = Path(__file__).resolve().parents[2]
SPARK_SETTINGS: Final = REQUIRED | {
    "spark.driver.memory": "512m",
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # As in the session of the product.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.executorEnv.PYTHONPATH": str(REPOSITORY),
}


def why_no_spark() -> str | None:
    """None if a session with Python data sources can start here, else what is missing."""
    absent = [name for name in ("pyspark", "pyarrow", "numpy", "duckdb") if importlib.util.find_spec(name) is None]
    if absent:
        return f"no Spark: {', '.join(absent)} not installed"
    missing = zookeeper.why_unavailable()
    return None if missing is None else missing.replace("no ZooKeeper", "no Spark")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A query of Spark takes seconds, and many of them on a loaded machine."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def kafka_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory of a broker after real producers wrote to it; the broker is gone, so nothing changes there."""
    if (reason := kafka_broker.why_unavailable()) is not None:
        pytest.skip(reason)
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    try:
        broker.start()
        write_everything(broker)
    finally:
        broker.close()
    return broker.logs


@pytest.fixture(scope="session")
def aws_credentials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the session's workers look for the key of an S3, whichever test writes it there."""
    return tmp_path_factory.mktemp("aws") / "credentials"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, aws_credentials: Path) -> Iterator[SparkSession]:
    """The one session of the test run: two threads of this machine, Python workers with this interpreter."""
    if (reason := why_no_spark()) is not None:
        pytest.skip(reason)
    # The Java process and the workers take these over when they start, so they need not stay.
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        environment.setenv("PYTHONPATH", str(REPOSITORY))
        environment.setenv("SPARK_LOCAL_IP", HOST)
        environment.setenv("AWS_SHARED_CREDENTIALS_FILE", str(aws_credentials))
        environment.setenv("HADOOP_USER_NAME", getpass.getuser())
        builder = SparkSession.builder.master("local[2]").appName("pidkeeper-tests")
        found = {
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        }
        for name, value in (SPARK_SETTINGS | SHORT_LIVED | FORGETFUL | found).items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def engine(spark: SparkSession) -> SparkEngine:
    """Kernels as tasks of that session."""
    return SparkEngine(spark)


@pytest.fixture(scope="module")
def bucket(aws_credentials: Path) -> Iterator[S3]:
    """With the user's key where pyarrow finds it, here and in Spark's workers."""
    if (reason := s3.why_unavailable()) is not None:
        pytest.skip(reason)
    server = S3()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_SHARED_CREDENTIALS_FILE", str(aws_credentials))
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
            environment.delenv(name, raising=False)
        try:
            server.start(aws_credentials)
            yield server
        finally:
            server.close()
