"""What is said of what an audit has not seen."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

pytest.importorskip("pyspark", reason="the facts are gathered with Spark, which is not installed")

from pidkeeper.pipeline.evidence import MAX_NAMED_HOLES, Seen, judge
from pidkeeper.pipeline.verdict import LogsCovered

WHOLE = Seen(
    quorum=True,
    segments=False,
    members=["1", "2", "3"],
    voters=frozenset("123"),
    held=[(0, 100)],
    snapshot_offset=90,
    last_index=70,
    committed_index=70,
)
READ = LogsCovered("/store", 1, 10, 4, objects_read=3, objects_unreadable=1)


def unseen(**changes: Any) -> list[str]:
    return judge(replace(WHOLE, **changes)).unseen


def test_nothing_is_missing_where_all_members_hold_all_offsets() -> None:
    coverage = judge(WHOLE)
    assert coverage.unseen == []
    assert (coverage.members, coverage.voters, coverage.from_offset, coverage.to_offset) == (["1", "2", "3"], 3, 0, 100)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"held": [], "members": []}, "no file of a member told of any log offset: of the quorum nothing was audited"),
        ({"members": ["1", "3"]}, "nothing was read of voter 2"),
        ({"members": ["3"]}, "nothing was read of voters 1, 2"),
        ({"members": ["1", "2", "4"]}, "nothing was read of voter 3"),
        ({"members": ["1", "/copy/b"]}, "the quorum has 3 voters, and files of 2 members were read"),
        ({"voters": None, "members": ["1"]}, "the files are of one member, and none says how many voters"),
        ({"held": [(5, 100)]}, "log offsets 0 to 4 are in no file"),
        ({"held": [(1, 100)]}, "log offset 0 is in no file"),
        ({"held": [(0, 40), (50, 100)]}, "log offsets 40 to 49 are in no file"),
        ({"snapshot_offset": 120}, "log offsets 100 to 119 are in no file"),
        ({"committed_index": 75}, "log entries up to index 75 are committed, and the newest in any file is 70"),
        ({"committed_index": 1, "last_index": None}, "log entries up to index 1 are committed"),
        ({"bad_files": 1}, "1 file could not be read, or not wholly"),
        ({"bad_files": 1200}, "1,200 files could not be read, or not wholly"),
        ({"segments": True}, "no record batch of Kafka was read"),
        ({"logs": LogsCovered(batches=3, objects=2)}, "no store was given: 3 batches in 2 objects"),
        ({"logs": READ}, "1 of 4 objects of the store could not be read"),
        (
            {"logs": replace(READ, objects_unreadable=0, objects_gone=2)},
            "2 of 4 objects are not in the store, which is",
        ),
        ({"logs": replace(READ, objects_unreadable=0, batches_nowhere=1_000)}, "1,000 batches are in objects whose"),
        ({"logs": LogsCovered("/store", offsets_rolled=1_000)}, "1,000 offsets of partition logs are in segments that"),
        ({"logs": LogsCovered(segments=2, offsets_rolled=9)}, "no store was given: 9 offsets in 2 segments"),
        (
            {"logs": LogsCovered("/store", segments=2, segments_unreadable=1)},
            "1 of 2 segments, or their indices, could",
        ),
        ({"logs": LogsCovered("/store", segments=2, segments_gone=1)}, "1 of 2 segments, or their indices, are not in"),
        ({"logs": LogsCovered("/store", stateless=True)}, "no file has the state of partition logs"),
    ],
)
def test_what_is_missing_is_told(changes: dict[str, Any], what: str) -> None:
    [told] = unseen(**changes)
    assert told.startswith(what)


@pytest.mark.parametrize(
    "changes",
    [
        {"voters": None},
        {"voters": None, "members": ["1", "2"]},
        {"members": ["1", "2", "3", "4"]},
        {"members": ["1", "/copy/b", "/copy/c"]},
        {"voters": frozenset("1"), "members": ["1"]},
        {"snapshot_offset": None, "last_index": None, "committed_index": None},
        {"committed_index": 60},
        {"segments": True, "batches": 1},
        {"quorum": False, "held": [], "members": [], "voters": None, "segments": True, "batches": 1},
    ],
)
def test_what_is_lawful_is_not_missing(changes: dict[str, Any]) -> None:
    assert unseen(**changes) == []


def test_of_many_holes_the_first_are_named() -> None:
    held = [(2 * at, 2 * at + 1) for at in range(MAX_NAMED_HOLES + 6)]
    told = unseen(held=held, snapshot_offset=None)
    assert len(told) == MAX_NAMED_HOLES + 1
    assert told[-1] == "nor are 5 more runs of log offsets"
