from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path, PurePath

import pytest

from pidkeeper.controller.storage.directory import META_NAME, format_directory, open_directory, read_meta
from pidkeeper.controller.storage.errors import DirectoryError
from pidkeeper.disk.files import OsFiles
from tests.support.memory_files import MemoryFiles, PowerCut, fail_at

DATA = PurePath("/srv/data")


def test_formatted_directory_opens() -> None:
    files = MemoryFiles()
    meta = format_directory(files, DATA, "cluster-a", 3)
    assert (meta.cluster_id, meta.node_id) == ("cluster-a", 3)
    for cluster_id in ("cluster-a", None):
        with open_directory(files, DATA, cluster_id, 3) as data:
            assert data.meta == meta == read_meta(files, DATA)
            assert [path.name for path in (data.wal, data.snapshots, data.archive)] == ["wal", "snapshots", "archive"]
            assert files.listdir(data.wal) == []
        data.close()


def test_directory_ids_differ_unless_given() -> None:
    one = format_directory(MemoryFiles(), DATA, "cluster-a", 3)
    assert one.directory_id != format_directory(MemoryFiles(), DATA, "cluster-a", 3).directory_id
    given = uuid.UUID(int=5)
    assert format_directory(MemoryFiles(), DATA, "cluster-a", 3, directory_id=given).directory_id == given


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "message"),
    [
        ("cluster-b", 3, "belongs to cluster cluster-a, but cluster cluster-b was asked for"),
        ("cluster-a", 4, "belongs to node 3, but node 4 was asked for"),
    ],
)
def test_another_members_directory_is_refused(cluster_id: str, node_id: int, message: str) -> None:
    files = MemoryFiles()
    format_directory(files, DATA, "cluster-a", 3)
    with pytest.raises(DirectoryError, match=f"{message}: correct the configured"):
        open_directory(files, DATA, cluster_id, node_id)
    with pytest.raises(DirectoryError, match=message):
        format_directory(files, DATA, cluster_id, node_id, ignore_formatted=True)


def test_formatted_directory_is_not_formatted_again() -> None:
    files = MemoryFiles()
    meta = format_directory(files, DATA, "cluster-a", 3)
    with pytest.raises(DirectoryError, match="formatted already, for cluster cluster-a and node 3"):
        format_directory(files, DATA, "cluster-a", 3)
    assert format_directory(files, DATA, "cluster-a", 3, ignore_formatted=True) == meta
    assert read_meta(files, DATA) == meta


@pytest.mark.parametrize(
    ("cluster_id", "node_id"), [("", 1), ("x" * 65, 1), ("a\0", 1), ("ä", 1), ("c", 0), ("c", 2**31)]
)
def test_impossible_identity_is_refused(cluster_id: str, node_id: int) -> None:
    files = MemoryFiles()
    with pytest.raises(DirectoryError, match="cannot format"):
        format_directory(files, DATA, cluster_id, node_id)
    assert not files.exists(DATA)


def test_data_without_identity_is_not_formatted_over() -> None:
    files = MemoryFiles()
    format_directory(files, DATA, "cluster-a", 3)
    files.close(files.open(DATA / "wal" / "0000000000000001-00000000000000000001.wal", create=True))
    files.unlink(DATA / META_NAME)
    with pytest.raises(DirectoryError, match="refusing to format over data"):
        format_directory(files, DATA, "cluster-a", 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "malformed"),
        (b'{"cluster_id": "\xff"}', "malformed: .*utf-8"),
        (b'{"format_version":1,"cluster_id":"c","node_id":0,"directory_id":"' + str(uuid.UUID(int=1)).encode() + b'"}',
         "malformed"),
        (b'{"format_version":2,"cluster_id":"c","node_id":1,"directory_id":"' + str(uuid.UUID(int=1)).encode() + b'"}',
         "format version 2, this build reads 1"),
    ],
)  # fmt: skip
def test_unreadable_identity_is_refused(content: bytes, message: str) -> None:
    files = MemoryFiles()
    format_directory(files, DATA, "c", 1)
    files.replace_content(DATA / META_NAME, content)
    with pytest.raises(DirectoryError, match=message):
        open_directory(files, DATA, None, 1)


def test_unformatted_directory_is_refused_with_the_remedy() -> None:
    with pytest.raises(DirectoryError, match="storage format"):
        open_directory(MemoryFiles(), DATA, None, 1)


def test_power_cut_while_formatting_leaves_all_or_nothing() -> None:
    whole = MemoryFiles()
    format_directory(whole, DATA, "c", 1)
    for call in range(len(whole.calls)):
        files = MemoryFiles()
        files.before = fail_at(call, PowerCut())
        with pytest.raises(PowerCut):
            format_directory(files, DATA, "c", 1)
        after = files.cut_power()
        assert not after.exists(DATA / META_NAME)
        format_directory(after, DATA, "c", 1)
    assert read_meta(whole.cut_power(), DATA).node_id == 1
    directories_durable = whole.calls.index(("fsync_directory", DATA.parent))
    assert directories_durable < whole.calls.index(("rename", DATA / META_NAME))


def test_every_directory_that_is_made_is_made_durable() -> None:
    """`/srv` is there; `a`, `b` and the directory itself are new, and a power cut must not take any of them."""
    files = MemoryFiles()
    files.make_directory(PurePath("/srv"))
    format_directory(files, PurePath("/srv/a/b/data"), "c", 1)
    synced = [path for kind, path in files.calls if kind == "fsync_directory"]
    assert {PurePath("/srv"), PurePath("/srv/a"), PurePath("/srv/a/b")} <= set(synced)
    assert PurePath("/") not in synced, "that one may not even be readable"


def test_second_opener_is_refused_while_the_first_is_there() -> None:
    files = MemoryFiles()
    format_directory(files, DATA, "c", 1)
    first = open_directory(files, DATA, "c", 1)
    with pytest.raises(DirectoryError, match="data directory /srv/data is in use by another process"):
        open_directory(files, DATA, "c", 1)
    first.close()
    open_directory(files, DATA, "c", 1).close()


def test_another_process_is_refused(tmp_path: Path) -> None:
    files = OsFiles()
    path = tmp_path / "data"
    format_directory(files, path, "c", 1)
    script = (
        "import sys; from pathlib import Path\n"
        "from controller.storage.directory import open_directory\n"
        "from controller.storage.errors import DirectoryError\n"
        "from disk.files import OsFiles\n"
        "try: open_directory(OsFiles(), Path(sys.argv[1]), 'c', 1)\n"
        "except DirectoryError as error: sys.exit(str(error))\n"
    )
    root = Path(__file__).parents[4]
    with open_directory(files, path, "c", 1):
        command = [sys.executable, "-c", script, str(path)]
        held = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=30, check=False)
    assert "is in use by another process" in held.stderr
    assert held.returncode == 1
    free = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=30, check=False)
    assert (free.returncode, free.stderr) == (0, "")
