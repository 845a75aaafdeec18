"""kafka-python's own integration tests, of its source distribution."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from tests.witnesses.judgement import Known, Outcome, Outcomes, failed, passed
from tests.witnesses.places import Place
from tests.witnesses.programs import EndedError, run

WITNESS: Final = "kafka-python 3.0.12"
DIRECTORY: Final = Path(__file__).resolve().parents[2] / ".tools" / "witnesses" / "kafka-python"
FILES: Final = tuple(f"test/integration/test_{one}_integration.py" for one in ("producer", "consumer", "admin"))
SECONDS: Final = 300.0
TEST_SECONDS: Final = 40

LEFT_OUT: Final[Mapping[str, str]] = {
    "consumer::test_kafka_consumer_offsets_for_time_old": "it is for brokers older than 0.10.1",
    "admin::test_create_describe_delete_acls": "it needs a broker with an authorizer, which none has here",
    "admin::test_create_partitions": "it assigns replicas to brokers that are not there",
} | {
    f"producer::{test}[{codec}]": f"no package of {codec} is here"
    for test in ("test_end_to_end", "test_kafka_producer_proper_record_metadata")
    for codec in ("snappy", "lz4")
}
"""By name: neither is shown them."""


def _unserved(api: str) -> Known:
    return Known(f"agents do not serve {api}", api)


KNOWN: Final = {
    "consumer::test_kafka_version_infer": Known("by the APIs that agents serve they are taken for Kafka 3.8", "(3, 8)"),
    "admin::test_describe_configs_broker_resource_returns_configs": Known(
        "an agent describes the four settings of a broker that it has", "advertised.listeners"
    ),
    "admin::test_delete_records": Known(
        "it takes the first answer to Fetch for all, and two agents answer; with one agent it passes", "600 - 100"
    ),
    "admin::test_elect_leaders": _unserved("ElectLeaders"),
    "admin::test_describe_log_dirs": _unserved("DescribeLogDirs"),
    "admin::test_alter_replica_log_dirs": _unserved("DescribeLogDirs"),
    "admin::test_describe_metadata_quorum": _unserved("DescribeQuorum"),
    "admin::test_alter_partition_reassignments": _unserved("AlterPartitionReassignments"),
    "admin::test_list_partition_reassignments": _unserved("ListPartitionReassignments"),
    "admin::test_describe_topic_partitions": _unserved("DescribeTopicPartitions"),
    "admin::test_describe_topic_partitions_pagination": _unserved("DescribeTopicPartitions"),
    "admin::test_list_config_resources": _unserved("ListConfigResources"),
}


def why_unavailable() -> str | None:
    """None if its tests are there, else what is missing."""
    if (DIRECTORY / "test" / "service.py").exists():
        return None
    return "no tests of kafka-python: .tools/witnesses is empty; tools/fetch-witnesses fills it with pip"


def outcomes(place: Place) -> Outcomes:
    """Of each test."""
    host, port = place.bootstrap.split(",")[0].rsplit(":", 1)
    with tempfile.TemporaryDirectory() as name:
        report = Path(name) / "report.xml"
        # Its own options need plugins that are not here.
        options = [
            "-q",
            "-p",
            "no:cacheprovider",
            "-o",
            "addopts=",
            "--timeout",
            str(TEST_SECONDS),
            f"--junitxml={report}",
        ]
        passed_over = [f"--deselect={_path(one)}" for one in LEFT_OUT]
        variables = {
            "KAFKA_VERSION": "4.3.0",
            "KAFKA_URI": f"kafka://{host}:{port}",
            "KAFKA_ROOT": name,
            "PYTHONPATH": "",
        }
        command = [sys.executable, "-m", "pytest", *options, *passed_over, *FILES]
        try:
            run(command, seconds=SECONDS, directory=DIRECTORY, variables=variables)
        except EndedError as error:
            if not report.exists():
                return {"all": failed(str(error))}
        return told(report.read_text())


def told(report: str) -> Outcomes:
    """What pytest's report in XML says, by module and name; what it skipped has failed, with the reason."""
    return {_name(case): _outcome(case) for case in ET.fromstring(report).iter("testcase")}


def _path(name: str) -> str:
    module, _, test = name.partition("::")
    return f"test/integration/test_{module}_integration.py::{test}"


def _name(case: ET.Element) -> str:
    module = case.get("classname", "").rpartition(".")[2].removeprefix("test_").removesuffix("_integration")
    return f"{module}::{case.get('name')}"


def _outcome(case: ET.Element) -> Outcome:
    for kind in ("failure", "error", "skipped"):
        if (found := case.find(kind)) is not None:
            return failed(f"{kind}: {found.get('message')}")
    return passed()
