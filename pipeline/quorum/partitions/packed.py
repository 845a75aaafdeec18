"""Packed columns of a snapshot's partition logs, as `snapshots.logs_image` has them: integers, little-endian."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

OBJECTS: Final = {
    "key": "<i8", "founding": "<u2", "broker_id": "<i8", "broker_epoch": "<i8", "number": "<i8", "object_size": "<u4",
    "batches": "<i8",
}  # fmt: skip
"""The columns by name, and what each number is stored as."""

Columns = dict[str, npt.NDArray[Any]]


def per_log(numbers: Sequence[int], packed: Sequence[Sequence[bytes]], kinds: Mapping[str, str]) -> Columns:
    """The columns of all logs one behind another, with the number of each row's log. Raises ValueError."""
    counts = []
    for number, one in zip(numbers, packed, strict=True):
        try:
            counts.append(_length(one, kinds))
        except ValueError as error:
            raise ValueError(f"log {number}: {error}") from None
    joined = [b"".join(column) for column in zip(*packed, strict=True)] if packed else [b""] * len(kinds)
    return {"log": np.repeat(np.array(numbers, np.int64), counts)} | columns(joined, kinds)


def columns(packed: Sequence[bytes], kinds: Mapping[str, str]) -> Columns:
    """Each as int64, by name. Raises ValueError if they are not as many as `kinds`, or of different lengths."""
    _length(packed, kinds)
    return {
        name: np.frombuffer(column, kind).astype(np.int64)
        for column, (name, kind) in zip(packed, kinds.items(), strict=True)
    }


def places_of(keys: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64]) -> Any:
    """Where in `keys` each of `wanted` is; null for none."""
    order = np.argsort(keys, kind="stable")
    at = np.searchsorted(keys[order], wanted)
    inside = at < len(keys)
    places = order[np.where(inside, at, 0)] if len(keys) else np.zeros(len(wanted), np.int64)
    found = inside & (keys[places] == wanted) if len(keys) else inside
    return pa.array(places, mask=~found)


def _length(packed: Sequence[bytes], kinds: Mapping[str, str]) -> int:
    if len(packed) != len(kinds):
        raise ValueError(f"{len(packed)} columns, where {len(kinds)} are kept")
    lengths = [len(column) / np.dtype(kind).itemsize for column, kind in zip(packed, kinds.values(), strict=True)]
    if len(set(lengths)) > 1 or lengths[0] % 1:
        raise ValueError(f"columns of {', '.join(f'{length:g}' for length in lengths)} rows")
    return int(lengths[0])
