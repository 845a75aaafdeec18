"""What an audit is pointed at. Needs no Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

ARCHIVE_SUFFIX: Final = ".arc"
SNAPSHOT_SUFFIX: Final = ".snap"
LOG_SUFFIX: Final = ".wal"
SUFFIXES: Final = (ARCHIVE_SUFFIX, SNAPSHOT_SUFFIX, LOG_SUFFIX)


class LoadingError(RuntimeError):
    """There is nothing to read, or a file is bad and that was to end the run; the message says which."""


class AuditPaths(msgspec.Struct, frozen=True):
    """What to read. `data`: data directories of members, directories above or below them, files, or globs.

    `segments`: log directories of Kafka brokers, or anything within. `store`: the object store of partition logs. A
    path may be a URI.
    """

    data: list[str] = []
    segments: list[str] = []
    store: str | None = None

    def having(self, suffix: str) -> list[str]:
        """Where files of one kind may be: all of `data` but the files of another kind."""
        others = tuple(other for other in SUFFIXES if other != suffix)
        return [path for path in self.data if not path.endswith(others)]


class _ClusterMember(msgspec.Struct):
    data_dir: str


class _Cluster(msgspec.Struct):
    controllers: list[_ClusterMember]


def cluster_paths(directory: Path) -> list[str]:
    """The data directories that `cluster.json` of a local cluster names. Raises LoadingError."""
    path = directory / "cluster.json"
    try:
        members = msgspec.json.decode(path.read_bytes(), type=_Cluster).controllers
    except OSError as error:
        reason = f"{path}: {error.strerror}; --cluster is a directory of `pidkeeper dev` or `pidkeeper demo --keep`"
        raise LoadingError(reason) from error
    except msgspec.DecodeError as error:
        raise LoadingError(f"{path} does not describe a cluster: {error}") from error
    return [str(directory / member.data_dir) for member in members]


def cluster_store(directory: Path) -> str | None:
    """The store that agents of a local cluster keep partition logs in; None where they keep none."""
    store = directory / "store"
    return str(store) if store.is_dir() else None
