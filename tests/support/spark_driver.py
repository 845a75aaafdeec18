"""What makes a driver of Spark quick that lives for some minutes and sees little data. It changes no result."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.support.java_servers import JVM

SHORT_LIVED: Final = {
    "spark.driver.extraJavaOptions": " ".join(JVM),
    "spark.executor.extraJavaOptions": " ".join(JVM),
}
"""The second compiler takes a quarter of the time of such a process, which ends before that pays."""
FORGETFUL: Final = {
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
    "spark.ui.retainedTasks": "1",
}
"""Without a user interface, too, Spark describes every query and keeps the last thousand, which fill a small heap."""


def write_defaults(directory: Path) -> Path:
    """A directory for SPARK_CONF_DIR, with which a command starts such a driver."""
    directory.mkdir()
    lines = [f"{name} {value}\n" for name, value in SHORT_LIVED.items()]
    (directory / "spark-defaults.conf").write_text("".join(lines))
    return directory
