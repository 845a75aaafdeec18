"""A slice of the fuzzing with a fresh seed, the inputs that once found something, and controls that find planted bugs.

`python -m tests.fuzz.run` feeds millions.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec
import pytest

from pidkeeper.controller.storage.owner_archive import OwnerArchive
from pidkeeper.snapshots import snapshot_format
from pidkeeper.snapshots.owner_format import Owner
from tests.fuzz.campaign import MAX_GROWTH_KIB, TARGETS, Outcome, Watch, feed_one, limit_memory, run, warm_up
from tests.fuzz.http_bodies import ControllerHttpTarget
from tests.fuzz.mutator import Mutator, Parts
from tests.fuzz.run import run_all
from tests.fuzz.storage_files import ReadOnlyFiles, SnapshotTarget
from tests.fuzz.target import StepCount, Target, Violation

PINNED: Final = Path(__file__).with_name("pinned")
SLICE: Final = 100_000
DEEP: Final = 20_000
"""Deeper than every Python lets C code nest: 3.13 takes 5000 without a word."""


@pytest.fixture(autouse=True, scope="module")
def _loggers() -> Iterator[None]:
    """The HTTP targets silence these; the tests of other files listen to them."""
    loggers = [logging.getLogger(name) for name in ("aiohttp", "pidkeeper")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def test_no_decoder_does_what_no_input_may_make_it_do() -> None:
    seed = secrets.randbelow(2**40)
    report = run_all(list(TARGETS), SLICE, seed, jobs=1)
    replay = f"python -m tests.fuzz.run --inputs {SLICE} --seed {seed}"
    print(f"{replay}: {report.malformed} malformed inputs")
    assert not report.violations, f"found by `{replay}`:\n" + "\n".join(report.violations)
    for outcome in report.targets:
        assert outcome.refused > outcome.inputs // 3, f"{outcome.target}: too few of {outcome.inputs} are malformed"
        assert outcome.accepted > 0, f"{outcome.target}: none of {outcome.inputs} gets past the decoder"
        assert outcome.traced > 0, f"{outcome.target}: no steps were counted"


def pinned() -> list[str]:
    """The names in index.txt, which has a line for every file."""
    lines = (PINNED / "index.txt").read_text(encoding="utf-8").splitlines()
    names = [line.split()[0] for line in lines if line and not line.startswith("#")]
    assert sorted(names) == sorted(path.name for path in PINNED.glob("*.bin")), f"{PINNED}: index and files differ"
    return names


@pytest.mark.parametrize("name", pinned())
def test_a_pinned_input_stays_harmless(name: str) -> None:
    target = TARGETS[name.split("-", maxsplit=1)[0]]()
    with closing(target), Watch():
        warm_up(target)
        assert feed_one(target, (PINNED / name).read_bytes(), Outcome(name)) is not None


@pytest.mark.parametrize("name", ["peer_frames", "raft_core", "wal", "records", "kafka"])
def test_a_seed_makes_the_same_inputs_again(name: str) -> None:
    first, second = (run(name, "again", 500) for _ in range(2))
    assert (first.refused, first.accepted, first.reasons) == (second.refused, second.accepted, second.reasons)


@pytest.mark.parametrize("name", [name for name in TARGETS if name not in {"raft_core", "handshake"}])
def test_the_corpus_holds_inputs_that_are_accepted(name: str) -> None:
    with closing(TARGETS[name]()) as target:
        accepted = sum(feed_one(target, target.assemble(parts)) is None for parts in target.corpus[:50])
    assert accepted > 0


def test_every_call_of_the_controller_is_taken_at_least_once() -> None:
    with closing(ControllerHttpTarget()) as target:
        taken = {
            target.template_of(parts[0]) for parts in target.corpus if feed_one(target, target.assemble(parts)) is None
        }
        untaken = target.calls() - taken
    assert not untaken, f"no valid input for {sorted(untaken)}"


class Planted(Target):
    """A target whose decoder is given."""

    name = "planted"
    refusals = (ValueError,)
    corpus: Sequence[Parts] = [(b"one",), (b"another",)]
    steps = 100
    steps_per_byte = 10

    def __init__(self, decoder: Callable[[bytes], object]) -> None:
        self._decoder = decoder

    def assemble(self, parts: Parts) -> bytes:
        return b"".join(parts)

    def feed(self, data: bytes) -> None:
        self._decoder(data)


def violations(monkeypatch: pytest.MonkeyPatch, decoder: Callable[[bytes], object], inputs: int = 200) -> str:
    monkeypatch.setitem(TARGETS, "planted", lambda: Planted(decoder))
    return "\n".join(run("planted", "seed", inputs).violations)


def test_control_an_undocumented_error_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "IndexError" in violations(monkeypatch, lambda data: data[4])
    assert violations(monkeypatch, lambda data: int(data[:0] or b"x")) == ""


def test_control_a_loop_is_found_by_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(data: bytes) -> None:
        for _ in range(5000):
            data = data[:-1]

    assert "more than" in violations(monkeypatch, slow)
    with StepCount(20_000) as count:
        slow(b"")
    assert count.steps > 5000


def test_lines_of_finalizers_that_the_collector_would_run_do_not_count() -> None:
    """What earlier targets left behind is collected at some allocation, which may be within an input."""
    ended: list[bool] = []

    class Costly:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            for number in range(1000):
                ended[:] = [number == 999]

    thresholds = gc.get_threshold()
    gc.collect()
    Costly()
    gc.set_threshold(1000)
    try:
        with StepCount(100_000) as count:
            kept = list(map(list, ["a"] * 5000))
    finally:
        gc.set_threshold(*thresholds)
    assert len(kept) == 5000
    assert count.steps < 1000
    gc.collect()
    assert ended == [True], "it was garbage, and the collector works again"


def test_control_growth_is_found() -> None:
    """In a process of its own, as in a run: one that freed much before would put all that is kept where that was."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        kept_kib, found = pool.apply(keep_every_input)
    assert kept_kib > MAX_GROWTH_KIB
    assert "resident memory grew" in found


