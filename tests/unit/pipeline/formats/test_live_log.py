"""A log that is written, and loses segments, while it is read."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import BinaryIO

import pytest

from pidkeeper.controller.raft.messages import Entry
from pidkeeper.pipeline.formats.problems import CORRUPT
from pidkeeper.pipeline.formats.write_ahead_log import LogDirectory, read_entries, survey_log
from tests.support.log_builder import WAL, entries, hard_state, new_disk, open_log, segments
from tests.support.memory_files import MemoryFiles


def written(count: int, segment_bytes: int) -> MemoryFiles:
    files = new_disk()
    log, _ = open_log(files, segment_bytes)
    log.append([], hard_state())
    for index in range(1, count + 1):
        log.append(entries(index, index), None)
    return files


class Changing(io.BytesIO):
    """A file of which the first reading of a place sees other bytes than the next ones."""

    def __init__(self, first: bytes, then: bytes) -> None:
        super().__init__(first)
        self._then = then

    def read(self, size: int | None = -1, /) -> bytes:
        at = self.tell()
        found = super().read(size)
        self.seek(0)
        self.truncate()
        self.write(self._then)
        self.seek(at + len(found))
        return found


def indexes(log: LogDirectory) -> tuple[list[int], list[str]]:
    survey = survey_log(log)
    found = [one.index for one in read_entries(survey, {}) if not hasattr(one, "kind")]
    return found, [problem.kind for problem in survey.problems]


@pytest.mark.parametrize("late", [2, 5, 9])
def test_a_batch_that_is_seen_after_a_later_one_is_whole(late: int) -> None:
    files = written(10, 4096)
    (name,) = segments(files)
    content = files.read_bytes(WAL / name)
    survey = survey_log(LogDirectory([name], lambda _: io.BytesIO(content)))
    # A frame stands behind the head of its batch; the next batch begins where that of the next entry does.
    start, end = (survey.entries[number].position - 24 for number in (late - 1, late))
    torn = content[:start] + bytes(end - start) + content[end:]

    def opened(_: str) -> BinaryIO:
        return Changing(torn, content)

    assert indexes(LogDirectory([name], lambda _: io.BytesIO(torn))) == (list(range(1, late)), [CORRUPT])
    assert indexes(LogDirectory([name], opened)) == (list(range(1, 11)), [])


def losing(files: MemoryFiles, names: list[str], when: Callable[[str, int], bool]) -> LogDirectory:
    """`when`: whether the file is gone when a file is opened, the how manieth."""
    opened: list[str] = []

    def open_file(name: str) -> BinaryIO:
        opened.append(name)
        if when(name, len(opened)):
            raise FileNotFoundError(2, "No such file or directory", name)
        return io.BytesIO(files.read_bytes(WAL / name))

    return LogDirectory(names, open_file)


@pytest.mark.parametrize("lost", [1, 2, 3])
@pytest.mark.parametrize("at", [1, 2, 3, 4, 5, 6])
def test_segments_that_go_away_meanwhile_are_superfluous(lost: int, at: int) -> None:
    files = written(60, 1024)
    names = segments(files)
    assert len(names) > 4
    survey = survey_log(losing(files, names, lambda name, number: number >= at and name in names[:lost]))
    rest = survey_log(LogDirectory(names[lost:], lambda name: io.BytesIO(files.read_bytes(WAL / name))))
    whole = survey_log(LogDirectory(names, lambda name: io.BytesIO(files.read_bytes(WAL / name))))
    assert survey.problems == []
    if survey.gone:
        assert (survey.gone, survey.entries, survey.segments) == (names[:lost], rest.entries, rest.segments)
    else:
        assert survey.entries == whole.entries
    assert survey.last_index == whole.last_index == 60


def test_a_log_that_goes_away_wholly_is_an_empty_one() -> None:
    files = written(60, 1024)
    names = segments(files)
    survey = survey_log(losing(files, names, lambda _, number: number > 3))
    assert (survey.entries, survey.problems, sorted(survey.gone)) == ([], [], names)


def test_entries_are_read_once() -> None:
    files = written(60, 1024)
    names, opened = segments(files), []

    def open_file(name: str) -> BinaryIO:
        opened.append(name)
        return io.BytesIO(files.read_bytes(WAL / name))

    survey = survey_log(LogDirectory(names, open_file))
    assert [Entry(one.term, one.index, one.payload) for one in survey.entries] == entries(1, 60)
    assert sorted(opened) == sorted([*names, *names]), "the header, and the content"
