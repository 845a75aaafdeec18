"""The rounds of a run: which windows come in which order, and one round after the other."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from pidkeeper.cli.failures import CommandError
from tests.cuts.eras import Era
from tests.cuts.stage import Stage
from tests.cuts.windows import Victim, Window, by_name

WINDOW_SECONDS: Final = 15.0
"""Within which a window comes, or it is missed: a collection comes every 4 s, a sweep every 2.5 s, of the agent whose
turn it is, and neither while a session of that one has to end first."""


class Cut(msgspec.Struct, frozen=True):
    """One kill. `hit`: whether it was in its window. `waited`, `back`: seconds until it came, and until all were whole
    and records flowed again."""

    window: str
    hit: bool
    waited: float
    back: float


class BrokenError(AssertionError):
    """The cluster did not come back, or somebody ended by himself."""


def draw(windows: Sequence[Window], count: int, seed: int) -> list[Window]:
    """`count` windows in an order by chance, each as often as the others, but for those that another one needs."""
    rng = random.Random(seed)
    acts = _acts(windows, rng)
    drawn: list[Window] = []
    while len(drawn) < count:
        drawn += next(acts)
    return drawn[:count]


def _acts(windows: Sequence[Window], rng: random.Random) -> Iterator[list[Window]]:
    while True:
        for one in rng.sample(windows, len(windows)):
            yield [one] if one.needs is None else [by_name(Victim.AGENT, one.needs), one]


async def play(stage: Stage, era: Era, window: Window) -> Cut:
    """Kill in the window, start again who died, and see that records flow. Raises BrokenError and StalledError."""
    if ended := stage.ended_by_itself():
        raise BrokenError("\n".join(ended))
    begun = time.monotonic()
    waited = stage.watch.set(window)
    try:
        struck = await asyncio.wait_for(waited, WINDOW_SECONDS)
    except TimeoutError:
        return Cut(window.full_name, False, time.monotonic() - begun, 0.0)
    killed = time.monotonic()
    try:
        await asyncio.to_thread(stage.restart, struck)
    except CommandError as error:
        raise BrokenError(f"after a kill in {window.full_name!r}: {error}") from error
    await era.flows()
    return Cut(window.full_name, struck.hit, killed - begun, time.monotonic() - killed)
