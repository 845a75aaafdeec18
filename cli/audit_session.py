"""What surrounds a command of `pidkeeper audit`: engine, log, signals, and words for failures."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pidkeeper.cli.audit_options import EngineOptions
from pidkeeper.cli.failures import CommandError, told

if TYPE_CHECKING:
    from pidkeeper.pipeline.engine.engine import Engine
    from pidkeeper.pipeline.files.location import Location
    from pidkeeper.pipeline.interrupts import Interrupts


@contextlib.contextmanager
def explained(options: EngineOptions | None = None, *, patient: bool = False) -> Iterator[Interrupts]:
    """Every failure that has an explanation ends the command with it and no trace; what a signal broke, with 130.

    `patient` as in `Interrupts`.
    """
    from pidkeeper.pipeline.session import SessionError, why_no_audit, why_no_spark

    missing = why_no_spark(options.master) if options is not None and options.wants_spark else why_no_audit()
    if missing is not None:
        raise CommandError(missing)
    from pidkeeper.pipeline.interrupts import Interrupts
    from pidkeeper.pipeline.ledger import LedgerError
    from pidkeeper.pipeline.paths import LoadingError

    interrupts = Interrupts(patient=patient, throws=True)
    try:
        with interrupts.noted():
            yield interrupts
    except Exception as error:
        if interrupts.asked:
            raise KeyboardInterrupt from error
        if isinstance(error, SessionError | LoadingError | LedgerError | OSError):
            raise CommandError(told(error) if isinstance(error, OSError) else str(error)) from error
        if (reason := _of_spark(error)) is not None:
            raise CommandError(reason) from error
        raise


@contextlib.contextmanager
def running(options: EngineOptions, out: Location, interrupts: Interrupts) -> Iterator[Engine]:
    """An engine for work in `out`. Spark starts when it gets something to do: who mistyped a path is told at once."""
    from pidkeeper.pipeline.engine.local import LocalEngine
    from pidkeeper.pipeline.engine.no_pandas import do_without_pandas
    from pidkeeper.pipeline.engine.waiting import WaitingEngine

    with contextlib.ExitStack() as ended:

        def start() -> Engine:
            return ended.enter_context(_spark(options, out, interrupts))

        if options.wants_spark:
            yield WaitingEngine(start, alone_bytes=0)
            return
        do_without_pandas()
        yield LocalEngine() if options.engine == "local" else WaitingEngine(start)


@contextlib.contextmanager
def _spark(options: EngineOptions, out: Location, interrupts: Interrupts) -> Iterator[Engine]:
    from pidkeeper.pipeline.engine.spark import SparkEngine
    from pidkeeper.pipeline.interrupts import end_java
    from pidkeeper.pipeline.session import session

    interrupts.throws = False
    try:
        with (
            _log(out) as log,
            session(options.master, options.memory, log, options.conf, interrupts) as spark,
            interrupts.cancelling(spark),
        ):
            yield SparkEngine(spark)
    finally:
        if interrupts.asked:
            end_java()


def stepper(interrupts: Interrupts) -> Callable[[str], None]:
    """Tells each step of a long command on standard error, unless it is to end."""

    def say(text: str) -> None:
        interrupts.check()
        click.echo(f"{text} ...", err=True)

    return say


def _of_spark(error: Exception) -> str | None:
    """The last line of what a task raised; None if it is not Spark that failed."""
    if not type(error).__module__.startswith(("pyspark", "py4j")):
        return None
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if "Error: " in line and not line.startswith(("at ", "File "))]
    return f"the audit did not come to its end: {(raised or lines or [type(error).__name__])[-1]}"


@contextlib.contextmanager
def _log(out: Location) -> Iterator[Path]:
    """Where Java prints: beside the output; if that is not on this machine, a file that stays if the command fails."""
    if (directory := out.local) is not None:
        directory.mkdir(parents=True, exist_ok=True)
        yield directory / "spark.log"
        return
    with tempfile.NamedTemporaryFile(prefix="pidkeeper-audit-", suffix=".log", delete=False) as file:
        log = Path(file.name)
    try:
        yield log
    except BaseException:
        if log.stat().st_size:
            click.echo(f"what Java printed is in {log}", err=True)
        else:
            log.unlink()
        raise
    log.unlink()
