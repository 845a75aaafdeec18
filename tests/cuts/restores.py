"""A quorum loses all its disks and goes on from a backup, over a store that went on.

What was acknowledged after the backup is lost, by the meaning of a backup. All else is looked at here: what the backup
holds is read as it was, no ID and no name of an object is given twice, nothing of the store is deleted before an
operator says so, and what nobody needs goes afterwards.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Message, Producer

from pidkeeper.cli.local_cluster import Agent
from pidkeeper.disk.files import OsFiles, sync_tree
from tests.chaos.load.journal import entries
from tests.chaos.load.kinds import TRANSACTION
from tests.chaos.load.records_process import PARTITIONS
from tests.chaos.records import Place
from tests.cuts.backups import Backup
from tests.cuts.eras import Era
from tests.cuts.readings import Reading, differs, read, reading_of
from tests.cuts.stage import Stage
from tests.cuts.storage import difference, files, kept, settled
from tests.support.cluster import WAIT_SECONDS, config_of, labelled, pidkeeper, quorum, wait_until
from tests.support.http_calls import call

IDS: Final = 20
"""That clients get from each agent, before and after."""
SURELY_ABOVE: Final = 10**9
"""An ID that no run comes to."""
RECORDS: Final = 3
"""Written to each partition of a topic that was restored."""
HELD_LOOKS: Final = 2
"""So often the agent whose turn it is must have been told that nothing may be deleted."""
FLUSH_SECONDS: Final = 30.0


class Restore:
    """One restore, its steps in order; `wrong` has what was found, in words. `brought_back`: objects."""

    def __init__(self, stage: Stage, era: Era, backup: Backup, folder: Path) -> None:
        self._stage = stage
        self._era = era
        self._backup = backup
        self._folder = folder
        told = list(entries(era.journal))
        self._before = reading_of(told)
        self._transactions = [
            [value for _, value in one.arguments["records"]] for one in told if one.kind == TRANSACTION
        ]
        self._reads = 0
        self.brought_back = 0
        self.wrong: list[str] = []

    def play(self) -> Reading:
        """All of it; what the topic has in the end. The era's clients must have ended. Raises AssertionError and
        CommandError where the cluster does not come back."""
        stage = self._stage
        given = [one for agent in stage.cluster.layout.agents for one in _ids(agent)]
        floor = 1 + max(_highest_held(agent) for agent in stage.cluster.layout.agents)
        old = str(quorum(stage.leader())["founding_id"])
        self._lose_all()
        there = files(stage.store)
        floor = self._recover(floor)
        there |= self._bring_back()
        stage.cluster.start()
        stage.cluster.wait_ready(seconds=WAIT_SECONDS)
        new = str(quorum(stage.leader())["founding_id"])
        self._check_ids(given, floor)
        after = self._read()
        self.wrong += differs(self._before, after, self._backup.held, self._transactions)
        after = self._written_on(after)
        self._check_held(there, new)
        self._release(new, old)
        if self._read().everything.values != after.everything.values:
            self.wrong.append("records are gone with what was deleted after the release")
        return after

    def _lose_all(self) -> None:
        """Stop the agents, as an operator does before; then all controllers lose their disks."""
        cluster = self._stage.cluster
        cluster.kill(*cluster.layout.agents)
        cluster.kill(*cluster.layout.controllers)
        for one in cluster.layout.controllers:
            for path in Path(one.data_dir).iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _recover(self, floor: int) -> int:
        """Have the quorum go on from the backup, from the ID `floor` or above; from which."""
        cluster = self._stage.cluster
        member = next(one for one in cluster.layout.controllers if one.id == self._backup.member)
        shutil.copytree(self._backup.quorum, member.data_dir, dirs_exist_ok=True)
        recover = ("storage", "recover", "--config", config_of(cluster, member), "--at-least")
        known = _told(*recover, str(SURELY_ABOVE), "--dry-run")["known_next_id"]
        floor = max(floor, known)
        _told(*recover, str(floor))
        cluster.start(*cluster.layout.controllers)
        wait_until(lambda: not quorum(self._stage.leader())["reasons"], "a quorum that hands out")
        return floor

    def _bring_back(self) -> dict[str, tuple[int, int]]:
        """From what the store has kept, what the copy of the quorum needs and the old one had deleted since."""
        missing = kept(self._stage.leader()) - files(self._stage.store).keys()
        for name in sorted(missing):
            deleted = self._stage.watch.deleted / name
            if not deleted.exists():
                self.wrong.append(f"the backup needs {name}, which nobody was told to delete, and which is gone")
                continue
            target = self._stage.store / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(deleted, target)
        # As an operator does: the next power cut would take back what is not on the disk.
        sync_tree(OsFiles(), self._stage.store)
        self.brought_back = len(missing)
        return {name: found for name, found in files(self._stage.store).items() if name in missing}

    def _check_ids(self, given: list[int], floor: int) -> None:
        fresh = [one for agent in self._stage.cluster.layout.agents for one in _ids(agent)]
        if min(fresh) < floor or len({*given, *fresh}) != len(given) + len(fresh):
            self.wrong.append(f"of the IDs {sorted(fresh)} some were given before, or lie below {floor}")

    def _read(self) -> Reading:
        self._reads += 1
        return read(self._stage.bootstrap, self._era.topic, self._folder / f"read-{self._reads}")

    def _written_on(self, before: Reading) -> Reading:
        """Write to the topic: new records have the next offsets, and nothing else has changed."""
        told: dict[Place, str] = {}

        def keep(error: object, message: Message) -> None:
            partition, offset, value = message.partition(), message.offset(), message.value()
            if error is not None or partition is None or offset is None or value is None:
                self.wrong.append(f"a record is refused after a restore: {error}")
            else:
                told[Place(partition, offset)] = value.decode()

        producer = Producer({"bootstrap.servers": self._stage.bootstrap, "enable.idempotence": True, "log_level": 0})
        for number in range(RECORDS * PARTITIONS):
            partition = number % PARTITIONS
            producer.produce(self._era.topic, f"restored-{number}", partition=partition, on_delivery=keep)
        if producer.flush(FLUSH_SECONDS):
            self.wrong.append("records are not acknowledged after a restore")
        after = self._read()
        if after.everything.values != before.everything.values | told:
            self.wrong.append("a topic has other records than those of the backup and those that were written since")
        if told and len(before.everything.values | told) != len(before.everything.values) + len(told):
            self.wrong.append("an offset that the backup has was given anew")
        return after

    def _check_held(self, there: dict[str, tuple[int, int]], founding: str) -> None:
        """Nothing was deleted or changed, though it was looked for; names of objects are of the new founding."""
        stage, held = self._stage, self._stage.watch.held
        wait_until(lambda: stage.watch.held >= held + HELD_LOOKS, "an agent that is told to delete nothing")
        wait_until(lambda: any(map(_has_swept, stage.cluster.layout.agents)), "an agent that has swept the store")
        now = files(stage.store)
        if lost := sorted(name for name, found in there.items() if now.get(name) != found):
            self.wrong.append(f"{lost[0]} was deleted or changed before the release, with {len(lost) - 1} more")
        if odd := sorted(name for name in now.keys() - there.keys() if name.split("/")[1] != founding):
            self.wrong.append(f"{odd[0]} was put under a founding that is over")
        report = _told("store", "report", "--cluster", stage.cluster.directory)
        if not report["held"] or report["missing"]["objects"]:
            self.wrong.append(f"the store's report says held: {report['held']}, missing: {report['missing']}")
        if missing := difference(stage).missing:
            self.wrong.append(f"{missing[0]} is missing in the store, with {len(missing) - 1} more")

    def _release(self, new: str, old: str) -> None:
        stage = self._stage
        foundings = {new, old, *(name.split("/")[1] for name in files(stage.store))}
        named = [word for one in sorted(foundings) for word in ("--founding", one)]
        _told("store", "release", *named, "--yes", "--cluster", stage.cluster.directory)
        left = settled(stage)
        self.wrong += [f"{name} is left in the store after the release" for name in left.orphans[:1]]
        self.wrong += [f"{name} is missing in the store after the release" for name in left.missing[:1]]


def _ids(agent: Agent) -> Iterator[int]:
    for _ in range(IDS):
        answer = wait_until(lambda: _given(agent), "an ID")
        yield int(answer["producer_id"])


def _given(agent: Agent) -> dict[str, Any]:
    """Nothing while the agent has none at hand."""
    answer = call(agent.http, "POST", "/v1/init-producer-id", {})
    found: dict[str, Any] = answer.json() if answer.status == 200 else {}
    return found


def _highest_held(agent: Agent) -> int:
    return int(call(agent.http, "GET", "/v1/status").json()["highest_held"])


def _has_swept(agent: Agent) -> bool:
    return bool(labelled(agent, "pidkeeper_agent_data_sweep_age_seconds"))


def _told(*arguments: str | Path) -> dict[str, Any]:
    """The document of a command that comes to a good end."""
    done = pidkeeper(*arguments, "--output", "json")
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    found: dict[str, Any] = json.loads(done.stdout)
    return found
