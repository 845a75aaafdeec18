"""Who votes is what is durable; the configuration file names a blank directory's voters, and says where members are."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import PurePath

import msgspec
import pytest

from pidkeeper.controller.node.assembly import raft_config
from pidkeeper.controller.node.durable_voters import VotersRefused, founding_by
from pidkeeper.controller.node.opening import OpenedStorage, open_storage
from pidkeeper.controller.node.settings import MemberSettings, Voter
from pidkeeper.controller.raft.messages import Entry, HardState
from pidkeeper.controller.storage.directory import format_directory
from pidkeeper.controller.storage.errors import DirectoryError
from pidkeeper.controller.storage.founding import FOUNDING_NAME, write_founding
from pidkeeper.protocol.addresses import HostPort
from pidkeeper.protocol.founding import FoundingRecord
from pidkeeper.protocol.metadata_version import FOUNDING, MEMBERSHIP
from pidkeeper.protocol.records import FeatureLevelRecord, LeaderChangeRecord, QuorumMember, VotersRecord, encode_batch
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.support.memory_files import MemoryFiles
from tests.unit.controller.node.test_opening import DATA, SETTINGS

FOUNDING_ID = uuid.UUID(int=7)


def voter(member_id: int, port: int = 1) -> Voter:
    return Voter(member_id, HostPort(f"host-{member_id}", port), f"http://host-{member_id}")


def member(member_id: int, voting: bool = True, directory: str | None = None) -> QuorumMember:
    one = voter(member_id)
    return QuorumMember(member_id, directory, str(one.peer), one.http, voting)


def file_of(*voters: int, learner: int | None = None, node_id: int = 1, port: int = 1) -> MemberSettings:
    named = tuple(voter(one, port) for one in voters)
    joins = None if learner is None else voter(learner, port)
    return msgspec.structs.replace(SETTINGS, node_id=node_id, voters=named, learner=joins)


@pytest.fixture
def disk() -> MemoryFiles:
    return new_disk(1)


def new_disk(node_id: int) -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(DATA)
    format_directory(files, DATA, "c", node_id)
    return files


def founded(disk: MemoryFiles, settings: MemberSettings) -> OpenedStorage:
    """Opened for the first time after it was founded."""
    write_founding(disk, DATA, founding_by(settings, FOUNDING_ID))
    return open_storage(disk, settings)


def restart(disk: MemoryFiles, settings: MemberSettings) -> tuple[MemoryFiles, OpenedStorage]:
    """As after a power cut."""
    after = disk.cut_power()
    return after, open_storage(after, settings)


def write(storage: OpenedStorage, *records: VotersRecord | LeaderChangeRecord, vote: int | None = None) -> None:
    entries = [Entry(1, index, encode_batch([record])) for index, record in enumerate(records, 1)]
    storage.wal.append(entries, HardState(term=1, vote=vote))


def founded_by_an_earlier_build(disk: MemoryFiles) -> MemoryFiles:
    disk.unlink(PurePath(DATA) / FOUNDING_NAME)
    disk.fsync_directory(PurePath(DATA))
    return disk


@pytest.mark.parametrize("edited", [(1,), (1, 2), (1, 2, 3, 4, 5), (1, 4, 5)])
def test_a_file_that_was_edited_changes_no_voter(disk: MemoryFiles, edited: tuple[int, ...]) -> None:
    """The hole was: a lagging member of three, restarted with itself alone in its file, led and began anew."""
    founded(disk, file_of(1, 2, 3))
    _, storage = restart(disk, file_of(*edited))
    assert raft_config(file_of(*edited), storage).voters == (1, 2, 3)
    assert [one.id for one in storage.voters.members] == [1, 2, 3]


def test_a_blank_directory_is_left_as_it_is_until_somebody_founds_it(disk: MemoryFiles) -> None:
    for named in ((1, 2, 3), (1,), (1, 4)):
        disk, storage = restart(disk, file_of(*named))
        assert storage.founding is None
        assert [one.id for one in storage.voters.members] == list(named)
    assert not disk.exists(PurePath(DATA) / FOUNDING_NAME)


def test_a_directory_that_an_earlier_build_began_is_not_blank_and_gets_its_voters_from_the_file(
    disk: MemoryFiles,
) -> None:
    """A vote, or just a term, may be what others rest on."""
    open_storage(disk, file_of(1, 2, 3)).wal.append([], HardState(term=1, vote=None))
    disk, storage = restart(disk, file_of(1, 2, 3))
    assert storage.founding == founding_by(file_of(1, 2, 3))
    assert disk.cut_power().exists(PurePath(DATA) / FOUNDING_NAME)


def test_a_blank_directory_that_joined_a_quorum_without_a_founding_stays_with_its_voters(disk: MemoryFiles) -> None:
    write_founding(disk, DATA, founding_by(file_of(1, 2, 3)))
    for named in ((1, 2), (1,)):
        disk, storage = restart(disk, file_of(*named))
        assert storage.founding == founding_by(file_of(1, 2, 3))


def test_a_founding_outlives_a_log_that_was_lost(disk: MemoryFiles) -> None:
    founded(disk, file_of(1, 2, 3))
    _, storage = restart(disk, file_of(1))
    assert storage.founding == founding_by(file_of(1, 2, 3), FOUNDING_ID)


def test_the_file_supplies_the_addresses_and_the_founding_those_that_the_file_lacks(disk: MemoryFiles) -> None:
    founded(disk, file_of(1, 2, 3))
    _, storage = restart(disk, file_of(1, 2, port=77))
    assert [one.peer for one in storage.voters.members] == ["host-1:77", "host-2:77", "host-3:1"]


def test_a_file_that_has_no_member_of_the_quorum_is_refused_with_the_commands_that_change_it(disk: MemoryFiles) -> None:
    storage = founded(disk, file_of(1, 2, 3))
    write(storage, VotersRecord((member(2), member(3))))
    disk, _ = restart(disk, file_of(1, 2))
    with pytest.raises(
        VotersRefused, match=r"names the voters \[1, 4\], but the quorum on this disk is \[2, 3\].*add-vo"
    ):
        restart(disk, file_of(1, 4))


def test_a_file_that_names_its_member_alone_needs_a_key_all_the_same_where_the_quorum_has_others(
    disk: MemoryFiles,
) -> None:
    founded(disk, file_of(1, 2, 3))
    keyless = msgspec.structs.replace(file_of(1), peer_keys=())
    with pytest.raises(VotersRefused, match=r"^peer_key_file: the quorum on this disk is \[1, 2, 3\]"):
        restart(disk, keyless)
    restart(disk, msgspec.structs.replace(file_of(1), peer_keys=(None,)))
    alone = new_disk(1)
    founded(alone, keyless)
    restart(alone, keyless)


def test_the_newest_quorum_of_the_log_is_what_a_file_is_compared_with(disk: MemoryFiles) -> None:
    storage = founded(disk, file_of(1, 2, 3))
    write(storage, VotersRecord((member(1), member(2))), VotersRecord((member(2), member(4))))
    with pytest.raises(VotersRefused, match=r"the quorum on this disk is \[2, 4\]"):
        restart(disk, file_of(1, 3))


@pytest.mark.parametrize("trace", ["led", "voted"])
def test_a_directory_of_an_earlier_build_refuses_a_file_that_lacks_a_voter_it_knows_of(
    disk: MemoryFiles, trace: str
) -> None:
    storage = founded(disk, file_of(1, 2, 3))
    write(storage, LeaderChangeRecord(3 if trace == "led" else 1), vote=3 if trace == "voted" else 1)
    old = founded_by_an_earlier_build(disk)
    with pytest.raises(VotersRefused, match=r"names the voters \[1\], but members \[3\] led this quorum or had"):
        restart(old, file_of(1))
    assert not old.cut_power().exists(PurePath(DATA) / FOUNDING_NAME)
    restart(old, file_of(1, 2, 3))


def led_once(storage: OpenedStorage) -> None:
    write(storage, LeaderChangeRecord(1), vote=1)


def followed(storage: OpenedStorage) -> None:
    """The term came with a leader's snapshot, without a vote."""
    storage.machine.replay([FeatureLevelRecord(MEMBERSHIP)])
    storage.catalog.save(storage.machine.image(2, 1))
    storage.wal.restart_at(SnapshotId(2, 1), HardState(1, None, 2))


