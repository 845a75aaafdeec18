"""Which releases may be members of one quorum at a time."""

from __future__ import annotations

import pytest

from pidkeeper.protocol.releases import may_meet


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("0.1.0", "0.1.9", True),
        ("0.1.0", "0.2.0", True),
        ("0.1.0", "0.3.0", False),
        ("0.9.0", "0.10.0", True),
        ("0.1.0", "0.10.0", False),
        ("0.9.4", "1.0.0", True),
        ("0.9.4", "1.1.0", False),
        ("1.0.0", "3.0.0", False),
        ("1.4.0rc1", "1.5.0.dev3+g1234", True),
        ("1.4", "1.6", False),
        ("unknown", "9.9.9", True),
        ("", "9.9.9", True),
        ("v1.2.3", "9.9.9", True),
    ],
)
def test_members_may_be_one_minor_release_apart_whichever_is_the_newer(one: str, other: str, expected: bool) -> None:
    assert may_meet(one, other) is may_meet(other, one) is expected