def keep_every_input() -> tuple[int, str]:
    """What a decoder kept that lets nothing go, in KiB, and the violations."""
    kept: list[bytes] = []
    TARGETS["planted"] = lambda: Planted(lambda data: kept.append(bytes(range(256)) * 1024))
    found = run("planted", "seed", 200).violations
    return len(kept) * 256, "\n".join(found)


def test_control_a_believed_array_length_is_found_under_the_memory_limit() -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(1, initializer=limit_memory) as pool:
        assert "MemoryError" in pool.apply(believe_a_length)


def believe_a_length() -> str:
    """Feed an array of 2^32 - 1 elements to a decoder that believes it."""
    target = Planted(lambda data: [None] * int.from_bytes(data[1:5], "big"))
    try:
        feed_one(target, b"\xdd\xff\xff\xff\xff")
    except Violation as violation:
        return str(violation)
    return "accepted"


def test_control_an_uncaught_recursion_error_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(data: bytes, name: str, cluster_id: str | None) -> object:
        return msgspec.msgpack.Decoder(snapshot_format._Version).decode(data[100:-4])

    monkeypatch.setattr("tests.fuzz.storage_files.decode_snapshot", decode)
    target = SnapshotTarget()
    header = target.corpus[0][0]
    with pytest.raises(Violation, match="RecursionError"):
        feed_one(target, target.assemble((header, b"\x82\xa1x" + b"\x91" * DEEP)))


def test_control_a_merge_that_leaves_names_where_they_were_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.owner_files.moved", lambda rows, by: rows)
    assert "were merged" in "\n".join(run("owners", "seed", 500).violations)


def test_control_a_search_that_passes_by_its_row_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    search = OwnerArchive._first_from

    def late(self: OwnerArchive, producer_id: int, handle: int, rows: int) -> Owner:
        return search(self, min(producer_id + 1, _last_id(self)), handle, rows)

    monkeypatch.setattr(OwnerArchive, "_first_from", late)
    assert "was found for ID" in "\n".join(run("owners", "seed", 500).violations)


def _last_id(archive: OwnerArchive) -> int:
    return archive._known[-1].last


def test_control_a_write_to_damaged_files_is_found() -> None:
    with pytest.raises(Violation, match="called unlink"):
        ReadOnlyFiles({}).unlink("x")


def test_mutants_differ_from_what_they_are_made_of() -> None:
    corpus = [(b"abcdefgh" * 4, b"12345678" * 4)]
    mutator = Mutator("seed", corpus, b"".join)
    made = [mutator.next() for _ in range(2000)]
    assert len(set(made)) > 1300
    assert sum(data == b"".join(corpus[0]) for data in made) < 100