@pytest.mark.parametrize("past", [led_once, followed])
def test_a_directory_of_an_earlier_build_is_not_founded_by_a_file_that_names_its_member_alone(
    disk: MemoryFiles, past: Callable[[OpenedStorage], None]
) -> None:
    """The hole was: of others who went on without it the disk knows nothing, so it elected itself and began again."""
    past(founded(disk, file_of(1, 2, 3)))
    old, storage = restart(founded_by_an_earlier_build(disk), file_of(1))
    assert (storage.founding, storage.blank) == (None, False)
    assert not old.cut_power().exists(PurePath(DATA) / FOUNDING_NAME)
    _, mended = restart(old, file_of(1, 2, 3))
    assert mended.founding == founding_by(file_of(1, 2, 3))


def test_a_log_that_names_its_only_voter_needs_no_file_for_it(disk: MemoryFiles) -> None:
    storage = founded(disk, file_of(1, 2))
    write(storage, VotersRecord((member(1),)))
    _, storage = restart(founded_by_an_earlier_build(disk), file_of(1))
    assert storage.founding == founding_by(file_of(1))


@pytest.mark.parametrize("where", ["in the log", "in a snapshot"])
def test_a_directory_that_has_lost_its_founding_is_refused(disk: MemoryFiles, where: str) -> None:
    """Who the voters were stood there alone, and the file may say anything."""
    storage = founded(disk, file_of(1, 2, 3))
    record = FoundingRecord(FOUNDING_ID, 1000, False, 0)
    if where == "in the log":
        first = Entry(1, 1, encode_batch([LeaderChangeRecord(2)]))
        storage.wal.append([first, Entry(1, 2, encode_batch([record]))], HardState(1, None))
    else:
        storage.machine.replay([FeatureLevelRecord(FOUNDING), record])
        storage.catalog.save(storage.machine.image(2, 1))
        storage.wal.restart_at(SnapshotId(2, 1), HardState(1, None, 2))
    with pytest.raises(DirectoryError, match=f"missing, but the log here is of founding {FOUNDING_ID}"):
        restart(founded_by_an_earlier_build(disk), file_of(1, 2, 3))


