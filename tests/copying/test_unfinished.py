"""A course that comes to no end is told as wrong, with what is known of it, and those beside it are not lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.copying.course import PARTITIONS, Course, Size
from tests.copying.endings import Endings
from tests.copying.reading import Level
from tests.copying.run import Copies

SIZE = Size(messages=2, copiers=1, at_copiers=(), at_servers=0)


class _Nobody(NamedTuple):
    """Nothing serves there."""

    bootstrap: str = "127.0.0.1:1"
    faults: Mapping[str, Callable[[], None]] = {}


class _Interrupted(Course):
    """Its copies are those of which `copies` has as many in each partition; None: they cannot be read."""

    copies: int | None = None

    def write_source(self) -> None:
        raise AssertionError("nobody serves")

    def found(self, level: Level = "read_committed") -> list[list[str]]:
        if self.copies is None:
            raise AssertionError("nothing is read")
        return [one[: self.copies] for one in self.source]

    def committed(self, *, stable: bool = True) -> list[int]:
        return [self.copies or 0] * PARTITIONS


def test_one_that_cannot_be_judged(tmp_path: Path) -> None:
    copied = _interrupted(tmp_path).copied()
    assert copied.wrong == ["it came to no end: nobody serves", "it cannot be judged: nothing is read"]
    assert copied.withdrawn is None
    assert copied.transactions == Endings(0, 0, {}, 0)
    assert not Copies([copied]).as_expected


def test_one_is_judged_by_what_is_there(tmp_path: Path) -> None:
    course = _interrupted(tmp_path)
    course.copies = 1
    copied = course.copied()
    assert copied.wrong == [
        "it came to no end: nobody serves",
        *(f"partition {one}: 1 messages were not copied, as {one}-1" for one in range(PARTITIONS)),
        "the group has committed [1, 1, 1, 1], and the ends are [2, 2, 2, 2]",
    ]
    assert copied.withdrawn == 0


def test_one_that_has_copied_all_is_wrong_still(tmp_path: Path) -> None:
    course = _interrupted(tmp_path)
    course.copies = 2
    copied = course.copied()
    assert copied.wrong == ["it came to no end: nobody serves"]
    assert not Copies([copied]).as_expected


def _interrupted(directory: Path) -> _Interrupted:
    return _Interrupted(_Nobody(), 1, SIZE, directory)
