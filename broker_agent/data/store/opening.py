"""From the setting that says where the bytes live to the store."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pidkeeper.broker_agent.data.store.local import LocalStore
from pidkeeper.broker_agent.data.store.port import ObjectStore
from pidkeeper.disk.files import OsFiles

EXTRA: Final = "pip install 'pidkeeper[store]'"


def open_store(location: str, options: Mapping[str, str]) -> ObjectStore:
    """The store at `location`: a directory's path, or `s3://`, `gs://` or `az://` and a bucket and prefix.

    `options` are a remote store's, see `open_remote`; a directory has none. Raises ValueError for what is none of
    these, and StoreError. Opening a directory blocks on the disk.
    """
    if "://" in location:
        try:
            from pidkeeper.broker_agent.data.store.remote import open_remote
        except ImportError as error:
            raise ValueError(f"{location} needs obstore, which is not installed: {EXTRA}") from error
        return open_remote(location, options)
    if not location or "\0" in location:
        raise ValueError("a store is given as the path of a directory, or as s3://, gs:// or az:// and a bucket")
    if options:
        raise ValueError(f"{location} is a directory, which has no options: {', '.join(sorted(options))}")
    path = Path(location).absolute()
    _check_directory(path)
    return LocalStore(path, OsFiles())


def _check_directory(path: Path) -> None:
    """Raise ValueError if there is something else in the directory's place, which no waiting turns into one."""
    for level in (path, *path.parents):
        # What cannot be looked at may be there tomorrow: opening it says what is wrong.
        with contextlib.suppress(PermissionError):
            if level.exists() and not level.is_dir():
                raise ValueError(f"{level} is no directory")
