"""Planted lies: what the checks of a run must find, or they prove nothing."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from pathlib import Path
from typing import Final

from pidkeeper.protocol.logs import ObjectId
from tests.chaos.controls import planted
from tests.chaos.copies import AbsentError, Copy
from tests.chaos.load.journal import entries
from tests.chaos.record_lies import RECORD_LIES, edit_final, hasty_agent
from tests.cuts.offsets import holes
from tests.cuts.stage import Stage
from tests.cuts.storage import difference, kept

SKIPPED_OFFSETS: Final = 7


async def all_lies(stage: Stage, journal: Path, scratch: Path) -> tuple[dict[str, bool], dict[str, str]]:
    """Whether each was found, and which the run had no room for. `journal`: of an era; `scratch`: made anew.

    Nobody may write meanwhile.
    """
    await asyncio.to_thread(scratch.mkdir)
    hasty = await hasty_agent(scratch)
    found, absent = {hasty.name: hasty.flagged}, {}
    for lie in RECORD_LIES:
        try:
            found[lie.__name__] = planted(lie, journal, scratch).flagged
        except AbsentError as error:
            absent[f"lie {lie.__name__}"] = str(error)
    found["offsets that nobody has"] = _hole(journal, scratch / "hole")
    return found | _store_lies(stage), absent


def _hole(journal: Path, copied: Path) -> bool:
    shutil.copytree(journal, copied)
    edit_final(Copy(copied), lambda read: [[offset + SKIPPED_OFFSETS * (offset > 0), value] for offset, value in read])
    return bool(holes(entries(copied)))


def _store_lies(stage: Stage) -> dict[str, bool]:
    """An object that no log needs, and one that is away, in the store itself for a moment."""
    needed = stage.store / min(kept(stage.leader()))
    stray = stage.store / ObjectId(1, 0, 0).path(uuid.UUID(int=1))
    stray.parent.mkdir(parents=True)
    stray.touch()
    away = needed.with_name(f"~{needed.name}")
    needed.rename(away)
    try:
        seen = difference(stage)
    finally:
        away.rename(needed)
        stray.unlink()
    return {
        "an orphan": str(stray.relative_to(stage.store)) in seen.orphans,
        "a missing object": seen.missing == [str(needed.relative_to(stage.store))],
    }
