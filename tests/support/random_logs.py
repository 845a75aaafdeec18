"""Partition logs of a random history: clients write, agents roll, logs lose their beginning, topics come and go."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.logs.partition_log import PartitionLog
from pidkeeper.protocol.errors import ErrorCode
from tests.support.log_state import drop, end, init, join, log_of, topic
from tests.support.rolled_logs import roll
from tests.support.sound_logs import IDS, SoundLogs, data

STEPS: Final = 120
APPS: Final = ("app", "job")


class RandomLogs(SoundLogs):
    """One for each seed. `snapshot` keeps the two newest; what no log needs may be gone from `objects`."""

    def __init__(self, seed: int, steps: int = STEPS) -> None:
        super().__init__()
        self._rng = random.Random(seed)
        self._sequences: dict[tuple[int, int, int], int] = {}
        for broker_id in (1, 2):
            self.ask(requests.AllocateProducerIds(broker_id, self.epochs[broker_id]))
        for name in ("a", "b"):
            self.ask(topic(name, 2))
        self._pairs = {name: self._pair(name) for name in APPS}
        self._joined: dict[str, set[int]] = {name: set() for name in APPS}
        actions = self._actions()
        self.snapshot()
        for _ in range(steps):
            weights = [weight for weight, _ in actions]
            self._rng.choices([action for _, action in actions], weights)[0]()

    def _actions(self) -> list[tuple[int, Callable[[], None]]]:
        """What may happen, and how often beside the others."""
        return [
            (12, self._write),
            (10, self._write_in_transaction),
            (4, self._end),
            (1, self._renew),
            (6, self._roll),
            (1, self._delete_records),
            (1, self._replace_topic),
            (1, self._collect),
            (1, self.snapshot),
        ]

    def snapshot(self) -> None:
        super().snapshot()
        self.images = self.images[-2:]

    def _any_log(self) -> PartitionLog:
        return log_of(self.machine, self._rng.choice(self.machine.logs.numbers()))

    def _pair(self, name: str) -> tuple[int, int]:
        answer = self.ask(init(name))
        return answer.producer_id, answer.producer_epoch

    def _append(self, log: int, pair: tuple[int, int], *, transactional: bool = False) -> None:
        place, records = (log, *pair), self._rng.randint(1, 3)
        sequence = self._sequences.get(place, 0) if pair[0] >= 0 else -1
        self.commit(self._rng.choice((1, 2)), (log, data(pair, sequence, records, transactional)))
        self._sequences[place] = sequence + records

    def _write(self) -> None:
        self._append(self._any_log().number, self._rng.choice([(0, 0), (1, 0), (IDS, 0), (-1, -1)]))

    def _write_in_transaction(self) -> None:
        name, log = self._rng.choice(APPS), self._any_log()
        if log.number not in self._joined[name]:
            answer = self.ask(join(name, self._pairs[name], log.topic.name, log.partition))
            assert not isinstance(answer, ErrorCode), answer
            self._joined[name].add(log.number)
        self._append(log.number, self._pairs[name], transactional=True)

    def _end(self) -> None:
        name = self._rng.choice(APPS)
        self.ask(end(name, self._pairs[name], committed=self._rng.random() < 0.4))
        self._joined[name].clear()

    def _renew(self) -> None:
        """Another instance of the application: what the one before had under way is aborted."""
        name = self._rng.choice(APPS)
        self._pairs[name] = self._pair(name)
        self._joined[name].clear()

    def _roll(self) -> None:
        log = self._any_log()
        bases = [log.tail_start, *(one.base_offset for one in log.segments)]
        ends = [one.base_offset + one.records for one in log.batches_from(0, 1 << 62, 1 << 20)]
        ends += [one.offset + 1 for one in log.markers_from(0, 1 << 62, 1 << 20)]
        spans = [(base, end) for base in bases for end in ends if log.covered(base, end)]
        if spans:
            base, reach = self._rng.choice(spans)
            roll(self, log.number, reach, base_offset=base)

    def _delete_records(self) -> None:
        log = self._any_log()
        asked = requests.DeleteRecords((1, self.epochs[1]), ((log.number, self._rng.randint(log.start, log.end)),))
        self.ask(asked)

    def _replace_topic(self) -> None:
        gone = self.machine.logs.topics.get("b")
        if gone is None or self._rng.random() < 0.5:
            self.ask(drop("b"))
            for joined in self._joined.values():
                joined.difference_update([] if gone is None else gone.logs)
        if self.machine.logs.topics.get("b") is None:
            self.ask(topic("b", 2, len(self.entries)))

    def _collect(self) -> None:
        """Objects that no log needs are deleted from the store, before or after the quorum forgets them."""
        objects = self.machine.logs.objects
        keys = objects.collectable(1000)
        for name in [name for key in keys for name in objects.names(key)]:
            del self.objects[name]
        if keys:
            self.ask(requests.ObjectsDeleted((1, self.epochs[1]), tuple(keys)))


def behind(made: SoundLogs, entries: int) -> SoundLogs:
    """The same as a member has it that lags by so many entries."""
    other: Any = SoundLogs.__new__(SoundLogs)
    other.__dict__.update(made.__dict__)
    other.entries = made.entries[: len(made.entries) - entries]
    other.images = [image for image in made.images if image.index <= len(other.entries)]
    return other if other.images else made
