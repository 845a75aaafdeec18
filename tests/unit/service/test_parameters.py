"""Parameters: plain decimal integers, within their range, once."""

from __future__ import annotations

from typing import Annotated

import msgspec
import pytest
from multidict import MultiDict

from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.service.parameters import decode_parameters
from pidkeeper.service.problems import quoted


class Path(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: int = 7


@pytest.mark.parametrize(
    "text", ["", "x", "+1", " 1", "1 ", "01", "1.0", "1e3", "1_0", "0x1", "-0x1", "\u0661", "9" * 20, "9" * 7000]
)
def test_only_plain_decimal_integers_are_parameters(text: str) -> None:
    with pytest.raises(RequestError, match="decimal integer") as caught:
        decode_parameters(Path, {"id": text}, "path parameter")
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert len(caught.value.detail) < 250


@pytest.mark.parametrize("text", ["-1", "2147483648", "9223372036854775807"])
def test_a_parameter_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="path parameter"):
        decode_parameters(Path, {"id": text}, "path parameter")


@pytest.mark.parametrize("text", ["0", "2147483647"])
def test_the_ends_of_the_range_are_in_it(text: str) -> None:
    assert decode_parameters(Path, {"id": text}, "path parameter").id == int(text)


def test_a_parameter_given_twice_is_refused() -> None:
    with pytest.raises(RequestError, match="more than once"):
        decode_parameters(Query, MultiDict([("limit", "1"), ("limit", "2")]), "query parameter")


def test_an_unknown_parameter_is_refused() -> None:
    with pytest.raises(RequestError, match="offset"):
        decode_parameters(Query, {"offset": "1"}, "query parameter")


def test_quoted_text_is_escaped_and_cut() -> None:
    assert quoted("a\r\nb") == "'a\\r\\nb'"
    assert len(quoted("x" * 10_000)) < 100
