"""Files on a real HDFS, over HTTP: no name is given to half a file, and none is taken twice."""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pidkeeper.pipeline.files.finding import find_files
from pidkeeper.pipeline.files.location import Location, locate
from tests.support import hdfs
from tests.support.hdfs import Hdfs

USER = "auditor"


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Location]:
    """A directory of this user."""
    if (reason := hdfs.why_unavailable()) is not None:
        pytest.skip(reason)
    server = Hdfs(tmp_path_factory.mktemp("hdfs") / "served")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HADOOP_USER_NAME", USER)
        try:
            server.start()
            server.make(f"/{USER}", USER, 0o755)
            yield locate(f"{server.web}/{USER}")
        finally:
            server.close()


def test_files_are_written_replaced_found_and_deleted(room: Location, tmp_path: Path) -> None:
    file = room / "50% [a]" / "x=1" / "a.arc"
    for data in (b"one", b"", os.urandom(3 << 20)):
        file.write(data)
        assert (file.read(), file.entry().size) == (data, len(data))
    with (file.parent / "b.arc").writing() as writing:
        for _ in range(20):
            writing.write(bytes(1 << 20))
    assert [(one.location.name, one.size) for one in find_files(f"{room}/*/x=1", ".arc")] == [
        ("a.arc", 3 << 20),
        ("b.arc", 20 << 20),
    ]
    (room / "50% [a]").delete()
    assert room.names() == []


def test_of_many_who_try_at_once_one_gets_the_name(room: Location) -> None:
    file = room / "claims" / "claim"

    def take(number: int) -> bool:
        try:
            file.create(b"%d" % number)
        except FileExistsError:
            return False
        return True

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        took = [number for number, taken in enumerate(threads.map(take, range(16))) if taken]
    assert [file.read()] == [b"%d" % number for number in took]
    assert file.parent.names() == ["claim"]


def test_who_reads_meanwhile_sees_the_old_file_or_the_new_one(room: Location) -> None:
    file, texts = room / "replaced", [b"0" * 1000, b"1" * 1000]
    file.write(texts[0])
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        done = thread.submit(lambda: [file.write(texts[number % 2]) for number in range(100)])
        while not done.done():
            assert locate(str(file)).read() in texts
        done.result()


def test_what_may_not_be_written_is_named(room: Location) -> None:
    above = room.parent / "x"
    with pytest.raises(PermissionError, match=f"{above} cannot be written: .*Permission denied: user={USER}") as caught:
        above.write(b"1")
    assert "\n" not in str(caught.value)
    (room / "folder").make()
    with pytest.raises(OSError, match="folder cannot be written"):
        (room / "folder").write(b"1")
    assert (room / "folder").names() == []
