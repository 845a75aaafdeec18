"""HDFS over HTTP by fsspec, which needs nothing native; made to fail where it would give wrong bytes or wait for ever.

`webhdfs://[USER@]NAMENODE[:PORT]/PATH`, with `swebhdfs` for HTTPS. Without a user it is the HADOOP_USER_NAME of the
environment, else HDFS takes the caller for nobody in particular. Kerberos and tokens are set where fsspec looks for
them, as FSSPEC_WEBHDFS_KERBEROS=true in the environment (with `requests-kerberos` installed).
"""

from __future__ import annotations

import functools
import os
from typing import Any, Final

from fsspec.config import conf
from fsspec.implementations.webhdfs import WebHDFile, WebHDFS

ANSWER_SECONDS: Final = 60.0
"""Between two packets of an answer. A server that is silent for so long has died or hangs."""
_PORTS: Final = {False: 9870, True: 9871}
"""Hadoop's own, by whether it is HTTPS."""


class CheckedWebHdfs(WebHDFS):  # type: ignore[misc] # fsspec has no types
    """Every failure is an OSError with the address in it; `mtime` is in what it says of a file."""

    def _connect(self) -> None:
        super()._connect()
        self.session.request = functools.partial(self.session.request, timeout=ANSWER_SECONDS)
        self.session.hooks["response"].append(self._refuse)

    def _refuse(self, response: Any, **_: Any) -> None:
        """A DataNode's error would be taken for the bytes of the file; what the NameNode says is looked at."""
        if not response.url.startswith(self.url):
            response.raise_for_status()

    def _call(self, *arguments: Any, **named: Any) -> Any:
        try:
            return super()._call(*arguments, **named)
        except (FileNotFoundError, PermissionError):
            raise
        except (OSError, RuntimeError, ValueError) as error:
            raise OSError(f"{self.url}: {error}") from error

    @staticmethod
    def _process_info(info: dict[str, Any]) -> Any:
        return WebHDFS._process_info(info) | {"mtime": info["modificationTime"]}

    def ls(self, path: str, detail: bool = False, **_: Any) -> Any:
        found = self._call("LISTSTATUS", path=path).json()["FileStatuses"]["FileStatus"]
        infos = [self._process_info(each) | {"name": f"{path.rstrip('/')}/{each['pathSuffix']}"} for each in found]
        return infos if detail else [info["name"] for info in infos]

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **named: Any) -> _CheckedFile:
        return _CheckedFile(self, path, mode=mode, block_size=block_size or self.blocksize, tempdir="", **named)


class _CheckedFile(WebHDFile):  # type: ignore[misc] # fsspec has no types
    """Whole ranges or none."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        due = max(min(end, self.size) - max(start, 0), 0)
        data: bytes = super()._fetch_range(start, end)
        if len(data) != due:
            raise OSError(f"{self.path}: {len(data)} bytes came from byte {start} on instead of {due}")
        return data


def web_hdfs(uri: str) -> Any:
    """The file system of a URI. Raises ValueError for a URI without a host."""
    secure = uri.startswith("swebhdfs://")
    where = CheckedWebHdfs._get_kwargs_from_urls(uri)
    if not where.get("host"):
        raise ValueError("name the NameNode and its HTTP port, as webhdfs://namenode:9870/path")
    configured = conf.get("webhdfs", {}).keys() & {"user", "token", "kerberos"}
    if "user" not in where and not configured and (user := os.environ.get("HADOOP_USER_NAME")):
        where["user"] = user
    return CheckedWebHdfs(**{"port": _PORTS[secure]} | where, use_https=secure, use_listings_cache=False)
