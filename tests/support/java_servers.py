"""What the Java servers of the tests have in common."""

from __future__ import annotations

import subprocess
from typing import Final

JVM: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
"""For servers that live for seconds: what starts fast."""
LOG4J: Final = """\
rootLogger.level=warn
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{HH:mm:ss,SSS} %p %c{1} %m%n
"""
"""Settings of Log4j 2: warnings, to the console."""
_KILLER: Final = 'cat; kill -9 "$@" 2>/dev/null'
"""Its standard input ends with the test run, however that ends."""


def end_with_this_process(*processes: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    """A process that kills these when this one is gone. Whoever ends them in order kills it first."""
    command = ["sh", "-c", _KILLER, "killer", *(str(process.pid) for process in processes)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
