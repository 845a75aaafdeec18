"""Runs kernels in this process, one part after the other. What a shuffle moves waits in files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from pidkeeper.pipeline.engine.engine import DIRECT, Keyed, Named

T = TypeVar("T")


class LocalEngine:
    """See `Engine`."""

    alone_bytes = 0

    def map(self, kernel: Callable[[T], Iterator[Named]], parts: Sequence[T]) -> Iterator[Named]:
        """The evidence of all parts."""
        for part in parts:
            yield from kernel(part)

    def shuffle(
        self,
        read: Callable[[T], Iterator[Keyed]],
        judge: Callable[[int, Iterator[Named]], Iterator[Named]],
        parts: Sequence[T],
        buckets: int,
    ) -> Iterator[Named]:
        """As `Engine.shuffle`. Cost on disk: what all parts put into buckets."""
        with tempfile.TemporaryDirectory(prefix="pidkeeper-shuffle-") as directory:
            files = _BucketFiles(Path(directory))
            for part in parts:
                for bucket, name, batch in read(part):
                    if bucket == DIRECT:
                        yield name, batch
                    else:
                        files.add(bucket, name, batch)
            for bucket in range(buckets):
                yield from judge(bucket, files.read(bucket))


class _BucketFiles:
    """A file for each bucket and name, of one Arrow stream after the other.

    None is open for longer than it takes to write: there may be more buckets than a process may have open files.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._names: dict[int, dict[str, None]] = {}

    def add(self, bucket: int, name: str, batch: Any) -> None:
        self._names.setdefault(bucket, {})[name] = None
        with self._path(bucket, name).open("ab") as file, pa.ipc.new_stream(file, batch.schema) as writer:
            writer.write_batch(batch)

    def read(self, bucket: int) -> Iterator[Named]:
        for name in self._names.get(bucket, ()):
            with pa.memory_map(str(self._path(bucket, name))) as source:
                while source.tell() < source.size():
                    with pa.ipc.open_stream(source) as reader:
                        for batch in reader:
                            yield name, batch

    def _path(self, bucket: int, name: str) -> Path:
        return self._directory / f"{bucket}-{name}.arrow"
