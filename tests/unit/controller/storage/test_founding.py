"""founding.json: what is written is read, and what is not whole is refused."""

from __future__ import annotations

import uuid
from pathlib import PurePath

import msgspec
import pytest

from pidkeeper.controller.storage.errors import DirectoryError
from pidkeeper.controller.storage.founding import Founding, FoundingVoter, read_founding, write_founding
from pidkeeper.protocol.founding import Succession
from tests.support.memory_files import MemoryFiles

DATA = PurePath("/data")
VOTERS = [FoundingVoter(one, f"host-{one}:9", f"http://host-{one}") for one in (3, 1, 2)]


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(DATA)
    files.fsync_directory(DATA.parent)
    return files


def test_a_directory_that_nobody_founded_has_no_founding(files: MemoryFiles) -> None:
    assert read_founding(files, DATA) is None


def test_what_is_written_is_read_again_by_rising_id_and_survives_a_power_cut(files: MemoryFiles) -> None:
    write_founding(files, DATA, Founding.of(VOTERS))
    found = read_founding(files.cut_power(), DATA)
    assert found is not None
    assert found.voters == (VOTERS[1], VOTERS[2], VOTERS[0])


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (b'"id": 3', b'"id": 7', "the checksum is not that of founding None by the voters [1, 2, 7]"),
        (b"host-2:9", b"host-3:9", "the checksum is not that of founding None by the voters [1, 2, 3]"),
        (b'"id": 3', b'"id": 1', "voters [1, 2, 1] do not ascend by id"),
        (b'"id": 3', b'"id": 3, "learner": true', "unknown field"),
        (b"}", b"", "malformed"),
        (b'"voters": [', b'"voters": [' + b"[" * 10_000, "malformed"),
        (b"host-1", b"host-\xff", "malformed"),
        (b'"format_version": 1', b'"format_version": 2', "has format version 2, this build reads 1"),
    ],
)
def test_a_founding_that_rotted_is_refused_with_what_to_do(
    files: MemoryFiles, before: bytes, after: bytes, message: str
) -> None:
    write_founding(files, DATA, Founding.of(VOTERS))
    path = DATA / "founding.json"
    data = files.read_bytes(path)
    assert before in data
    files.unlink(path)
    handle = files.open(path, create=True)
    files.pwrite(handle, data.replace(before, after), 0)
    with pytest.raises(DirectoryError) as caught:
        read_founding(files, DATA)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_the_id_of_a_founding_is_read_again_and_covered_by_the_checksum(files: MemoryFiles) -> None:
    founding = Founding.of(VOTERS, uuid.UUID(int=1))
    write_founding(files, DATA, founding)
    assert read_founding(files, DATA) == founding
    data = files.read_bytes(DATA / "founding.json")
    for rotten in (data.replace(b"000001", b"000002"), data.replace(b"founding_id", b"founding_is")):
        with pytest.raises(msgspec.ValidationError, match=r"checksum|unknown field"):
            msgspec.json.decode(rotten, type=Founding)
    without = {key: value for key, value in msgspec.json.decode(data).items() if key != "founding_id"}
    with pytest.raises(msgspec.ValidationError, match="the checksum is not that of founding None"):
        msgspec.convert(without, Founding)


@pytest.mark.parametrize(
    "voters",
    [[], [VOTERS[0], VOTERS[0]], [FoundingVoter(1, "p:1", "h" * 10_000)], [FoundingVoter(0, "p:1", "http://h")]],
)
def test_voters_that_could_not_be_read_back_are_not_written(voters: list[FoundingVoter]) -> None:
    with pytest.raises(ValueError, match=r"voters|Expected"):
        Founding.of(voters)


def test_every_voter_has_its_address(files: MemoryFiles) -> None:
    write_founding(files, DATA, Founding.of(VOTERS))
    written = msgspec.json.decode(files.read_bytes(DATA / "founding.json"))
    assert written["voters"][0] == {"id": 1, "peer": "host-1:9", "http": "http://host-1"}


def test_a_succession_is_read_again_and_covered_by_the_checksum(files: MemoryFiles) -> None:
    founding = Founding.of(VOTERS, uuid.UUID(int=1), Succession(uuid.UUID(int=2), 5000))
    write_founding(files, DATA, founding)
    assert read_founding(files, DATA) == founding
    data = files.read_bytes(DATA / "founding.json")
    rotten = data.replace(b"5000", b"4000")
    with pytest.raises(msgspec.ValidationError, match="checksum"):
        msgspec.json.decode(rotten, type=Founding)


@pytest.mark.parametrize("founding_id", [None, uuid.UUID(int=2)])
def test_nobody_takes_its_own_place_or_one_without_a_name(founding_id: uuid.UUID | None) -> None:
    with pytest.raises(ValueError, match="cannot take the place of 00000000-0000-0000-0000-000000000002"):
        Founding.of(VOTERS, founding_id, Succession(uuid.UUID(int=2), 5000))
