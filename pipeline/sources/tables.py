"""What the sources share: options, rows of problems, and readers that run one function for each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pidkeeper.pipeline.formats.problems import Problem
from pidkeeper.pipeline.sources.listing import Folder

_BAD_FILE_POLICIES: Final = ("report", "fail")
_INT64: Final = range(-(2**63), 2**63)

Rows = Iterator[Any]
"""Tuples, or Arrow record batches."""


class BadFileError(RuntimeError):
    """A file is bad, and `on_bad_file` says that this ends the reading. The message names the file and the byte."""


class TableOptions(NamedTuple):
    """`table`: which one. `fail`: whether a bad file ends the reading."""

    table: str
    fail: bool


class Partition(InputPartition):
    """What one task reads."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)


class TableReader(DataSourceReader):
    """Reads each of `parts` by `read_part`, on an executor."""

    def __init__(self, parts: Sequence[Any], read_part: Callable[[Any], Rows]) -> None:
        self._parts = parts
        self._read_part = read_part

    def partitions(self) -> list[InputPartition]:
        """One for each part."""
        return [Partition(part) for part in self._parts]

    def read(self, partition: InputPartition) -> Rows:
        """The rows of one part. Spark makes a partition without a value where there is none."""
        return iter(()) if partition.value is None else self._read_part(partition.value)


def parse_options(options: Mapping[str, str], tables: Mapping[str, StructType]) -> TableOptions:
    """Raises ValueError for a table or a policy that is none; the default table is the first."""
    table = options.get("table", next(iter(tables)))
    policy = options.get("on_bad_file", _BAD_FILE_POLICIES[0])
    if table not in tables:
        raise ValueError(f'there is no table "{table}": name one of {", ".join(tables)}')
    if policy not in _BAD_FILE_POLICIES:
        raise ValueError(f'on_bad_file is {" or ".join(_BAD_FILE_POLICIES)}, not "{policy}"')
    return TableOptions(table, policy == "fail")


def problem_row(member: str, folder: Folder, problem: Problem) -> tuple[Any, ...]:
    """The row of `schemas.PROBLEMS`."""
    file = problem.file if "/" in problem.file else folder.join(problem.file)
    return (member, file, problem.kind, problem.position, problem.index, problem.detail)


def raise_if(fail: bool, folder: Folder, problem: Problem) -> None:
    """Raise BadFileError if `fail`."""
    if fail:
        _, file, kind, position, _, detail = problem_row("", folder, problem)
        raise BadFileError(f"{file}, byte {position}: {kind}: {detail}")


def fits(values: Sequence[Any]) -> bool:
    """Whether every integer fits into a column of 64 bits."""
    return all(not isinstance(value, int) or value in _INT64 for value in values)