def test_a_directory_of_an_earlier_build_is_opened_with_the_voters_of_its_log(disk: MemoryFiles) -> None:
    """Its file may be brought up to date, so those who led before they were removed are not missed."""
    storage = founded(disk, file_of(1, 2, 3))
    write(storage, LeaderChangeRecord(3), VotersRecord((member(1), member(2))), vote=3)
    old = founded_by_an_earlier_build(disk)
    _, storage = restart(old, file_of(1, 2))
    assert [one.id for one in storage.voters.members] == [1, 2]


def test_a_learner_of_an_earlier_build_may_hold_leaders_that_were_removed_since() -> None:
    disk = new_disk(4)
    storage = founded(disk, file_of(2, 3, learner=4, node_id=4))
    write(storage, LeaderChangeRecord(1))
    old = founded_by_an_earlier_build(disk)
    _, storage = restart(old, file_of(2, 3, learner=4, node_id=4))
    assert storage.learner


def test_a_learner_stays_one_whatever_its_file_says_until_its_own_log_makes_it_a_voter() -> None:
    disk = new_disk(4)
    storage = founded(disk, file_of(2, 3, learner=4, node_id=4))
    assert storage.learner
    own = str(storage.directory.meta.directory_id)
    steps = (
        (VotersRecord((member(2), member(3), member(4))), True),  # an earlier owner of the id
        (VotersRecord((member(2), member(3), member(4, False, own))), True),
        (VotersRecord((member(2), member(3), member(4, True, own))), False),
    )
    for index, (record, learner) in enumerate(steps, 1):
        storage.wal.append([Entry(1, index, encode_batch([record]))], HardState(term=1, vote=None))
        disk, storage = restart(disk, file_of(2, 3, 4, node_id=4))
        assert storage.learner is learner
        assert raft_config(file_of(2, 3, 4, node_id=4), storage).voters == (2, 3)


def test_a_founding_voter_is_a_learner_by_its_file_alone(disk: MemoryFiles) -> None:
    assert not founded(disk, file_of(1, 2, 3)).learner
    disk, storage = restart(disk, file_of(2, 3, learner=1))
    assert storage.learner
    write(storage, VotersRecord((member(2), member(3))))
    _, storage = restart(disk, file_of(1, 2, 3))
    assert not storage.learner


def test_the_snapshot_says_who_the_voters_are_where_the_log_says_nothing(disk: MemoryFiles) -> None:
    storage = founded(disk, file_of(1, 2, 3))
    storage.machine.replay([FeatureLevelRecord(MEMBERSHIP)])
    storage.machine.replay([VotersRecord((member(2), member(5)))])
    storage.catalog.save(storage.machine.image(2, 1))
    storage.wal.restart_at(SnapshotId(2, 1), HardState(1, None, 2))
    with pytest.raises(VotersRefused, match=r"the quorum on this disk is \[2, 5\]"):
        restart(disk, file_of(1, 3))
    restart(founded_by_an_earlier_build(disk), file_of(1, 2))
