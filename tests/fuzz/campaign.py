"""Runs one target for a number of inputs, and says what came of it."""

from __future__ import annotations

import gc
import os
import re
import resource
import signal
import time
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Final, Self

import msgspec

from tests.fuzz.controller_kafka import ControllerKafkaTarget
from tests.fuzz.http_bodies import AgentHttpTarget, ControllerHttpTarget
from tests.fuzz.kafka_data import KafkaBatchesTarget, KafkaDataTarget
from tests.fuzz.kafka_requests import KafkaTarget
from tests.fuzz.mutator import Mutator
from tests.fuzz.owner_files import OwnersTarget
from tests.fuzz.peer_links import HandshakeTarget
from tests.fuzz.raft_core import CoreTarget, PeerFrameTarget
from tests.fuzz.record_batches import RecordTarget
from tests.fuzz.segment_indices import SegmentIndexTarget
from tests.fuzz.storage_files import ArchiveTarget, DumpTarget, LogTarget, SnapshotTarget
from tests.fuzz.target import StepCount, Target, Violation
from tests.fuzz.znode_data import ZnodeTarget

TARGETS: Final[dict[str, Callable[[], Target]]] = {
    "peer_frames": PeerFrameTarget,
    "handshake": HandshakeTarget,
    "raft_core": CoreTarget,
    "wal": LogTarget,
    "dump": DumpTarget,
    "snapshot": SnapshotTarget,
    "archive": ArchiveTarget,
    "owners": OwnersTarget,
    "records": RecordTarget,
    "znode": ZnodeTarget,
    "kafka": KafkaTarget,
    "kafka_data": KafkaDataTarget,
    "kafka_batches": KafkaBatchesTarget,
    "segment_index": SegmentIndexTarget,
    "controller_kafka": ControllerKafkaTarget,
    "controller_http": ControllerHttpTarget,
    "agent_http": AgentHttpTarget,
}

MAX_MEMORY_BYTES: Final = 512 * 1024 * 1024
"""Address space of a process that fuzzes: an input that claims a large array and is believed ends in MemoryError."""

MAX_GROWTH_KIB: Final = 10 * 1024
"""Resident memory that a run may gain after its warm-up."""

TRACED_EVERY: Final = 256
"""Every so many inputs one runs with its steps counted: tracing makes it twenty times slower."""

WARM_INPUTS: Final = 50
"""Of its corpus that a target is fed before any steps are counted."""

HANG_SECONDS: Final = 30
"""A backstop only: an input that is still running at the second alarm hangs."""

MAX_KEPT: Final = 20
"""Violations kept in full."""

_VARIABLE: Final = re.compile(
    r"b?'[^']*'?|b?\"[^\"]*\"?|\$[^ ]*|(?<![A-Z\d])-?\d+|\[.*\]|\w+\(.*\)|(?<=cluster ).*(?=, not)"
)


class Outcome(msgspec.Struct):
    """What became of `inputs`. `largest_share_of_steps`: in percent of the bound, over the `traced` inputs."""

    target: str
    inputs: int = 0
    refused: int = 0
    accepted: int = 0
    traced: int = 0
    largest_share_of_steps: float = 0.0
    rss_growth_kib: int = 0
    seconds: float = 0.0
    reasons: dict[str, int] = {}
    violations: list[str] = []


class Watch:
    """Raises Violation in the main thread when one input takes two alarms."""

    def __init__(self) -> None:
        self.input = 0
        self._seen = -1

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGALRM, self._alarm)
        signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS, HANG_SECONDS)
        return self

    def __exit__(self, *error: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def _alarm(self, number: int, frame: FrameType | None) -> None:
        if self._seen == self.input:
            raise Violation(f"still running after {HANG_SECONDS} s")
        self._seen = self.input


def limit_memory() -> None:
    """Bound the address space of this process for good."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))


def resident_kib() -> int:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def run(name: str, seed: str, inputs: int, found: Path | None = None) -> Outcome:
    """Feed `inputs` inputs to a new target. Inputs that found something are written into the folder `found`."""
    target = TARGETS[name]()
    mutator = Mutator(f"{seed}:{name}", target.corpus, target.assemble)
    outcome, reasons = Outcome(name), Counter[str]()
    started = time.monotonic()
    settled, resident = max(1, inputs // 4), 0
    with closing(target), Watch() as watch:
        try:
            warm_up(target)
        except Violation as violation:
            outcome.violations.append(f"an input of the corpus: {violation}")
        for number in range(inputs):
            if number == settled:
                gc.collect()
                resident = resident_kib()
            watch.input = number
            data = mutator.next()
            try:
                reason = feed_one(target, data, outcome if number % TRACED_EVERY == 0 else None)
            except Violation as violation:
                _note(outcome, data, violation, found)
                continue
            if reason is None:
                outcome.accepted += 1
            else:
                outcome.refused += 1
                reasons[reason] += 1
    gc.collect()
    outcome.rss_growth_kib = max(0, resident_kib() - resident) if inputs > 1 else 0
    if outcome.rss_growth_kib > MAX_GROWTH_KIB:
        outcome.violations.append(f"resident memory grew by {outcome.rss_growth_kib} KiB after {settled} inputs")
    outcome.inputs, outcome.seconds, outcome.reasons = inputs, time.monotonic() - started, dict(reasons)
    return outcome


def warm_up(target: Target) -> None:
    """Let the process do what it does only once, such as resolving a decoder's hints: those steps are no input's.

    Raises Violation as `feed_one`.
    """
    for parts in target.corpus[:WARM_INPUTS]:
        feed_one(target, target.assemble(parts))


def feed_one(target: Target, data: bytes, traced: Outcome | None = None) -> str | None:
    """Feed one input; the reason of its refusal, or None. Raises Violation for whatever may not happen."""
    try:
        if traced is None:
            target.feed(data)
        else:
            _feed_traced(target, data, traced)
    except Violation:
        raise
    except target.refusals as error:
        return reason_of(error)
    except Exception as error:
        raise Violation(f"{type(error).__name__}: {str(error)[:300]}") from error
    return None


def _feed_traced(target: Target, data: bytes, outcome: Outcome) -> None:
    limit = target.steps + target.steps_per_byte * len(data)
    outcome.traced += 1
    count = StepCount(limit)
    try:
        with count:
            target.feed(data)
    finally:
        share = round(100 * count.steps / limit, 1)
        outcome.largest_share_of_steps = max(outcome.largest_share_of_steps, share)


def reason_of(error: Exception) -> str:
    """The refusal without what differs from input to input."""
    return f"{type(error).__name__}: {_VARIABLE.sub('_', str(error)[:160])}"[:100]


def _note(outcome: Outcome, data: bytes, violation: Violation, found: Path | None) -> None:
    if len(outcome.violations) >= MAX_KEPT:
        outcome.violations[-1] = "and more"
        return
    name = f"{outcome.target}-{zlib.crc32(data):08x}.bin"
    outcome.violations.append(f"{name}: {violation}")
    if found is not None:
        found.mkdir(parents=True, exist_ok=True)
        (found / name).write_bytes(data)
