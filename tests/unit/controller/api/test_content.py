"""Media types and integer parameters."""

from __future__ import annotations

import pytest
from multidict import MultiDict

from pidkeeper.controller.api.content import decode_parameters, prefers_msgpack, quoted
from pidkeeper.controller.api.models import BlocksQuery, BrokerPath
from pidkeeper.protocol.errors import ErrorCode, RequestError


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


@pytest.mark.parametrize(
    "text", ["", "x", "+1", " 1", "1 ", "01", "1.0", "1e3", "1_0", "0x1", "-0x1", "\u0661", "9" * 20, "9" * 7000]
)
def test_only_plain_decimal_integers_are_parameters(text: str) -> None:
    with pytest.raises(RequestError, match="decimal integer") as caught:
        decode_parameters(BrokerPath, {"id": text}, "path parameter")
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert len(caught.value.detail) < 250


@pytest.mark.parametrize("text", ["-1", "2147483648", "9223372036854775807"])
def test_a_parameter_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="path parameter"):
        decode_parameters(BrokerPath, {"id": text}, "path parameter")


@pytest.mark.parametrize("text", ["0", "2147483647"])
def test_the_ends_of_the_range_are_in_it(text: str) -> None:
    assert decode_parameters(BrokerPath, {"id": text}, "path parameter").id == int(text)


def test_a_parameter_given_twice_is_refused() -> None:
    with pytest.raises(RequestError, match="more than once"):
        decode_parameters(BlocksQuery, MultiDict([("limit", "1"), ("limit", "2")]), "query parameter")


def test_an_unknown_parameter_is_refused() -> None:
    with pytest.raises(RequestError, match="offset"):
        decode_parameters(BlocksQuery, {"offset": "1"}, "query parameter")


def test_quoted_text_is_escaped_and_cut() -> None:
    assert quoted("a\r\nb") == "'a\\r\\nb'"
    assert len(quoted("x" * 10_000)) < 100
