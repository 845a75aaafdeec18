"""A copy of the quorum, taken while everybody goes on. The store keeps what is deleted (`watch`), as a bucket may."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from pidkeeper.cli.local_cluster import Controller
from pidkeeper.disk.files import OsFiles
from pidkeeper.snapshots.catalog import SnapshotCatalog
from tests.chaos.load.journal import entries
from tests.cuts.eras import Era
from tests.cuts.readings import Held, acknowledged
from tests.cuts.stage import Stage
from tests.cuts.storage import kept
from tests.support.cluster import WAIT_SECONDS, followers, pidkeeper, quorum, wait_until


class Backup(NamedTuple):
    """`quorum`: what is left of a member of id `member`. `held`: of the era's topic. `objects`: names that logs needed
    then."""

    member: int
    quorum: Path
    held: Held
    objects: frozenset[str]


def back_up(stage: Stage, era: Era, folder: Path, *, whole: bool) -> Backup:
    """Copy it to a new `folder`. `whole`: the directory of a member that is stopped for it; else the newest snapshot of
    one that runs, as `storage backup` copies it. Raises CommandError and AssertionError."""
    member = followers(stage.cluster, stage.leader())[0]
    held = (_stopped if whole else _snapshot)(stage, era, member, folder)
    return Backup(member.id, folder, held, frozenset(kept(stage.leader())))


def _stopped(stage: Stage, era: Era, member: Controller, target: Path) -> Held:
    told = acknowledged(entries(era.journal))
    committed = quorum(stage.leader())["commit_index"]
    wait_until(lambda: quorum(member)["applied_index"] >= committed, f"member {member.id} to catch up")
    stage.cluster.kill(member)
    shutil.copytree(member.data_dir, target)
    stage.cluster.start(member)
    stage.cluster.wait_ready(member, seconds=WAIT_SECONDS)
    return Held({}, told)


def _snapshot(stage: Stage, era: Era, member: Controller, target: Path) -> Held:
    """Once the newest snapshot knows the topic."""
    cluster_id = stage.cluster.layout.cluster_id

    def made() -> dict[int, int]:
        shutil.rmtree(target, ignore_errors=True)
        done = pidkeeper("storage", "backup", "--dir", member.data_dir, "--to", target)
        return _ends(target, cluster_id, era.topic) if done.returncode == 0 else {}

    return Held(wait_until(made, f"a snapshot that knows {era.topic}"), frozenset())


def _ends(copied: Path, cluster_id: str, topic: str) -> dict[int, int]:
    """Of the topic's logs, in the snapshot of a copy; nothing if it does not know the topic."""
    newest = SnapshotCatalog(OsFiles(), copied / "snapshots", cluster_id).newest()
    assert newest is not None, f"{copied} has a snapshot"
    logs = newest[1].logs
    known = [] if logs is None else [one for one in logs.topics if one.name == topic]
    if logs is None or not known:
        return {}
    ends = {one.number: one.end for one in logs.logs}
    return {place: ends[number] for place, number in enumerate(known[0].logs)}
