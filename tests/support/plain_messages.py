"""Messages of Kafka's protocol as plain dicts in Kafka's names, through two codecs that are not ours.

A dict may have more fields than a version: each codec takes those of its schema. So one dict serves all versions.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import typing
import uuid
from typing import Any, Final

from tests.support.kafka_oracles import (
    KAFKA_PYTHON,
    kafka_python_request,
    kafka_python_response,
    kio_request,
    kio_response,
    kio_type,
)

Plain = dict[str, Any]

CORRELATION_ID: Final = 77
CLIENT_ID: Final = "client"
_ONLY_IN_KIO: Final = {"authorized_operations", "cluster_authorized_operations", "topic_authorized_operations"}
"""kafka-python has other names and another form for these."""

NO_UUID: Final = uuid.UUID(int=0)


def requests(api: str, version: int, message: Plain) -> list[bytes]:
    """The request as each codec frames it, without the length field; they must agree."""
    fields = _kafka_python_fields(KAFKA_PYTHON[api][0], version, message)
    theirs = kafka_python_request(api, version, CORRELATION_ID, CLIENT_ID, **fields)
    entity = _kio(kio_type(api, version, "request"), message)
    fields = {field.name: getattr(entity, field.name) for field in dataclasses.fields(entity)}
    frames = [theirs, kio_request(api, version, CORRELATION_ID, CLIENT_ID, **fields)]
    assert frames[0] == frames[1], f"{api} {version}: the codecs disagree"
    return frames


def response(api: str, version: int, frame: bytes) -> Plain:
    """What both codecs read in a response frame without its length field; they must agree."""
    correlation_id, entity = kio_response(api, version, frame)
    assert correlation_id == CORRELATION_ID
    plain: Plain = _plain(entity)
    other = kafka_python_response(api, version, frame).to_dict(json=False)
    assert _without_tags(plain, other) == plain, f"{api} {version}: the codecs disagree"
    return plain


def of_version(api: str, version: int, message: Plain) -> Plain:
    """The fields of `message` that this version's response has."""
    plain: Plain = _plain(_kio(kio_type(api, version, "response"), message))
    return plain


def _kafka_python_fields(container: Any, version: int, message: Plain) -> Plain:
    found = {}
    for name, field in container._struct.fields.items():
        if name not in message or not field.for_version_q(version):
            continue
        value = message[name]
        if field.is_struct_array() and value is not None:
            inner = field.data_class
            value = [inner(version=version, **_kafka_python_fields(inner, version, each)) for each in value]
        found[name] = value
    return found


def _kio(kind: Any, message: Plain) -> Any:
    hints = typing.get_type_hints(kind)
    found = {}
    for field in dataclasses.fields(kind):
        in_ms = f"{field.name}_ms"
        if in_ms in message and field.metadata["kafka_type"] == "datetime_i64":
            assert message[in_ms] == -1
        elif in_ms in message:
            found[field.name] = dt.timedelta(milliseconds=message[in_ms])
        elif field.name in message:
            found[field.name] = _kio_value(hints[field.name], message[field.name])
    return kind(**found)


def _kio_value(hint: Any, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_kio(_element(hint), each) if isinstance(each, dict) else each for each in value)
    if value == NO_UUID:
        return None
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint(value)
    return value


def _element(hint: Any) -> Any:
    """X of tuple[X, ...], or of that or None."""
    for one in (hint, *typing.get_args(hint)):
        if typing.get_origin(one) is tuple:
            return typing.get_args(one)[0]
    raise AssertionError(f"{hint} is no tuple")


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        untagged = [field for field in dataclasses.fields(value) if "tag" not in field.metadata]
        return dict(_plain_field(field, getattr(value, field.name)) for field in untagged)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, enum.Enum):
        return value.value
    return value


def _plain_field(field: dataclasses.Field[Any], value: Any) -> tuple[str, Any]:
    if isinstance(value, dt.timedelta):
        return f"{field.name}_ms", round(value / dt.timedelta(milliseconds=1))
    if value is None and field.metadata.get("kafka_type") == "uuid":
        return field.name, NO_UUID
    if field.metadata.get("kafka_type") == "datetime_i64":
        return f"{field.name}_ms", -1 if value is None else round(value.timestamp() * 1000)
    return field.name, _plain(value)


def _without_tags(shape: Any, value: Any) -> Any:
    """`value` with the fields of `shape` alone, all the way down."""
    if isinstance(shape, dict):
        return {
            name: each if name in _ONLY_IN_KIO else _without_tags(each, value[name]) for name, each in shape.items()
        }
    if isinstance(shape, list) and isinstance(value, list) and len(shape) == len(value):
        return [_without_tags(one, other) for one, other in zip(shape, value, strict=True)]
    return value
