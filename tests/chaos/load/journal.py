"""What everybody who asks the cluster was told, and when, on disk as it goes: a run that fails keeps all of it.

In one directory, for each actor by its name: `NAME.operations.jsonl`, a line when something is asked for and one when
its outcome is known; `NAME.AGENT.ids`, the IDs that it claimed from an agent as int64, and `NAME.AGENT.chunks`, two
int64 for each piece of them: when it came, and how many IDs it had. Nothing waits in a buffer of this process: what
was asked for is in the file before it is sent. All times are nanoseconds of the machine's monotonic clock, which all
processes share and no fault of a wall clock moves.
"""

from __future__ import annotations

import enum
import os
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, NamedTuple, Self

import msgspec
import numpy as np
import numpy.typing as npt

OPERATIONS: Final = ".operations.jsonl"
IDS: Final = ".ids"
CHUNKS: Final = ".chunks"
ID_BYTES: Final = 8
CHUNK_BYTES: Final = 16

clock = time.monotonic_ns


class JournalError(Exception):
    """A file of a journal cannot be what an actor wrote."""


class Outcome(enum.StrEnum):
    """REFUSED: nothing was done, and nothing will be. UNKNOWN: it may have been, or may be yet."""

    OK = "ok"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class Invoked(msgspec.Struct, frozen=True, tag="invoked", tag_field="line"):
    """Operation `number` of an actor is begun."""

    number: int
    at: int
    kind: str
    arguments: dict[str, Any]


class Returned(msgspec.Struct, frozen=True, tag="returned", tag_field="line", omit_defaults=True):
    """What came of it. `result`: of one that is ok; `code`: why not, as far as somebody said."""

    number: int
    at: int
    outcome: Outcome
    result: dict[str, Any] | None = None
    code: str = ""


class Entry(NamedTuple):
    """One operation. `returned` is None, and the outcome UNKNOWN, where nothing was heard before the actor ended."""

    actor: str
    number: int
    kind: str
    arguments: dict[str, Any]
    invoked: int
    returned: int | None
    outcome: Outcome
    result: dict[str, Any]
    code: str


class Claimed(NamedTuple):
    """What one actor claimed from one agent: the IDs in order of their coming, and (time, count) of each piece."""

    actor: str
    agent: int
    ids: npt.NDArray[np.int64]
    chunks: npt.NDArray[np.int64]


