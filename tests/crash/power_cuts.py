"""One member on a real file system whose power the kernel cuts between two of its calls, again and again."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from pathlib import Path
from typing import Final

import msgspec

from tests.crash.history import History, Kind
from tests.crash.loop_disk import KernelFiles, LoopDisk

MEGABYTES: Final = 16
OPERATIONS: Final = 400
"""Of one history, half of them cut short. Then a new directory, so that reading the archive stays quick."""

POWER: Final = Kind(
    "power",
    {"append": 80, "replace": 6, "vote": 4, "prepare": 4, "install": 4, "ahead": 2, "cut": 100},
    snapshot_entries=12,
    interleaved=True,
)


class PowerResult(msgspec.Struct):
    """`acknowledged`: allocations that were checked for at every start after them."""

    cuts: int = 0
    acknowledged: int = 0
    seconds: float = 0.0
    violations: list[str] = []


def cut_power(
    directory: Path, name: str, cuts: int, first_seed: int, *, syncs: bool = True, deadline: float | None = None
) -> PowerResult:
    """Cut the power of one member about `cuts` times, until `deadline` (monotonic seconds), or a promise is broken."""
    result = PowerResult()
    started = time.monotonic()
    logging.disable(logging.CRITICAL)  # torn ends are expected
    try:
        with LoopDisk(directory, name, MEGABYTES) as disk:
            for seed in range(first_seed, first_seed + cuts):
                if result.cuts >= cuts or result.violations or (deadline and time.monotonic() > deadline):
                    break
                _history(disk, seed, min(OPERATIONS, 2 * (cuts - result.cuts)), result, syncs=syncs)
    finally:
        logging.disable(logging.NOTSET)
    result.seconds = time.monotonic() - started
    return result


def _history(disk: LoopDisk, seed: int, operations: int, result: PowerResult, *, syncs: bool) -> None:
    files = KernelFiles(disk, syncs=syncs)
    data_dir = disk.mount_point / f"history-{seed}"
    history = History(POWER, seed, files, data_dir, _nothing)
    try:
        asyncio.run(history.run(operations))
    except Exception as error:  # noqa: BLE001 - whatever stops the member is a finding
        history.violations.append(f"power:{seed}, operation {history.operations}: {type(error).__name__}: {error}")
    finally:
        files.forget_processes()
    result.cuts += files.cuts
    result.acknowledged += len(history.oracle.needed)
    result.violations += history.violations
    shutil.rmtree(data_dir, ignore_errors=True)


def _nothing() -> None:
    """Nothing is enumerated here: the power really goes."""
