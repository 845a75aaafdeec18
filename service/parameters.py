"""Parameters in a path or a query: texts of the caller that become checked values."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final, TypeVar

import msgspec

from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.service.problems import quoted

# A sign and the 19 digits of 2^63-1: longer numbers cannot be valid, so they are never converted.
_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]{0,18})", re.ASCII)

Model = TypeVar("Model")


def decode_parameters(model: type[Model], given: Mapping[str, str], where: str, texts: Collection[str] = ()) -> Model:
    """The integers and texts in a path or a query as a value of `model`. `where` names them in an error.

    `texts`: the names of those that are no integers. Raises RequestError for a parameter that is unknown, given twice,
    out of range, or no decimal integer.
    """
    values: dict[str, int | str] = {}
    for name in given:
        text = given[name]
        if name in texts:
            values[name] = text
        elif _INTEGER.fullmatch(text) is not None:
            values[name] = int(text)
        else:
            detail = f"{where} {quoted(name)} must be a decimal integer of at most 19 digits, not {quoted(text)}"
            raise RequestError(ErrorCode.INVALID_REQUEST, detail)
    if len(values) != len(given):
        raise RequestError(ErrorCode.INVALID_REQUEST, f"a {where} is given more than once")
    try:
        return msgspec.convert(values, model)
    except msgspec.ValidationError as error:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"{where}: {error}") from error
