"""What was covered, for the eye."""

from __future__ import annotations

import pytest

from pidkeeper.pipeline.verdict import Coverage, LogsCovered, covered_text

ONE = LogsCovered("/store", 1, 1, 1, 1, segments=1, segments_read=1, segment_batches=1, groups=1, group_offsets=1)
MORE = LogsCovered(
    "/store", 2, 1200, 1100, 1000, segments=3, segments_read=2, segment_batches=9, groups=2, group_offsets=4
)


@pytest.mark.parametrize(
    ("logs", "told"),
    [
        (None, []),
        (LogsCovered(), ["0 batches of partition logs in 0 objects, no store"]),
        (
            ONE,
            [
                "1 batch of partition logs in 1 object, of which 1 was read",
                "1 batch in 1 of 1 segment, 0 of 0 offsets",
                "1 group with 1 offset",
            ],
        ),
        (
            MORE,
            [
                "1,200 batches of partition logs in 1,100 objects, of which 1,000 were read",
                "9 batches in 2 of 3 segments, 0 of 0 offsets",
                "2 groups with 4 offsets",
            ],
        ),
    ],
)
def test_one_of_a_kind_is_not_several(logs: LogsCovered | None, told: list[str]) -> None:
    members = "members 1, 2 of a quorum with 3 voters, log offsets 0 to 9"
    assert covered_text(Coverage(["1", "2"], 3, 0, 10, logs=logs)) == "; ".join([members, *told])