class ActorJournal:
    """Writes the files of one actor. An actor that is started again goes on in them. Use as a context manager."""

    def __init__(self, directory: Path, actor: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.actor = actor
        path = directory / f"{actor}{OPERATIONS}"
        self._next = _lines_in(path)
        self._operations: BinaryIO = path.open("ab", buffering=0)
        self._claims: dict[int, ClaimFiles] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._operations.close()
        for files in self._claims.values():
            files.close()

    def invoke(self, kind: str, **arguments: Any) -> int:
        """An operation is about to be sent; returns its number."""
        number = self._next
        self._next += 1
        self._write(Invoked(number, clock(), kind, arguments))
        return number

    def ok(self, number: int, result: dict[str, Any] | None = None) -> None:
        """It was done."""
        self._write(Returned(number, clock(), Outcome.OK, result))

    def refuse(self, number: int, code: str) -> None:
        """It was not done, and will not be."""
        self._write(Returned(number, clock(), Outcome.REFUSED, None, code))

    def unknown(self, number: int, code: str) -> None:
        """Nobody can say whether it was done."""
        self._write(Returned(number, clock(), Outcome.UNKNOWN, None, code))

    def claims(self, agent: int) -> ClaimFiles:
        """Where the IDs go that are claimed from this agent."""
        if agent not in self._claims:
            self._claims[agent] = ClaimFiles(self.directory / f"{self.actor}.{agent}")
        return self._claims[agent]

    def _write(self, line: Invoked | Returned) -> None:
        _write_all(self._operations, msgspec.json.encode(line) + b"\n")


class ClaimFiles:
    """The IDs that one actor claims from one agent."""

    def __init__(self, stem: Path) -> None:
        self._ids = _continued(stem.with_name(stem.name + IDS), ID_BYTES)
        self._chunks = _continued(stem.with_name(stem.name + CHUNKS), CHUNK_BYTES)

    def take(self, ids: array[int]) -> None:
        """They have just come, in one piece."""
        _write_all(self._ids, ids.tobytes())
        _write_all(self._chunks, array("q", (clock(), len(ids))).tobytes())

    def close(self) -> None:
        """Nothing more comes."""
        self._ids.close()
        self._chunks.close()


def entries(directory: Path) -> Iterator[Entry]:
    """All operations of all actors, each actor's as their outcomes came, those without at last. Raises JournalError."""
    paths = sorted(directory.glob(f"*{OPERATIONS}"))
    if not paths:
        raise JournalError(f"{directory} holds no journal: there is no *{OPERATIONS} in it")
    for path in paths:
        yield from _entries_of(path)


def claims(directory: Path) -> Iterator[Claimed]:
    """All IDs that were claimed, by actor and agent. Raises JournalError."""
    for path in sorted(directory.glob(f"*{IDS}")):
        actor, _, agent = path.name.removesuffix(IDS).rpartition(".")
        if not actor or not agent.isdecimal():
            raise JournalError(f"{path}: the name does not say whose IDs of which agent these are")
        chunks = _integers(path.with_suffix(CHUNKS), CHUNK_BYTES).reshape(-1, 2)
        yield Claimed(actor, int(agent), _integers(path, ID_BYTES), chunks)


def _entries_of(path: Path) -> Iterator[Entry]:
    actor = path.name.removesuffix(OPERATIONS)
    begun: dict[int, Invoked] = {}
    with path.open("rb") as file:
        for row, text in enumerate(file, 1):
            if not text.endswith(b"\n"):
                # Cut off when its writer was killed.
                break
            line = _line(path, row, text)
            if isinstance(line, Invoked):
                begun[line.number] = line
            elif line.number not in begun:
                raise JournalError(f"{path}:{row}: an outcome of operation {line.number}, which is not under way")
            else:
                yield _entry(actor, begun.pop(line.number), line)
    for asked in begun.values():
        yield _entry(actor, asked, None)


def _entry(actor: str, asked: Invoked, told: Returned | None) -> Entry:
    return Entry(
        actor=actor,
        number=asked.number,
        kind=asked.kind,
        arguments=asked.arguments,
        invoked=asked.at,
        returned=None if told is None else told.at,
        outcome=Outcome.UNKNOWN if told is None else told.outcome,
        result=(told and told.result) or {},
        code="" if told is None else told.code,
    )


def _line(path: Path, row: int, text: bytes) -> Invoked | Returned:
    try:
        return msgspec.json.decode(text, type=Invoked | Returned)
    except msgspec.DecodeError as error:
        raise JournalError(f"{path}:{row}: not a line of a journal: {error}") from error


def _integers(path: Path, size: int) -> npt.NDArray[np.int64]:
    """The whole groups of `size` bytes in a file; the rest was cut off when its writer was killed."""
    content = path.read_bytes() if path.exists() else b""
    return np.frombuffer(content[: len(content) // size * size], np.int64)


def _continued(path: Path, size: int) -> BinaryIO:
    """A file of such groups, to go on in."""
    if path.exists():
        os.truncate(path, path.stat().st_size // size * size)
    return path.open("ab", buffering=0)


def _lines_in(path: Path) -> int:
    """The lines of the file of an actor that ran before; a last one without an end is cut off."""
    if not path.exists():
        return 0
    content = path.read_bytes()
    os.truncate(path, content.rfind(b"\n") + 1)
    return content.count(b"\n")


def _write_all(file: BinaryIO, content: bytes) -> None:
    """A raw file may take a part of it only."""
    while content:
        content = content[file.write(content) :]
