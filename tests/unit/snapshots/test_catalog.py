from __future__ import annotations

from pathlib import Path, PurePath

import msgspec
import pytest

from pidkeeper.disk.files import OsFiles
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.snapshots import catalog as catalog_module
from pidkeeper.snapshots.catalog import RawSnapshotWriter, SnapshotCatalog
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.snapshot_format import NewerSnapshot, SnapshotError
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.support.memory_files import MemoryFiles, PowerCut, fail_at
from tests.support.snapshot_file import snapshot_file

SNAPSHOTS = PurePath("/data/snapshots")


def image(index: int) -> StateImage:
    return StateImage(1, index, index // 10 + 1, index * 2, index * 1000, None, [])


def new_disk() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(SNAPSHOTS)
    return files


def opened(files: MemoryFiles) -> SnapshotCatalog:
    return SnapshotCatalog(files, SNAPSHOTS, "cluster-a")


def damage(files: MemoryFiles, snapshot: SnapshotId) -> None:
    path = SNAPSHOTS / snapshot.name
    content = bytearray(files.read_bytes(path))
    content[-9] ^= 4
    files.replace_content(path, bytes(content))


def test_saved_snapshot_is_durable_under_its_name() -> None:
    files = new_disk()
    assert opened(files).newest() is None
    snapshot = opened(files).save(image(42))
    assert snapshot == SnapshotId(42, 5)
    assert files.listdir(SNAPSHOTS) == ["snapshot-00000000000000000042-0000000005.snap"]
    assert opened(files.cut_power()).newest() == (snapshot, image(42))


def test_on_a_real_disk(tmp_path: Path) -> None:
    catalog = SnapshotCatalog(OsFiles(), tmp_path, "cluster-a")
    for index in (3, 12, 7):
        catalog.save(image(index))
    assert [snapshot.index for snapshot in catalog.ids()] == [3, 7, 12]
    newest = catalog.newest()
    assert newest is not None
    assert newest[1] == image(12)


def test_members_write_the_same_bytes() -> None:
    one, other = new_disk(), new_disk()
    name = opened(one).save(image(5)).name
    opened(other).save(image(5))
    assert one.read_bytes(SNAPSHOTS / name) == other.read_bytes(SNAPSHOTS / name)


def test_damaged_snapshot_is_passed_over_and_named() -> None:
    files = new_disk()
    catalog = opened(files)
    older, newer = catalog.save(image(5)), catalog.save(image(9))
    damage(files, newer)
    assert catalog.newest() == (older, image(5))
    assert newer.name in str(catalog.damaged[newer.name])
    with pytest.raises(SnapshotError, match=newer.name):
        catalog.load(newer)


def test_a_newer_builds_snapshot_is_not_passed_over() -> None:
    files = new_disk()
    catalog = opened(files)
    catalog.save(image(10))
    catalog.save(msgspec.structs.replace(image(20), version=LATEST + 1))
    with pytest.raises(NewerSnapshot, match="upgrade"):
        opened(files.cut_power()).newest()
    assert len(catalog.ids()) == 2


def test_renamed_snapshot_is_refused() -> None:
    files = new_disk()
    catalog = opened(files)
    files.rename(SNAPSHOTS / catalog.save(image(5)).name, SNAPSHOTS / SnapshotId(6, 1).name)
    with pytest.raises(SnapshotError, match="holds the state at 5"):
        catalog.load(SnapshotId(6, 1))


def test_prune_keeps_the_newest_whole_ones() -> None:
    files = new_disk()
    catalog = opened(files)
    for index in range(1, 7):
        catalog.save(image(index))
    damage(files, SnapshotId(6, 1))
    damage(files, SnapshotId(4, 1))
    catalog.prune(keep=2)
    assert [snapshot.index for snapshot in opened(files.cut_power()).ids()] == [3, 4, 5, 6]
    catalog.prune(keep=1)
    assert [snapshot.index for snapshot in opened(files.cut_power()).ids()] == [5, 6]
    with pytest.raises(AssertionError):
        catalog.prune(keep=0)


def test_unfinished_files_are_removed_at_open() -> None:
    files = new_disk()
    opened(files).receive(SnapshotId(3, 1)).add(0, b"half")
    assert files.listdir(SNAPSHOTS) != []
    opened(files)
    assert files.listdir(SNAPSHOTS) == []


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
def test_chunks_carry_a_snapshot_over(size: int) -> None:
    source, target = new_disk(), new_disk()
    snapshot = opened(source).save(image(42))
    receiver = opened(target).receive(snapshot)
    done = False
    while not done:
        offset = receiver.next_offset
        data, done = opened(source).read_chunk(snapshot, offset, size)
        assert receiver.add(offset + 1, data) == offset
        assert receiver.add(offset, data) == offset + len(data)
    assert opened(target.copy()).newest() is None
    assert receiver.install() == image(42)
    receiver.abort()
    after = target.cut_power()
    assert opened(after).newest() == (snapshot, image(42))
    assert after.read_bytes(SNAPSHOTS / snapshot.name) == source.read_bytes(SNAPSHOTS / snapshot.name)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (snapshot_file("cluster-a", image(42))[:-1], "checksum"),
        (b"", "ends after 0"),
        (snapshot_file("cluster-b", image(42)), "of cluster cluster-b"),
        (snapshot_file("cluster-a", image(43)), "holds the state at 43"),
        (snapshot_file("cluster-a", msgspec.structs.replace(image(42), term=9)), "of term 9"),
    ],
)
def test_received_snapshot_is_verified_before_it_counts(data: bytes, message: str) -> None:
    files = new_disk()
    catalog = opened(files)
    older = catalog.save(image(3))
    receiver = catalog.receive(SnapshotId(42, 5))
    receiver.add(0, data)
    with pytest.raises(SnapshotError, match=message):
        receiver.install()
    assert files.listdir(SNAPSHOTS) == [older.name]


