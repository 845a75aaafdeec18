"""HDFS over HTTP by fsspec, which needs nothing native; made to fail where it would give wrong bytes or wait for ever.

`webhdfs://[USER@]NAMENODE[:PORT]/PATH`, with `swebhdfs` for HTTPS. Without a user it is the HADOOP_USER_NAME of the
environment, else HDFS takes the caller for nobody in particular. Kerberos and tokens are set where fsspec looks for
them, as FSSPEC_WEBHDFS_KERBEROS=true in the environment (with `requests-kerberos` installed).
"""

from __future__ import annotations

import contextlib
import functools
import os
from typing import Any, BinaryIO, Final

from fsspec.config import conf
from fsspec.implementations.webhdfs import WebHDFile, WebHDFS

from pidkeeper.pipeline.files.fsspec_system import FsspecSystem
from pidkeeper.pipeline.files.system import temporary

ANSWER_SECONDS: Final = 60.0
"""Between two packets of an answer. A server that is silent for so long has died or hangs."""
_PORTS: Final = {False: 9870, True: 9871}
"""Hadoop's own, by whether it is HTTPS."""
_BAD: Final = 400
_CREATED: Final = (200, 201)
_FORBIDDEN: Final = {"AccessControlException", "SecurityException"}
_BYTES: Final = {"content-type": "application/octet-stream"}


class CheckedWebHdfs(WebHDFS):  # type: ignore[misc] # fsspec has no types
    """Every failure is an OSError with the address in it; `mtime` is in what it says of a file."""

    def _connect(self) -> None:
        super()._connect()
        self.session.request = functools.partial(self.session.request, timeout=ANSWER_SECONDS)
        self.session.hooks["response"].append(self._refuse)

    def _refuse(self, response: Any, **_: Any) -> None:
        """A DataNode's error would be taken for the bytes of the file; what the NameNode says is looked at."""
        if not response.url.startswith(self.url):
            _raise_for(response)

    def _call(self, *arguments: Any, **named: Any) -> Any:
        try:
            return super()._call(*arguments, **named)
        except (FileNotFoundError, PermissionError):
            raise
        except (OSError, RuntimeError, ValueError) as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)  # behind it Java has its traces
            raise OSError(f"{self.url}: {reason}") from error

    @staticmethod
    def _process_info(info: dict[str, Any]) -> Any:
        return WebHDFS._process_info(info) | {"mtime": info["modificationTime"]}

    def ls(self, path: str, detail: bool = False, **_: Any) -> Any:
        found = self._call("LISTSTATUS", path=path).json()["FileStatuses"]["FileStatus"]
        infos = [self._process_info(each) | {"name": f"{path.rstrip('/')}/{each['pathSuffix']}"} for each in found]
        return infos if detail else [info["name"] for info in infos]

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **named: Any) -> _CheckedFile:
        if mode != "rb":
            # fsspec creates an empty file under its name and appends to it.
            raise NotImplementedError(f"{path}: a file is written by create(), at once")
        return _CheckedFile(self, path, mode=mode, block_size=block_size or self.blocksize, tempdir="", **named)

    def create(self, path: str, file: BinaryIO) -> None:
        """A file with all of `file`, which is at its start, and the directories above it. Raises OSError."""
        told = self._call("CREATE", "put", path, redirect=False, overwrite="false")
        if (place := told.headers.get("Location")) is None:
            raise OSError(f"{self.url}: no DataNode was named for {path}")
        sent = self.session.put(self._apply_proxy(place), data=file, headers=_BYTES, allow_redirects=False)
        _raise_for(sent)
        if sent.status_code not in _CREATED:
            raise OSError(f"{self.url}: a DataNode answered {sent.status_code} {sent.reason} to {path}")

    def rename(self, source: str, target: str, *, replace: bool) -> None:
        """In one step, in one directory. Raises FileExistsError if something is there that is not to be replaced.

        The option is in no documentation of WebHDFS, but Hadoop's own client sends it since 2.0, and NameNodes obey. A
        gateway that does not know it (HttpFS) refuses to replace and says so: then for a moment no file is there.
        """
        named = {"path": source, "destination": target}
        told = self._rename(named, "OVERWRITE" if replace else "NONE", target)
        if told is False and replace:
            self._call("DELETE", "delete", target, recursive="false")
            told = self._rename(named, "OVERWRITE", target)
        if told is False:
            if not replace:
                raise FileExistsError(target)
            raise OSError(f"{self.url}: {source} could not be renamed to {target}")

    def _rename(self, named: dict[str, str], option: str, target: str) -> bool | None:
        """What a rename without options answers; None if it had one."""
        try:
            answer = self._call("RENAME", "put", renameoptions=option, **named)
        except OSError as error:
            if isinstance(error.__cause__, RuntimeError) and "already exists" in str(error):
                raise FileExistsError(target) from error
            raise
        return answer.json()["boolean"] if answer.content else None


class _CheckedFile(WebHDFile):  # type: ignore[misc] # fsspec has no types
    """Whole ranges or none."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        due = max(min(end, self.size) - max(start, 0), 0)
        data: bytes = super()._fetch_range(start, end)
        if len(data) != due:
            raise OSError(f"{self.path}: {len(data)} bytes came from byte {start} on instead of {due}")
        return data


class WebHdfsSystem(FsspecSystem):
    """A file is written under a name that nobody looks for, and renamed when a DataNode has all of it."""

    def put(self, path: str, file: BinaryIO, *, replace: bool) -> None:
        unfinished = temporary(path)
        try:
            self._system.create(unfinished, file)
            self._system.rename(unfinished, path, replace=replace)
        except BaseException:
            with contextlib.suppress(OSError):
                self._system.rm(unfinished)
            raise

    def delete(self, path: str) -> None:
        self.info(path)
        self._system.rm(path, recursive=True)


def web_hdfs(uri: str) -> WebHdfsSystem:
    """The file system of a URI. Raises ValueError for a URI without a host."""
    secure = uri.startswith("swebhdfs://")
    where = CheckedWebHdfs._get_kwargs_from_urls(uri)
    if not where.get("host"):
        raise ValueError("name the NameNode and its HTTP port, as webhdfs://namenode:9870/path")
    configured = conf.get("webhdfs", {}).keys() & {"user", "token", "kerberos"}
    if "user" not in where and not configured and (user := os.environ.get("HADOOP_USER_NAME")):
        where["user"] = user
    return WebHdfsSystem(
        CheckedWebHdfs(**{"port": _PORTS[secure]} | where, use_https=secure, use_listings_cache=False), ""
    )


def _raise_for(response: Any) -> None:
    """Raise OSError for an answer that is no success, with what Hadoop said."""
    if response.status_code < _BAD:
        return
    kind: type[OSError] = OSError
    try:
        told = response.json()["RemoteException"]
        kind = PermissionError if told["exception"] in _FORBIDDEN else OSError
        reason = f"{told['exception']}: {told['message'].splitlines()[0]}"
    except (ValueError, KeyError, TypeError, IndexError):
        reason = f"HTTP error {response.status_code} {response.reason}"
    raise kind(f"{response.url.partition('?')[0]}: {reason}")
