"""A copy that is not one is told as such."""

from __future__ import annotations

import pytest

from tests.copying.judgement import wrong


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("abc", None),
        ("abbc", "1 messages were copied more than once, as b"),
        ("ac", "1 messages were not copied, as b"),
        ("abcx", "1 messages are of nobody, as x"),
        ("acb", "at 1 is c where b was to be copied"),
        ("", "3 messages were not copied, as a"),
    ],
)
def test_each_message_once_and_in_order(target: str, told: str | None) -> None:
    assert wrong("abc", target) == told
