"""What is read again when its file has changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pidkeeper.service.refreshing import REFRESH_SECONDS, Refreshed
from pidkeeper.service.settings import SettingsError


class Reader:
    """Reads a file of one word, while it may; `now` is its clock."""

    def __init__(self, path: Path) -> None:
        path.write_text("first")
        self.path = path
        self.may = True
        self.reads = 0
        self.now = 0.0
        self.refreshed = Refreshed("the word", [str(path)], self._read, lambda: self.now)

    def _read(self) -> str:
        self.reads += 1
        if not self.may:
            raise SettingsError("no descriptor is left")
        return self.path.read_text()

    def after(self, seconds: float) -> str:
        self.now += seconds
        self.refreshed.refresh()
        return self.refreshed.value


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path / "word")


def test_a_file_is_read_again_when_it_has_changed_alone(reader: Reader) -> None:
    assert [reader.after(100), reader.reads] == ["first", 1]
    reader.path.write_text("second")
    assert [reader.after(0), reader.after(100), reader.reads] == ["second", "second", 2]


def test_a_file_put_in_the_place_of_another_is_read(reader: Reader) -> None:
    other = reader.path.with_name("other")
    other.write_text("other")
    kept = reader.path.stat()
    os.utime(other, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    other.replace(reader.path)
    assert reader.after(0) == "other"


def test_what_could_not_be_read_is_read_later_though_it_stays_as_it_is(
    reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    reader.may = False
    reader.path.write_text("second")
    assert [reader.after(0), reader.after(REFRESH_SECONDS)] == ["first", "first"]
    assert caplog.text.count("no descriptor is left") == 1, "the same is not said twice"
    reader.may = True
    assert reader.after(REFRESH_SECONDS) == "second"


def test_what_is_of_no_use_is_not_read_for_every_caller(reader: Reader) -> None:
    reader.may = False
    reader.path.write_text("second")
    for _ in range(100):
        reader.after(REFRESH_SECONDS / 1000)
    assert reader.reads == 2


def test_the_same_reason_is_told_again_after_a_good_read(reader: Reader, caplog: pytest.LogCaptureFixture) -> None:
    for word in ("second", "third"):
        reader.may = False
        reader.path.write_text(word)
        reader.after(0)
        reader.may = True
        assert reader.after(REFRESH_SECONDS) == word
    assert caplog.text.count("no descriptor is left") == 2
