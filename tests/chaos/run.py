"""`python -m tests.chaos.run`: faults of all kinds in a cluster of real processes under load, and what came of it.

Writes build/chaos.json and build/chaos.svg, prints a table, and ends with 1 if any promise was broken. Everything that
was asked and answered stays in the directory that it names; `python -m tests.chaos.checker` judges it again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import shutil
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console

from pidkeeper.cli.failures import CommandError
from tests.chaos import against, own_network, timeline
from tests.chaos.checker import Verdict, check
from tests.chaos.controls import all_controls
from tests.chaos.coordinators import Coordinators
from tests.chaos.copies import Control
from tests.chaos.course import Course, Happened
from tests.chaos.elections import Elections
from tests.chaos.figures import leader_gaps, quantile, recoveries, tallies
from tests.chaos.judgement import failed_claims, served, voter_changes
from tests.chaos.kinds import ALL, draws, possible
from tests.chaos.ledgers import LedgerKeeper
from tests.chaos.load.crew import DEFAULT_QUOTA, QUOTA, at_work, crew
from tests.chaos.load.journal import Entry, entries
from tests.chaos.narrator import Narrator
from tests.chaos.plan import draw_plan
from tests.chaos.report import Gap, Report, delays, print_report, promises
from tests.chaos.resources import Verdict as Resources
from tests.chaos.resources import judge, members_of
from tests.chaos.setting import found, set_up
from tests.chaos.stage import Stage
from tests.chaos.timeline import Elected
from tests.chaos.watched import watched

OUT: Final = Path("build/chaos.json")
KEPT: Final = Path("build/chaos")
MARK: Final = "of-a-chaos-run"
"""The file by which the directory of a run is known: what is in it goes with the next one."""

MINUTES: Final = 10.0
ACTS_PER_MINUTE: Final = 30
"""More than can be played: a plan must not end before its time."""

THREADS: Final = 64

WARM_UP_SECONDS: Final = 240.0
"""Under 50 blocks a second a controller took 5 MB more in its first three and a half minutes, none in the sixth."""
JUDGED_MINUTES: Final = 5.0
"""Whether what a process takes grows is judged by so many minutes of its lives, warm-ups aside: a fault at the end of a
single life looks like a leak. So runs of few minutes judge nobody."""

CALM_FROM_MINUTES: Final = 30.0
CALM_SHARE: Final = 1 / 6
"""Of a run that long or longer, for which the load goes on when the faults are over: voters are killed too often before
to live as long as they are judged by."""

FIRST_IDS_SECONDS: Final = 2.0
"""Of load on a cluster that is whole, before the first fault."""


class Options(msgspec.Struct, frozen=True):
    """What the command line says. `directory`: for the cluster and all that is kept; it is made anew. `against`: the
    cluster.json of one that somebody else runs, in the place of one of our own.
    """

    minutes: float
    seed: int
    directory: Path
    out: Path
    against: Path | None = None


class Played(msgspec.Struct, frozen=True):
    """What happened on the stage. Times are of `time.monotonic`; `broken`: what ended it before its time, in words."""

    begun: float
    ended: float
    happened: list[Happened]
    elected: list[Elected]
    resources: list[Resources]
    missing: dict[str, str]
    proxy: str
    broken: list[str]


async def run(options: Options, narrator: Narrator) -> Report:
    """One run in a directory made anew, to its report. Raises CommandError or RuntimeError if it cannot begin."""
    # What asks members waits on threads, for those who do not answer too.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    make_anew(options.directory)
    journal = options.directory / "journal"
    narrator.say(f"seed {options.seed}; setting up {options.against or options.directory}")
    async with set_up(options.directory) if options.against is None else found(options.against) as stage:
        keeper = LedgerKeeper(stage.cluster, journal)
        played = await _play(stage, journal, keeper, options, narrator)
        try:
            await asyncio.to_thread(keeper.finish)
        except (AssertionError, CommandError) as error:
            played.broken.append(f"the members' histories cannot be had: {error}")
    narrator.say("checking what everybody was told")
    verdict = await asyncio.to_thread(check, journal)
    controls, absent = await all_controls(journal, options.directory / "controls")
    played = msgspec.structs.replace(played, missing=played.missing | absent)
    told = list(entries(journal))
    picture = options.out.with_suffix(".svg")
    timeline.draw(picture, played.happened, served(told), played.elected, played.begun)
    return _report(options, played, verdict, controls, told)


async def _play(stage: Stage, journal: Path, keeper: LedgerKeeper, options: Options, narrator: Narrator) -> Played:
    quota = QUOTA if options.against is None else DEFAULT_QUOTA
    everybody, absent = crew(stage, journal, options.seed, quota)
    kinds, missing = possible(stage, ALL if options.against is None else against.KINDS)
    plan = draw_plan(options.seed, draws(kinds), int(options.minutes * ACTS_PER_MINUTE))
    course = Course(stage, kinds, keeper, narrator.show)
    elections, sampler = Elections(stage), members_of(stage.cluster)
    broken: list[str] = []
    begun = ended = time.monotonic()
    try:
        async with contextlib.AsyncExitStack() as beside:
            for watch in (elections.watch(), Coordinators(stage).watch(), sampler.run(), keeper.keep()):
                await beside.enter_async_context(watched(watch))
            await beside.enter_async_context(at_work(everybody))
            await asyncio.sleep(FIRST_IDS_SECONDS)
            begun = time.monotonic()
            try:
                with narrator.playing():
                    await course.play(plan, begun + options.minutes * 60)
            finally:
                ended = time.monotonic()
            if options.minutes >= CALM_FROM_MINUTES:
                narrator.say(f"load without faults for {options.minutes * CALM_SHARE:.0f} minutes: does anything grow?")
                await asyncio.sleep(options.minutes * CALM_SHARE * 60)
    except* AssertionError as group:
        broken += _told(group)
    return Played(
        begun,
        ended,
        course.happened,
        elections.seen,
        judge(sampler.lives, warm_up=WARM_UP_SECONDS, least_minutes=JUDGED_MINUTES),
        missing | absent,
        "nothing" if stage.links is None else stage.links.proxies.program,
        broken,
    )


def _told(error: BaseException) -> list[str]:
    """Each of what a group holds, in words."""
    if isinstance(error, BaseExceptionGroup):
        return [text for one in error.exceptions for text in _told(one)]
    return [str(error) or type(error).__name__]


def make_anew(directory: Path) -> None:
    """An empty directory in the place of an earlier run's. Raises CommandError if something else is there."""
    if directory.exists() and any(directory.iterdir()) and not (directory / MARK).exists():
        raise CommandError(f"{directory} is not empty, and not of an earlier run: name another --directory")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MARK).touch()


