"""The power goes at every changing call in the life of a log: nothing that was acknowledged is lost."""

from __future__ import annotations

import random

import msgspec
import pytest

from pidkeeper.controller.raft.messages import Entry, HardState
from pidkeeper.controller.storage.recovery import NO_SNAPSHOT, RecoveredLog
from pidkeeper.controller.storage.wal import WriteAheadLog
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.support.log_builder import WAL, entries, hard_state, new_disk, open_log, segments
from tests.support.memory_files import Keep, MemoryFiles, PowerCut, fail_at


class _Script:
    """Runs the life of a log; `durable` is what the finished calls left, `wanted` what the running one will leave."""

    def __init__(self, files: MemoryFiles) -> None:
        self.files = files
        self.durable = RecoveredLog(HardState(recovering=True), NO_SNAPSHOT, [], None, False)
        self.wanted = self.durable
        self.keep_from = 1
        self.log: WriteAheadLog | None = None

    def run(self) -> None:
        self.log, _ = open_log(self.files)
        self.append(entries(1, 3), hard_state())
        self.log.prepare_next()
        for index in range(4, 24):
            self.append(entries(index, index), hard_state(commit=index - 2) if index % 5 == 0 else None)
        self.append(entries(20, 21, term=2), hard_state(term=2, commit=19))
        for index in range(22, 40):
            self.append(entries(index, index, term=2), None)
        self.compact(30)
        self.append([], hard_state(term=2, commit=38))
        self.restart(SnapshotId(50, 3), HardState(term=3, commit=50))
        self.append(entries(51, 70, term=3), None)
        self.append(entries(71, 90, term=3), None)
        self.compact(80)
        self.log.close()

    def append(self, new: list[Entry], state: HardState | None) -> None:
        assert self.log is not None
        kept = [entry for entry in self.durable.entries if not new or entry.index < new[0].index]
        self.wanted = msgspec.structs.replace(
            self.durable, entries=kept + new, hard_state=state or self.durable.hard_state
        )
        self.log.append(new, state)
        self.durable = self.wanted

    def restart(self, snapshot: SnapshotId, state: HardState) -> None:
        assert self.log is not None
        self.wanted = RecoveredLog(state, snapshot, [], None, False)
        self.log.restart_at(snapshot, state)
        self.durable = self.wanted

    def compact(self, keep_from: int) -> None:
        assert self.log is not None
        self.keep_from = keep_from
        self.log.compact(keep_from)

    def accepts(self, found: RecoveredLog) -> bool:
        return self._matches(found, self.durable) or self._matches(found, self.wanted)

    def _matches(self, found: RecoveredLog, expected: RecoveredLog) -> bool:
        first = found.entries[0].index if found.entries else 0
        return (
            found.hard_state == expected.hard_state
            and found.snapshot == expected.snapshot
            and found.entries == [entry for entry in expected.entries if entry.index >= first]
            and bool(found.entries) == bool(expected.entries)
            and (not found.entries or expected.entries[0].index == first or first <= self.keep_from)
        )


def _keeps(seed: int) -> list[Keep]:
    chance = random.Random(seed)
    return [
        lambda kind, path: False,
        lambda kind, path: True,
        lambda kind, path: kind == "pwrite",
        lambda kind, path: kind != "pwrite",
        lambda kind, path: chance.random() < 0.5,
        lambda kind, path: chance.random() < 0.5,
    ]


def test_power_cut_at_every_call_loses_nothing_that_was_acknowledged() -> None:
    whole = _Script(new_disk())
    whole.run()
    cuts = 0
    for call in range(len(whole.files.calls)):
        script = _Script(new_disk())
        script.files.before = fail_at(call, PowerCut())
        with pytest.raises(PowerCut):
            script.run()
        for keep in _keeps(call):
            disk = script.files.cut_power(keep)
            log, recovered = open_log(disk)
            assert script.accepts(recovered), (call, recovered, script.durable)
            _, again = open_log(disk.cut_power())
            assert (again.entries, again.hard_state) == (recovered.entries, recovered.hard_state)
            log.append(
                entries(log.next_index, log.next_index, term=9), HardState(term=9, commit=again.hard_state.commit)
            )
            cuts += 1
    assert cuts > 600


def test_power_cut_while_opening_loses_nothing() -> None:
    script = _Script(new_disk())
    script.files.before = fail_at(120, PowerCut())
    with pytest.raises(PowerCut):
        script.run()
    disk = script.files.cut_power()
    # A torn last batch makes opening do all that it can do.
    name = segments(disk)[-1]
    content = disk.read_bytes(WAL / name)
    used = len(content.rstrip(b"\0"))
    disk.replace_content(WAL / name, content[: used - 5].ljust(len(content), b"\0"))
    probe = disk.copy()
    expected = open_log(probe)[1]
    assert expected.truncated is not None
    for call in range(len(probe.calls)):
        for keep in _keeps(call):
            crashing = disk.copy()
            crashing.before = fail_at(call, PowerCut())
            with pytest.raises(PowerCut):
                open_log(crashing)
            _, recovered = open_log(crashing.cut_power(keep))
            assert recovered.entries == expected.entries
            assert recovered.hard_state == expected.hard_state
