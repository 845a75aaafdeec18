"""`make cuts`: real processes are killed at places that were chosen, again and again, and all that was acknowledged is
read. And they go on from backups, over a store that went on.

A kill that was not in its window counts as missed. Where power can be cut (see `tests.crash.loop_disk`), machines lose
what they had not synced.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console

from pidkeeper.cli.failures import CommandError
from tests.chaos import own_network
from tests.chaos.checker import Verdict
from tests.chaos.shim.build import why_no_shim
from tests.crash.loop_disk import fast_directory, leave_mounts
from tests.crash.run import exit_on_sigterm
from tests.cuts.backups import Backup, back_up
from tests.cuts.eras import Era, judged, running
from tests.cuts.lies import all_lies
from tests.cuts.readings import Reading, read
from tests.cuts.report import Report, print_report
from tests.cuts.restores import Restore
from tests.cuts.rounds import Cut, draw, play
from tests.cuts.stage import Stage, set_up
from tests.cuts.storage import difference, files, settled
from tests.cuts.windows import Victim, Window, by_name, windows

OUT: Final = Path("build/cuts.json")
KEPT: Final = Path("build/cuts")
COUNT: Final = 200
AGENTS: Final = 2
CUTS_AN_ERA: Final = 45
"""Kills between two restores: of 200 kills, four restores."""
MAX_AGAIN: Final = 0.1
"""Windows that come once more, as a share of all."""
GOES_ON: Final = 100
"""Records that are acknowledged after a backup, at least, and are lost with a restore."""
GOES_ON_SECONDS: Final = 60.0
SHOWN_EVERY: Final = 10


class Options(msgspec.Struct, frozen=True):
    """What the command line says. `directory`: for the cluster, made anew. `power`: cut it where it can be.
    `quick`: leave out windows that take seconds to come.
    """

    count: int
    seed: int
    agents: int
    restores: int
    directory: Path
    power: bool
    quick: bool


class Run:
    """One run, on a stage."""

    def __init__(self, stage: Stage, options: Options, report: Report, console: Console) -> None:
        self._stage = stage
        self._options = options
        self._report = report
        self._console = console
        self._cuts: list[Cut] = []
        self._missed: list[Window] = []
        self._restored: list[tuple[Era, Reading]] = []

    async def play(self) -> None:
        """All eras, and what is left in the end. Raises AssertionError and CommandError if the cluster does not."""
        plan = self._plan()
        eras = 1 + self._options.restores
        for number in range(eras):
            part = plan[number * len(plan) // eras : (number + 1) * len(plan) // eras]
            await self._era(number, part, last=number == eras - 1)
        await asyncio.to_thread(self._end)
        self._report.median_back_s = statistics.median([cut.back for cut in self._cuts if cut.hit] or [0.0])

    def _plan(self) -> list[Window]:
        power = self._options.power and self._stage.no_power is None
        if not power:
            self._report.skipped["power cuts"] = self._stage.no_power or "they were not asked for"
        return draw(windows(power=power, quick=self._options.quick), self._options.count, self._options.seed)

    async def _era(self, number: int, plan: Sequence[Window], *, last: bool) -> None:
        folder = self._options.directory
        backup = None
        async with running(self._stage, folder, number) as era:
            for window in plan:
                await self._cut(era, window)
            if last:
                await self._try_again(era)
            else:
                copied = folder / f"backup-{number}"
                backup = await asyncio.to_thread(back_up, self._stage, era, copied, whole=number % 2 == 1)
                await self._go_on(era, backup)
        verdict, wrong = await asyncio.to_thread(judged, era)
        self._count(verdict)
        self._report.broken += wrong
        if backup is not None:
            await asyncio.to_thread(self._restore, era, backup)
        elif not self._report.broken:
            left = await asyncio.to_thread(difference if self._options.quick else settled, self._stage)
            orphans = [] if self._options.quick else left.orphans
            self._report.orphans, self._report.missing = len(orphans), len(left.missing)
            self._report.broken += [f"{name} is left in the store" for name in orphans[:1]]
            self._report.broken += [f"{name} is missing in the store" for name in left.missing[:1]]
            await self._lie(era)

    async def _try_again(self, era: Era) -> None:
        """The windows that were missed come once more, with what they need; as many as MAX_AGAIN allows."""
        for window in self._missed[: int(self._options.count * MAX_AGAIN)]:
            if window.needs is not None:
                await self._cut(era, by_name(Victim.AGENT, window.needs))
            await self._cut(era, window)

    async def _cut(self, era: Era, window: Window) -> None:
        cut = await play(self._stage, era, window)
        self._cuts.append(cut)
        self._report.take(cut, power=window.victim.loses_power)
        if not cut.hit:
            self._missed.append(window)
            self._console.print(f"missed: {window.full_name}, after {cut.waited:.1f} s")
        if len(self._cuts) % SHOWN_EVERY == 0:
            median = statistics.median(one.back for one in self._cuts)
            self._console.print(f"{len(self._cuts)} of {self._options.count} kills, records back after {median:.2f} s")

    async def _go_on(self, era: Era, backup: Backup) -> None:
        """Write on until what the backup has not is acknowledged, and something that it has is gone from the store."""
        await era.flows(GOES_ON)
        deadline = time.monotonic() + GOES_ON_SECONDS
        # Some are gone: the copy needs what the store has not any more.
        while not backup.objects - files(self._stage.store).keys():
            assert time.monotonic() < deadline, f"nothing is deleted from the store in {GOES_ON_SECONDS:g} s"
            await asyncio.sleep(0.1)

    def _restore(self, era: Era, backup: Backup) -> None:
        begun = time.monotonic()
        restore = Restore(self._stage, era, backup, self._options.directory / f"restored-{era.topic}")
        try:
            reading = restore.play()
        finally:
            self._report.broken += [f"{era.topic}, restored: {text}" for text in restore.wrong]
        self._restored.append((era, reading))
        self._report.restores += 1
        self._report.brought_back += restore.brought_back
        self._console.print(f"restore {self._report.restores} took {time.monotonic() - begun:.1f} s")

    def _end(self) -> None:
        """What was restored is what it was, after all that came since."""
        for era, reading in self._restored:
            found = read(self._stage.bootstrap, era.topic, self._options.directory / f"end-{era.topic}")
            if found.everything.values != reading.everything.values:
                self._report.broken.append(f"{era.topic} is not in the end what it was after its restore")

    async def _lie(self, era: Era) -> None:
        found, absent = await all_lies(self._stage, era.journal, self._options.directory / "lies")
        self._report.controls = found
        self._report.skipped |= absent
        self._report.negative_control_flagged = all(found.values())
        self._report.broken += [
            f"the checks find nothing wrong with {name}" for name, seen in found.items() if not seen
        ]

    def _count(self, verdict: Verdict) -> None:
        report = self._report
        report.records += verdict.records_checked
        report.transactions += verdict.transactions_checked
        report.lost += verdict.records_lost
        report.doubled += verdict.records_doubled
        report.reordered += verdict.records_reordered
        report.torn += verdict.transactions_torn


async def run(options: Options, console: Console) -> Report:
    """One run, to its report. Raises RuntimeError or CommandError if it cannot begin."""
    report = Report(seed=options.seed, seconds=0.0, agents=options.agents)
    begun = time.monotonic()
    async with set_up(options.directory, options.agents) as stage:
        console.print(f"seed {options.seed}; all are ready after {time.monotonic() - begun:.1f} s")
        try:
            await Run(stage, options, report, console).play()
        except (AssertionError, CommandError) as error:
            report.broken.append(f"{type(error).__name__}: {error}")
        if report.broken:
            _keep(options.directory, console)
    report.seconds = round(time.monotonic() - begun, 1)
    return report


def _keep(directory: Path, console: Console) -> None:
    """What members have logged and clients were told, out of the directory, which is about to go."""
    shutil.rmtree(KEPT, ignore_errors=True)
    shutil.copytree(directory / "cluster" / "logs", KEPT / "logs")
    for one in directory.glob("era-*"):
        shutil.copytree(one, KEPT / one.name)
    console.print(f"what members have logged and clients were told is in {KEPT}")


def parse(arguments: Sequence[str]) -> tuple[Options, Path]:
    """The options, without a directory, and where the figures go. Exits with 2 where they are none."""
    parser = argparse.ArgumentParser(prog="python -m tests.cuts.run", description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT, help="kills, default %(default)s")
    parser.add_argument("--seed", type=int, help="of the order of the windows; drawn by default")
    parser.add_argument("--agents", type=int, default=AGENTS, help="default %(default)s")
    parser.add_argument("--restores", type=int, help=f"default: one for each {CUTS_AN_ERA} kills")
    parser.add_argument("--no-power", action="store_true", help="cut no power, also where it can be")
    parser.add_argument(
        "--quick", action="store_true", help="no collection and no sweep is waited for, in the end neither"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="figures, default %(default)s")
    told = parser.parse_args(arguments)
    if told.count < 1 or not 1 <= told.agents <= 9:
        parser.error("--count: at least 1; --agents: 1 to 9")
    seed = random.SystemRandom().getrandbits(32) if told.seed is None else told.seed
    restores = told.count // CUTS_AN_ERA if told.restores is None else told.restores
    return Options(told.count, seed, told.agents, restores, Path(), not told.no_power, told.quick), told.out


def main(arguments: Sequence[str]) -> int:
    """The command: exit code 0 where every promise was kept, 1 where one was broken, 3 where nothing can be killed."""
    options, out = parse(arguments)
    # Others on the machine may be given a port that a member has chosen and does not listen on yet.
    own_network.enter()
    exit_on_sigterm()
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if reason := why_no_shim():
        console.print(f"skipped: {reason}")
        return 3
    with tempfile.TemporaryDirectory(prefix="pidkeeper-cuts-", dir=fast_directory()) as name:
        with contextlib.suppress(OSError):
            # Whoever makes a namespace meanwhile would keep disks alive whose power is gone.
            leave_mounts()
        report = asyncio.run(run(msgspec.structs.replace(options, directory=Path(name)), console))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2))
    print_report(report, Console(highlight=False, soft_wrap=True))
    if report.broken:
        print(f"play it again: make cuts COUNT={options.count} SEED={options.seed}")
    return 1 if report.broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
