"""Kafka's TransactionalMessageCopier: it consumes within a group, and commits offsets and copies in transactions."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.waiting import stop_process
from tests.witnesses.programs import TOOLS, java

SESSION_SECONDS: Final = 10.0
"""Of the copier as a member of its group: its own setting."""

TRANSACTION_MS: Final = 30_000
"""Longer than one stands still: its group has to fence it, and not a timeout."""

TRANSACTION_SIZE: Final = 20
"""Messages at most."""

END_SECONDS: Final = 30.0

_LOG4J: Final = """\
rootLogger.level=error
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{HH:mm:ss,SSS} %p %c{1} %m %ex{1}%n
logger.transactions.name=org.apache.kafka.clients.producer.internals.TransactionManager
logger.transactions.level=debug
logger.transactions.filter.transitions.type=RegexFilter
logger.transactions.filter.transitions.regex=.*Transition from state.*
"""
"""Settings of Log4j 2: how transactions end, which the copier itself does not tell (`endings.py`)."""


class Topics(NamedTuple):
    """What is copied, whereto, and by which group."""

    source: str
    target: str
    group: str


class Copier:
    """Copier `number`, which has the same transactional id whenever it is started. Its output goes to `log`.

    `aborts`: whether it aborts a third of its transactions, by chance. `client_id`: of its producer.
    """

    def __init__(
        self,
        number: int,
        bootstrap: str,
        topics: Topics,
        log: Path,
        *,
        aborts: bool = True,
        transaction_ms: int = TRANSACTION_MS,
    ) -> None:
        self.starts = 0
        transactional_id = f"{topics.group}-{number}"
        self.client_id = f"producer-{transactional_id}"
        self._log = log
        settings = log.with_suffix(".properties")
        settings.write_text(_LOG4J)
        self._process: subprocess.Popen[bytes] | None = None
        self._command = java(
            f"{TOOLS}.TransactionalMessageCopier",
            *("--broker-list", bootstrap, "--input-topic", topics.source, "--output-topic", topics.target),
            # It is required, and is not looked at in a group.
            *("--input-partition", "-1", "--consumer-group", topics.group),
            *("--transactional-id", transactional_id, "--transaction-size", str(TRANSACTION_SIZE)),
            *("--transaction-timeout", str(transaction_ms)),
            *("--group-mode", "--use-group-metadata", *(["--enable-random-aborts"] if aborts else [])),
            options=[f"-Dlog4j2.configurationFile={settings}"],
        )

    @property
    def printed(self) -> str:
        """By all that were started, up to now."""
        return self._log.read_text(errors="replace") if self.starts else ""

    @property
    def runs(self) -> bool:
        """It may stand still."""
        return self._process is not None and self._process.poll() is None

    @property
    def is_done(self) -> bool:
        """Whether it has ended because nothing was left in its partitions."""
        return self._process is not None and self._process.poll() == 0

    def start(self) -> None:
        """Start it anew: it was killed, has left, was fenced, or is done."""
        self.starts += 1
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self) -> None:
        """`kill -9`: it leaves its group without a word, and a transaction open. It may be stopped, or have ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def leave(self) -> None:
        """SIGTERM: it leaves the group, unless it does not come to that in END_SECONDS."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()

    def stop(self) -> None:
        """SIGSTOP."""
        if self._process is not None and self.runs:
            stop_process(self._process.pid)

    def go_on(self) -> None:
        """SIGCONT."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
