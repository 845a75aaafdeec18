"""Sound histories of consumer groups beside partition logs: one that tests spoil, and random ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.groups.group import Group
from pidkeeper.protocol.group_messages import CommitOffsetsResponse, DeleteGroupResponse
from pidkeeper.protocol.groups import NO_VERSION
from tests.support.group_state import add_group, delete, delete_offsets, gather, keep, member
from tests.support.log_state import drop, end
from tests.support.random_logs import APPS, RandomLogs
from tests.support.sound_logs import IDS, SoundLogs, history

APP: Final = (2 * IDS, 0)
"""The transactional producer of `history`."""
READERS: Final = "readers"
LONE: Final = "lone"
"""A group without members."""
NAMES: Final = ("g", "h", "i")


def version(made: SoundLogs, group_id: str) -> int:
    """The offset of a group's newest record."""
    group = made.machine.groups.get(group_id)
    return NO_VERSION if group is None else group.version


def settle(made: SoundLogs, *told: tuple[str, int, int], committed: bool | None, generation: int) -> None:
    """A transaction has offsets of READERS; None: it goes on."""
    made.ask(add_group("app", APP, READERS))
    made.ask(keep(READERS, *told, who=(generation, "a", None), transaction=("app", APP)))
    if committed is not None:
        made.ask(end("app", APP, committed=committed))


def groups_history() -> SoundLogs:
    """`history`, and groups behind it; of the two newest snapshots each has offsets that are pending.

    READERS goes on at 5 in `orders-0` with a transaction that was committed, in `payments-0` nowhere with one that was
    aborted, and a third one holds 4 for `orders-1`. Its static member came again in generation 1.
    """
    made = history()
    made.ask(gather(READERS, NO_VERSION, 1, "a", member("b", "static")))
    made.ask(keep(READERS, ("orders", 0, 3), ("orders", 1, 2), who=(1, "a", None)))
    made.ask(keep(LONE, ("payments", 0, 2)))
    made.ask(gather(READERS, version(made, READERS), 1, "a", member("c", "static"), broker=2))
    settle(made, ("orders", 0, 5), committed=None, generation=1)
    made.snapshot()
    made.ask(end("app", APP))
    settle(made, ("payments", 0, 1), committed=False, generation=1)
    made.ask(gather(READERS, version(made, READERS), 2, "a"))
    settle(made, ("orders", 1, 4), committed=None, generation=2)
    made.snapshot()
    made.ask(keep(LONE, ("payments", 0, 3)))
    return made


def gone_by_right(made: SoundLogs) -> None:
    """Offsets are deleted and expire, a topic is deleted with those that are left and those that are pending in it, and
    a group. Each is to be seen in a snapshot."""
    made.ask(delete_offsets(READERS, ("orders", 1)))
    (kept,) = [kept.record_offset for _, _, kept in _group(made, LONE).committed_after()]
    made.ask(requests.ExpireOffsets(LONE, version(made, LONE), (("payments", 0, kept),)))
    made.snapshot()
    made.ask(drop("orders"))
    made.ask(end("app", APP))
    made.ask(gather(READERS, version(made, READERS), 3))
    assert isinstance(made.ask(keep(LONE, ("payments", 0, 1))), CommitOffsetsResponse)
    assert isinstance(made.ask(delete(READERS)), DeleteGroupResponse)
    made.snapshot()


def _group(made: SoundLogs, group_id: str) -> Group:
    group = made.machine.groups.get(group_id)
    assert group is not None
    return group


class RandomGroups(RandomLogs):
    """Groups that come and go while the partition logs do."""

    def _actions(self) -> list[tuple[int, Callable[[], None]]]:
        return [
            *super()._actions(),
            (5, self._gather),
            (10, self._keep),
            (10, self._keep_in_transaction),
            (2, self._forget_offsets),
            (1, self._forget_group),
        ]

    def _any_group(self) -> tuple[str, Group | None]:
        name = self._rng.choice(NAMES)
        return name, self.machine.groups.get(name)

    def _gather(self) -> None:
        """The next generation; or a static member comes again in this one."""
        name, group = self._any_group()
        known = () if group is None else group.members
        again = member(f"s{len(self.entries)}", "static")
        if any(one.instance_id for one in known) and self._rng.random() < 0.5:
            members, step = [one for one in known if one.instance_id is None] + [again], 0
        else:
            members, step = self._rng.sample([member("a"), member("b"), again], self._rng.randint(0, 3)), 1
        broker = self._rng.choice((1, 2))
        self.ask(gather(name, version(self, name), _generation(group) + step, *members, broker=broker))

    def _who(self, group: Group | None) -> tuple[int, str, str | None]:
        if group is None or not group.members:
            return -1, "", None
        one = self._rng.choice(group.members)
        return _generation(group), one.member_id, one.instance_id

    def _place(self) -> tuple[str, int, int]:
        log = self._any_log()
        return log.topic.name, log.partition, self._rng.randint(0, log.end)

    def _keep(self) -> None:
        name, group = self._any_group()
        self.ask(keep(name, self._place(), who=self._who(group)))

    def _keep_in_transaction(self) -> None:
        name, group = self._any_group()
        app = self._rng.choice(APPS)
        self.ask(add_group(app, self._pairs[app], name))
        self.ask(keep(name, self._place(), who=self._who(group), transaction=(app, self._pairs[app])))

    def _forget_offsets(self) -> None:
        name, group = self._any_group()
        rows = [] if group is None else list(group.committed_after())
        if rows and self._rng.random() < 0.5:
            topic, partition, _ = self._rng.choice(rows)
            self.ask(delete_offsets(name, (topic, partition)))
        elif group is not None:
            old = tuple((topic, partition, kept.record_offset) for topic, partition, kept in rows)
            self.ask(requests.ExpireOffsets(name, group.version, old))

    def _forget_group(self) -> None:
        name, group = self._any_group()
        if group is not None:
            self.ask(gather(name, group.version, _generation(group) + 1))
            self.ask(delete(name))


def _generation(group: Group | None) -> int:
    return 0 if group is None or group.record is None else group.record.generation
