"""What a container of this image runs: `pidkeeper` with its arguments, or what Spark on Kubernetes asks its images for.

Spark starts the driver's container with the argument `driver` and those of `spark-submit`, and an executor's with
`executor` and its settings in the environment. Images of Spark have a script for that; PySpark's package has none.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Final

_JAVA_OPTION: Final = re.compile(r"SPARK_JAVA_OPT_(\d+)")
_EXECUTOR: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_SETTINGS: Final = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def command(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """What to execute. Raises KeyError for a setting that Spark should have given."""
    if arguments[:1] == ["driver"]:
        return _driver(arguments[1:], environment)
    if arguments[:1] == ["executor"]:
        return _executor(environment)
    return ["pidkeeper", *arguments]


def _driver(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    address = f"spark.driver.bindAddress={environment['SPARK_DRIVER_BIND_ADDRESS']}"
    submit = f"{environment['SPARK_HOME']}/bin/spark-submit"
    return [submit, "--conf", address, "--deploy-mode", "client", *arguments]


def _executor(environment: Mapping[str, str]) -> list[str]:
    numbered = {int(match[1]): value for name, value in environment.items() if (match := _JAVA_OPTION.fullmatch(name))}
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    places = (environment.get("SPARK_CONF_DIR"), environment.get("HADOOP_CONF_DIR"), environment.get("SPARK_CLASSPATH"))
    path = ":".join([*(place for place in places if place), f"{environment['SPARK_HOME']}/jars/*"])
    settings = [word for option, name in _SETTINGS.items() for word in (option, environment[name])]
    options = [numbered[number] for number in sorted(numbered)]
    return ["java", *options, f"-Xms{memory}", f"-Xmx{memory}", "-cp", path, _EXECUTOR, *settings]


if __name__ == "__main__":
    words = command(sys.argv[1:], os.environ)
    os.execvp(words[0], words)  # noqa: S606 - this process becomes that