def test_received_snapshot_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_module, "MAX_SNAPSHOT_BYTES", 100)
    files = new_disk()
    receiver = opened(files).receive(SnapshotId(42, 5))
    receiver.add(0, bytes(60))
    with pytest.raises(SnapshotError, match="above the limit of 100"):
        receiver.add(60, bytes(41))
    assert receiver.next_offset == 60
    path = SNAPSHOTS / SnapshotId(1, 1).name
    files.close(files.open(path, create=True))
    files.replace_content(path, bytes(101))
    catalog = opened(files)
    with pytest.raises(SnapshotError, match="above the limit of 100"):
        catalog.load(SnapshotId(1, 1))


def test_chunk_of_a_snapshot_that_is_gone_or_beyond_its_end() -> None:
    files = new_disk()
    catalog = opened(files)
    with pytest.raises(SnapshotError, match="not here"):
        catalog.read_chunk(SnapshotId(1, 1), 0, 10)
    snapshot = catalog.save(image(1))
    total = files.size(SNAPSHOTS / snapshot.name)
    assert catalog.read_chunk(snapshot, total, 10) == (b"", True)
    for offset, size in ((-1, 10), (total + 1, 10), (0, 0)):
        with pytest.raises(SnapshotError, match="at offset"):
            catalog.read_chunk(snapshot, offset, size)


def _receive(files: MemoryFiles) -> None:
    data = snapshot_file("cluster-a", image(42))
    receiver: RawSnapshotWriter = opened(files).receive(SnapshotId(42, 5))
    receiver.add(0, data[:50])
    receiver.add(50, data[50:])
    receiver.install()


def test_power_cut_during_install_leaves_the_old_or_the_new() -> None:
    def prepared() -> MemoryFiles:
        files = new_disk()
        opened(files).save(image(3))
        return files

    whole = prepared()
    before = len(whole.calls)
    _receive(whole)
    for call in range(len(whole.calls) - before):
        for keep in (
            lambda kind, path: False,
            lambda kind, path: True,
            lambda kind, path: kind == "pwrite",
            lambda kind, path: kind != "pwrite",
        ):
            files = prepared()
            files.before = fail_at(call, PowerCut())
            with pytest.raises(PowerCut):
                _receive(files)
            catalog = opened(files.cut_power(keep))
            newest = catalog.newest()
            assert newest is not None
            assert newest[1] in (image(3), image(42))
            assert catalog.damaged == {}
    newest = opened(whole.cut_power()).newest()
    assert newest is not None
    assert newest[1] == image(42)
