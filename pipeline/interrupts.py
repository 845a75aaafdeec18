"""Ctrl-C and SIGTERM while Spark is at work.

PySpark's handler of SIGINT calls Java in the middle of a call to Java, and py4j prints a stack trace for whatever is
thrown there. So nothing is thrown here: a signal is noted, what Spark runs is cancelled from a thread of its own, and
then the call that waited for it fails. Java and the Python workers ignore the SIGINT that a terminal sends to all.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
GRACE_SECONDS: Final = 10.0
"""For Spark to cancel its jobs: after that, or at a second signal, Java is ended. To plan the checks takes seconds, and
nothing cancels that."""
_POLL_SECONDS: Final = 0.25


class Interrupts:
    """Whether the process was asked to end: once (`asked`), or again by somebody who will not wait (`insisted`).

    patient: what is at work may end first, so that only who insists cuts it off. `throws`: KeyboardInterrupt is raised
    where the process is; not while Spark is at work, which has to be cancelled.
    """

    def __init__(self, *, patient: bool = False, throws: bool = False) -> None:
        self._asked = threading.Event()
        self._insisted = threading.Event()
        self.throws = throws
        self._enough = self._insisted if patient else self._asked

    @property
    def asked(self) -> bool:
        """A signal has come."""
        return self._asked.is_set()

    @property
    def insisted(self) -> bool:
        """A second one has."""
        return self._insisted.is_set()

    def check(self) -> None:
        """Raise KeyboardInterrupt if it is to end here."""
        if self._enough.is_set():
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """From here on signals are noted, and have no other effect. For the main thread."""
        before = {number: signal.signal(number, self._signalled) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until a signal comes; whether one has."""
        return self._asked.wait(seconds)

    def note(self) -> None:
        """Ask, or insist."""
        if self.asked:
            self._insisted.set()
        self._asked.set()

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self.note()
        if self.throws:
            self.check()
        else:
            # py4j logs a stack trace for each call that fails because its job or its Java is gone: none is news.
            logging.disable(logging.CRITICAL)

    @contextlib.contextmanager
    def cancelling(self, spark: SparkSession) -> Iterator[None]:
        """Once it is to end, cancel whatever Spark runs within this block, so that it ends with an exception."""
        ended = threading.Event()
        thread = threading.Thread(target=self._cancel, args=(spark, ended), daemon=True, name="interrupts")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _cancel(self, spark: SparkSession, ended: threading.Event) -> None:
        while not self._enough.wait(_POLL_SECONDS):
            if ended.is_set():
                return
        deadline = time.monotonic() + GRACE_SECONDS
        while not ended.wait(_POLL_SECONDS):
            if self.insisted or time.monotonic() > deadline:
                end_java()
                return
            with contextlib.suppress(Exception):  # it may be ending by itself
                if hasattr(spark, "client"):  # of Spark Connect
                    spark.interruptAll()
                else:
                    spark.sparkContext.cancelAllJobs()


def end_java() -> None:
    """End the Java process that this one started, and wait for it; its temporary files go with it."""
    from pyspark import SparkContext

    # PySpark keeps the process there for its callers.
    gateway: Any = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is not None:
        _expect_the_end_of_java()
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)


def _expect_the_end_of_java() -> None:
    """Java leaves its connection to PySpark's accumulators open, whose server prints a stack trace when it ends."""
    from pyspark import SparkContext

    context: Any = SparkContext._active_spark_context
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None
