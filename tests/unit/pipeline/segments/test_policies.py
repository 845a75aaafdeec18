"""`cleanup.policy` of topics from the metadata log of a KRaft cluster, built field by field as KIP-631 says."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from pidkeeper.pipeline.segments.policies import read_policies
from pidkeeper.pipeline.segments.segment_files import list_segments
from tests.support.segment_builder import batch, marker

FOLDER: Final = "__cluster_metadata-0"
TOPIC, BROKER = 2, 4
POLICY: Final = "cleanup.policy"
OF_BROKERS: Final = "log.cleanup.policy"
BEGIN, END, ABORT = (bytes([1, kind, 0, 0]) for kind in (23, 24, 25))
REGISTRATION: Final = bytes([1, 27, 3]) + b"whatever a broker says of itself"


def text(value: str | None) -> bytes:
    return b"\0" if value is None else bytes([len(value) + 1]) + value.encode()


def identity(name: str) -> bytes:
    return name.encode().ljust(16, b".")


def topic(name: str, generation: str = "") -> bytes:
    return bytes([1, 2, 0]) + text(name) + identity(name + generation) + b"\0"


def removal(name: str) -> bytes:
    return bytes([1, 9, 0]) + identity(name) + b"\0"


def setting(name: str, value: str | None, resource: int = TOPIC, key: str = POLICY) -> bytes:
    return bytes([1, 4, 0, resource]) + text(name) + text(key) + text(value) + b"\0"


def log(first: int, *batches: list[bytes]) -> bytes:
    """Batches of records that follow one another."""
    data = b""
    for values in batches:
        data += batch(first, values)
        first += len(values)
    return data


def policies(directory: Path, data: bytes, *, base: int = 0, default: str | None = "delete") -> dict[str, str | None]:
    """Of one member whose log is this."""
    folder = directory / FOLDER
    folder.mkdir(exist_ok=True)
    (folder / f"{base:020}.log").write_bytes(data)
    return read_policies(list_segments([str(directory)]), default)


def test_a_topic_has_its_own_policy_or_the_default(tmp_path: Path) -> None:
    data = log(
        0,
        [REGISTRATION, topic("plain"), topic("compacted"), setting("compacted", "compact")],
        [topic("both"), setting("both", "compact,delete"), setting("both", "5", key="retention.ms")],
        [topic("explicit"), setting("explicit", "delete")],
    )
    named = {"compacted": "compact", "both": "compact,delete", "explicit": "delete"}
    assert policies(tmp_path, data) == named | {"plain": "delete"}
    assert policies(tmp_path, data, default=None) == named | {"plain": None}


def test_of_a_topic_that_was_compacted_before_nothing_is_known(tmp_path: Path) -> None:
    data = log(
        0,
        [topic("changed"), setting("changed", "compact"), topic("reset"), setting("reset", "compact")],
        [setting("changed", "delete")],
        [setting("reset", None), topic("there and back"), setting("there and back", "delete")],
        [setting("there and back", "compact")],
    )
    assert policies(tmp_path, data) == {"changed": None, "reset": None, "there and back": "compact"}


def test_a_topic_that_was_removed_leaves_nothing_to_one_of_its_name(tmp_path: Path) -> None:
    data = log(0, [topic("a"), setting("a", "compact"), topic("b"), removal("a"), removal("b"), topic("a", "again")])
    assert policies(tmp_path, data) == {"a": "delete"}


@pytest.mark.parametrize(
    ("of_brokers", "expected"),
    [
        ([("", "compact")], "compact"),
        ([("", "compact"), ("", None)], None),
        ([("", "delete"), ("1", "delete")], "delete"),
        ([("1", "compact")], None),
        ([("1", "compact"), ("1", None)], None),
    ],
)
def test_the_default_of_a_cluster_and_of_single_brokers(
    tmp_path: Path, of_brokers: list[tuple[str, str | None]], expected: str | None
) -> None:
    values = [[setting(name, value, BROKER, OF_BROKERS)] for name, value in of_brokers]
    data = log(0, [topic("plain"), topic("own"), setting("own", "delete")], *values, [setting("", "7", BROKER, "x")])
    assert policies(tmp_path, data) == {"plain": expected, "own": "delete"}


def test_a_topic_that_is_created_with_a_policy_never_had_the_default(tmp_path: Path) -> None:
    data = log(
        0, [setting("", "compact", BROKER, OF_BROKERS)], [topic("own"), setting("own", "delete")], [topic("other")]
    )
    assert policies(tmp_path, data) == {"own": "delete", "other": "compact"}
    data += log(4, [setting("", "delete", BROKER, OF_BROKERS)])
    assert policies(tmp_path, data) == {"own": "delete", "other": None}


def test_records_of_a_transaction_count_if_it_ends(tmp_path: Path) -> None:
    data = log(
        0,
        [BEGIN, topic("aborted"), ABORT, topic("between")],
        [BEGIN, topic("ended"), setting("ended", "compact")],
        [END, BEGIN, topic("open")],
    )
    assert policies(tmp_path, data) == {"between": "delete", "ended": "compact"}


def test_control_records_take_offsets_and_say_nothing(tmp_path: Path) -> None:
    data = marker(0, (-1, -1), commit=False, kind=2) + log(1, [topic("a")])
    assert policies(tmp_path, data) == {"a": "delete"}


def test_the_oldest_snapshot_that_will_do_stands_for_what_is_no_more_in_the_log(tmp_path: Path) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir()
    for offset, names in ((3, ["too old"]), (10, ["a", "b"]), (12, ["late"])):
        snapshot = [record for name in names for record in (topic(name), setting(name, "compact"))]
        (folder / f"{offset:020}-0000000002.checkpoint").write_bytes(log(0, snapshot))
    data = log(8, [removal("nobody"), topic("before")], [setting("b", "delete"), topic("c")])
    assert policies(tmp_path, data, base=8) == {"a": "compact", "b": None, "c": "delete"}


def test_a_log_from_its_beginning_needs_no_snapshot(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / f"{2:020}-0000000002.checkpoint").write_bytes(log(0, [topic("a")]))
    data = log(0, [topic("a"), setting("a", "compact")], [setting("a", "delete")])
    assert policies(tmp_path, data) == {"a": None}


def test_the_copy_that_goes_furthest_counts(tmp_path: Path) -> None:
    for member, more in (("1", []), ("2", [[setting("a", "compact")]]), ("3", [])):
        (tmp_path / member).mkdir()
        policies(tmp_path / member, log(0, [topic("a")], *more))
    assert read_policies(list_segments([str(tmp_path)])) == {"a": "compact"}


def test_a_topic_that_a_cleaner_has_been_over_is_in_doubt(tmp_path: Path) -> None:
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n2\ncleaned 3 99\ncompacted 0 7\n")
    data = log(0, [topic("cleaned"), topic("plain"), topic("compacted"), setting("compacted", "compact")])
    assert policies(tmp_path, data) == {"cleaned": None, "plain": "delete", "compacted": "compact"}


@pytest.mark.parametrize(
    "data",
    [
        log(5, [topic("its beginning is not there")]),
        log(0, [topic("a")]) + log(2, [topic("a hole")]),
        log(0, [topic("cut off")[:-3]]),
        log(0, [b"\x02" + topic("of another frame")[1:]]),
        log(0, [bytes([1, 4, 0, TOPIC]) + b"\xff" * 12]),
        batch(0, [topic("compressed")], compression=2),
        batch(0, []),
    ],
)
def test_of_a_log_that_cannot_be_followed_nothing_is_said(tmp_path: Path, data: bytes) -> None:
    assert policies(tmp_path, data) == {}


def test_what_stands_before_a_torn_end_counts(tmp_path: Path) -> None:
    assert policies(tmp_path, log(0, [topic("a")], [topic("b")])[:-1]) == {"a": "delete"}


def test_without_a_metadata_log_nothing_is_known(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{0:020}.log").write_bytes(log(0, [topic("a")]))
    assert read_policies(list_segments([str(tmp_path)])) == {}