def _report(
    options: Options, played: Played, verdict: Verdict, controls: list[Control], told: Sequence[Entry]
) -> Report:
    service = served(told)
    gaps = leader_gaps(played.happened, service)
    report = Report(
        seed=options.seed,
        minutes=round((played.ended - played.begun) / 60, 2),
        faults_by_kind=tallies(played.happened),
        acts=len({one.whole for one in played.happened}),
        ids_checked=verdict.ids_checked,
        blocks_checked=verdict.blocks_checked,
        duplicates=verdict.duplicates,
        lost=verdict.lost,
        claim_errors=sum(entry.arguments["count"] for entry in failed_claims(told, played.happened)),
        fatal_client_errors=verdict.fatal_client_errors,
        fatal_errors=verdict.fatal_errors,
        records_checked=verdict.records_checked,
        transactions_checked=verdict.transactions_checked,
        records_lost=verdict.records_lost,
        records_doubled=verdict.records_doubled,
        records_reordered=verdict.records_reordered,
        transactions_torn=verdict.transactions_torn,
        copies_checked=verdict.copies_checked,
        copies_lost=verdict.copies_lost,
        copies_doubled=verdict.copies_doubled,
        copies_reordered=verdict.copies_reordered,
        commits_checked=verdict.commits_checked,
        commits_refused=verdict.commits_refused,
        commits_lost=verdict.commits_lost,
        commits_of_zombies=verdict.commits_of_zombies,
        recovery_p99_s=round(quantile(recoveries(played.happened, service), 0.99), 3),
        leader_gaps={kind: Gap.of(seconds) for kind, seconds in sorted(gaps.items())},
        elections=len(played.elected),
        voter_changes=voter_changes(told),
        negative_control_flagged=all(control.flagged for control in controls),
        controls=controls,
        resources=played.resources,
        broken=[],
        slow=[],
        missing=played.missing,
        proxy=played.proxy,
        directory=str(options.directory),
    )
    broken = [*played.broken, *verdict.violations, *promises(report)]
    return msgspec.structs.replace(report, broken=broken, slow=delays(report))


def parse(arguments: Sequence[str]) -> Options:
    """The options. Exits with 2 where they are none."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.run", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help="how long faults are injected, default %(default)s"
    )
    parser.add_argument("--seed", type=int, help="the same one injects the same faults; drawn by default")
    parser.add_argument("--directory", type=Path, default=KEPT, help="for all that is kept, default %(default)s")
    parser.add_argument("--out", type=Path, default=OUT, help="figures, default %(default)s; a picture beside it")
    parser.add_argument("--against", type=Path, metavar="CLUSTER.JSON", help="of a cluster that runs here")
    told = parser.parse_args(arguments)
    if not 0 < told.minutes <= 7 * 24 * 60:
        parser.error(f"--minutes {told.minutes:g}: more than 0, and a week at most")
    seed = random.SystemRandom().getrandbits(32) if told.seed is None else told.seed
    named = None if told.against is None else told.against.resolve()
    return Options(told.minutes, seed, told.directory.resolve(), told.out.resolve(), named)


def main(arguments: Sequence[str]) -> int:
    """The command: exit code 0 where every promise was kept, 1 where one was broken, 2 without a run, 130 on Ctrl-C."""
    options = parse(arguments)
    if options.against is None:
        own_network.enter()
    narrator = Narrator(options.minutes * 60)
    try:
        report = asyncio.run(run(options, narrator))
    except (CommandError, RuntimeError) as error:
        print(f"no run: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"stopped; what was told until then: python -m tests.chaos.checker {options.directory / 'journal'}")
        return 130
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2))
    print_report(report, Console(highlight=False, soft_wrap=True))
    print(f"figures in {options.out}, a picture beside it, all that was told in {options.directory}")
    if report.broken or report.slow:
        print(f"judge it again: python -m tests.chaos.checker {options.directory / 'journal'}")
        against = "" if options.against is None else f" AGAINST={options.against}"
        print(f"play it again: make chaos MINUTES={options.minutes:g} SEED={options.seed}{against}")
    return 1 if report.broken or report.slow else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
