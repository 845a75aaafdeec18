"""What surrounds a command of `pidkeeper audit` that needs Spark: session, log, signals, and words for failures."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pidkeeper.cli.audit_options import SparkOptions
from pidkeeper.cli.failures import CommandError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pidkeeper.pipeline.interrupts import Interrupts
    from pidkeeper.pipeline.store import Place


@contextlib.contextmanager
def explained() -> Iterator[Interrupts]:
    """Every failure that has an explanation ends the command with it and no trace; what a signal broke, with 130."""
    from pidkeeper.pipeline.interrupts import Interrupts
    from pidkeeper.pipeline.session import SessionError, why_no_spark

    if (missing := why_no_spark()) is not None:
        raise CommandError(missing)
    from pidkeeper.pipeline.audit import AuditError
    from pidkeeper.pipeline.directory_lock import InUseError
    from pidkeeper.pipeline.paths import LoadingError
    from pidkeeper.pipeline.watermark import StateError

    interrupts = Interrupts()
    try:
        with interrupts.noted():
            yield interrupts
    except Exception as error:
        if interrupts.asked:
            raise KeyboardInterrupt from error
        if isinstance(error, SessionError | AuditError | LoadingError | StateError | InUseError | OSError):
            raise CommandError(str(error)) from error
        raise


@contextlib.contextmanager
def running(options: SparkOptions, place: Place, interrupts: Interrupts) -> Iterator[SparkSession]:
    """A session for work at `place`. After a signal nothing that writes is left, and no stage in a local directory."""
    from pidkeeper.pipeline.audit import STAGE_PREFIX
    from pidkeeper.pipeline.interrupts import end_java
    from pidkeeper.pipeline.progress import starting
    from pidkeeper.pipeline.session import session

    try:
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(_log(place))
            with starting("starting Spark"):
                spark = stack.enter_context(session(options.master, options.memory, log, options.conf, interrupts))
            yield spark
    finally:
        if interrupts.asked:
            end_java()
            for stage in place.glob(f"{STAGE_PREFIX}*") if isinstance(place, Path) else ():
                shutil.rmtree(stage, ignore_errors=True)


@contextlib.contextmanager
def held(*, out: Place | None = None, state: Place | None = None) -> Iterator[None]:
    """Keep other processes from what this one writes to. A directory that is both is locked once."""
    from pidkeeper.pipeline.directory_lock import locked, same_directory

    with contextlib.ExitStack() as stack:
        if out is not None:
            stack.enter_context(locked(out, "--out"))
        if state is not None and not (out is not None and same_directory(out, state)):
            stack.enter_context(locked(state, "--state"))
        yield


@contextlib.contextmanager
def _log(place: Place) -> Iterator[Path]:
    """Where Java prints: beside the output; if that is not on this machine, a file that stays if the command fails."""
    if isinstance(place, Path):
        place.mkdir(parents=True, exist_ok=True)
        yield place / "spark.log"
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
