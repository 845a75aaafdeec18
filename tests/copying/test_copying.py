"""A short course: copiers go on exactly once while one of them, an agent and the leader are hurt."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.copying.course import KILLED, LEAVES, Course, Size
from tests.support.kafka_broker import why_unavailable
from tests.witnesses.places import ours

SHORT = Size(messages=300, copiers=2, at_copiers=(KILLED, LEAVES), at_servers=2)


def test_each_message_is_copied_once_and_in_order(tmp_path: Path) -> None:
    if (reason := why_unavailable()) is not None:
        pytest.skip(reason)
    with ours(tmp_path / "cluster") as place:
        copied = Course(place, 1, SHORT, tmp_path).copied()
    assert copied.wrong == []
