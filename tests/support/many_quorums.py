"""Many small quorums one behind the other as one, so that one audit judges all of them.

An audit of a hundred rows costs seconds of planning and next to nothing for its rows, so many cases go into one. Each
has offsets, producer IDs, brokers and files of its own, and what is found is told as if its quorum were alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from tests.support.quorum_tables import START_MS, QuorumTables, Row

OFFSET_BITS: Final = 32
ID_BITS: Final = 30
BROKER_BITS: Final = 20
"""Of the first value of a case. Above the ranges that checks cut their orders by; and what is an offset, an ID or a
broker of the case shows by its size alone, and no time, byte or member is taken for one."""
MEMBERS: Final = ("1", "2", "3")
_OFFSETS: Final = (
    *("offset", "index", "next_offset", "from_offset", "to_offset", "broker_epoch"),
    *("last_offset", "last_broker_epoch"),
)
_IDS: Final = ("first_id", "last_id", "next_producer_id", "last_first_id", "last_last_id")
_BROKERS: Final = ("broker_id", "last_broker_id")
_BITS: Final = (
    dict.fromkeys(_OFFSETS, OFFSET_BITS) | dict.fromkeys(_IDS, ID_BITS) | dict.fromkeys(_BROKERS, BROKER_BITS)
)


class ManyQuorums:
    """Add them, audit `tables`, and give the findings to `told`.

    What a check says of all blocks at once, as `burn_down` does, is told of the last one.
    """

    def __init__(self) -> None:
        self.tables = QuorumTables()
        self._count = 0
        self._next_offset = 0
        self._next_id = 0

    def add(self, alone: QuorumTables) -> int:
        """Behind those before; its number. No copy of its blocks may reach above them but as a fault of the last."""
        case, self._count = self._count, self._count + 1
        if case:
            self._fill_up_to(case)
        moved = QuorumTables()
        for name in ("blocks", "files", "snapshots", "log"):
            rows = [_moved(row, case) for row in getattr(alone, name)]
            getattr(moved, name).extend(rows)
            getattr(self.tables, name).extend(rows)
        given = [*moved.blocks, *(row for row in moved.log if row["committed"])]
        ends = [row["offset"] + 1 for row in (*moved.blocks, *moved.log)] + [row["to_offset"] for row in moved.files]
        self._next_offset = max(ends, default=case << OFFSET_BITS)
        self._next_id = max((row["last_id"] + 1 for row in given if row.get("last_id") is not None), default=0)
        self._next_id = max(self._next_id, case << ID_BITS)
        return case

    def told(self, rows: Iterable[Row]) -> list[list[Row]]:
        """The findings of each case, with the numbers and names that it has when it is alone."""
        found: list[list[Row]] = [[] for _ in range(self._count)]
        for row in rows:
            case = row["offset"] >> OFFSET_BITS if "offset" in row else row["first_id"] >> ID_BITS
            assert row.get("file", _folder(case)).startswith(_folder(case)), f"of another case: {row}"
            found[case].append(_alone(row, case))
        return found

    def _fill_up_to(self, case: int) -> None:
        """One block of the quorum's own in an archive file of each member, so that nothing is missing between two."""
        first, end = self._next_id, case << OFFSET_BITS
        ids = {"first_id": first, "last_id": (case << ID_BITS) - 1}
        for member in MEMBERS:
            file = {"member": member, "cluster_id": "c", "file": f"between/{member}/{case}.arc"}
            block = {"position": 128, "offset": end - 1, "broker_id": -1, "broker_epoch": -1, "timestamp_ms": START_MS}
            self.tables.blocks.append(file | ids | block)
            covers = {"from_offset": self._next_offset, "to_offset": end, "rows": 1, "superseded": False}
            self.tables.files.append(file | ids | covers | {"bytes": 176})


def judge(cases: Iterable[QuorumTables], audit: Callable[[QuorumTables], Iterable[Row]]) -> list[list[Row]]:
    """What one audit of all of them finds in each."""
    many = ManyQuorums()
    for case in cases:
        many.add(case)
    return many.told(audit(many.tables))


def _folder(case: int) -> str:
    return f"case{case}/"


def _moved(row: Row, case: int) -> Row:
    """-1 is nobody: it stays."""
    other = row | {"file": _folder(case) + row["file"]}
    for name, bits in _BITS.items():
        value = row.get(name)
        if value is not None and value >= 0:
            assert value < 1 << bits, f"{name} {value} is that of another case"
            other[name] = value + (case << bits)
    return other


def _alone(row: Row, case: int) -> Row:
    return {
        name: _text(value, case) if isinstance(value, str) else _value(name, value, case) for name, value in row.items()
    }


def _value(name: str, value: Any, case: int) -> Any:
    return value - (case << _BITS[name]) if name in _BITS and value >= 0 else value


def _text(text: str, case: int) -> str:
    return re.sub(r"\d+", lambda found: str(_number(int(found[0]), case)), text.replace(_folder(case), ""))


def _number(number: int, case: int) -> int:
    for bits in (ID_BITS, OFFSET_BITS, BROKER_BITS):
        if case and number >> bits == case:
            return number - (case << bits)
    return number
