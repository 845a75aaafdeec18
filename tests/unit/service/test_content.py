"""Media types."""

from __future__ import annotations

import pytest

from pidkeeper.service.content import prefers_msgpack


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("application/msgpack", True),
        ("APPLICATION/MSGPACK", True),
        ("application/msgpack;q=0.9, application/json;q=0.5", True),
        ("application/json;q=0.5, */*", True),
        ("application/json, application/msgpack", False),
        ("application/msgpack;q=0.1, */*", False),
        ("application/msgpack;q=0", False),
        ("application/msgpack;q=nonsense", False),
        ("text/html", False),
        ("application/*", False),
        ("", False),
        (",;,=", False),
    ],
)
def test_msgpack_only_where_it_is_ranked_higher(accept: str, expected: bool) -> None:
    assert prefers_msgpack(accept) is expected
