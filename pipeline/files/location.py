"""Where a file or a directory is: on this machine, or by URI on any file system that pyarrow or else fsspec knows.

A path without a scheme is local and needs neither. In a URI, SCHEME://AUTHORITY/PATH, the path is taken as it stands,
without percent-decoding, as Hadoop does; `s3a` is pyarrow's `s3`. A `?name=value` at its end is for pyarrow's file
system, as `?region=eu-west-1`. Credentials are where each library looks for them, the same for reading and for writing.
"""

from __future__ import annotations

import contextlib
import functools
import io
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from pidkeeper.pipeline.files import local
from pidkeeper.pipeline.files.system import Entry, System, join

_SCHEME: Final = "://"
_HERE: Final = "file:///"
_QUERY: Final = re.compile(r"\?\w+=(?:://|[^/*?\[])*$")
_EXTRA: Final = "pip install 'pidkeeper[audit]'"
_NO_LIBRARY: Final = re.compile(r"Unable to load lib|attempt to load lib")
"""What pyarrow says where libhdfs or its Java is not there."""
_REFUSED: Final = re.compile("AWS Error (?:ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH)")
_WEB_HDFS: Final = ("webhdfs", "swebhdfs")
_ABSENT: Final = (FileNotFoundError, NotADirectoryError)
_KINDS: Final = (PermissionError, IsADirectoryError)
MAX_SYSTEMS: Final = 64
"""File systems that a process keeps open: far more than buckets or clusters that one audit names."""


class Location(NamedTuple):
    """`root` is empty on this machine, else the URI of the file system, and then `path` is a whole URI as well, so that
    equal locations are one file. It can be sent to other processes. Every method may raise OSError with a message for
    the user; where nothing is, FileNotFoundError.
    """

    root: str
    path: str

    def __str__(self) -> str:
        return self.path

    def __truediv__(self, name: str) -> Location:
        return Location(self.root, join(self.path, name))

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def parent(self) -> Location:
        """The directory around it; that of the uppermost one is itself."""
        return Location(self.root, parent(self.path))

    @property
    def local(self) -> Path | None:
        """Where it is on this machine, by a path or by file:///; None on another file system."""
        return Path(self.path.removeprefix("file://")) if self.root in {"", _HERE} else None

    # Reading.

    def entry(self) -> Entry:
        """What it is, how large, and the stamp of what is in it."""
        with self._explained("read"):
            return self._system.info(self._inner)

    def exists(self) -> bool:
        """Raises OSError if that cannot be known."""
        return self.stamp() != "-"

    def stamp(self) -> str:
        """Another text whenever the file was written, by length and time of modification; "-" if nothing is there."""
        try:
            return self.entry().stamp
        except _ABSENT:
            return "-"

    def entries(self) -> list[Entry]:
        """What is in the directory, sorted by name."""
        with self._explained("read"):
            return sorted(self._system.entries(self._inner))

    def names(self) -> list[str]:
        """What is in the directory, sorted; nothing if it is not there."""
        try:
            return [entry.name for entry in self.entries()]
        except _ABSENT:
            return []

    def below(self) -> Iterator[Entry]:
        """All files at any depth, named by their paths from here."""
        with self._explained("read"):
            yield from self._system.below(self._inner)

    def open(self) -> BinaryIO:
        """For reading at any position."""
        with self._explained("read"):
            return self._system.open(self._inner)

    def read(self, limit: int | None = None) -> bytes:
        """All bytes, or the first `limit`."""
        with self._explained("read"), self._system.open(self._inner) as file:
            return file.read() if limit is None else file.read(limit)

    def arrow(self) -> tuple[Any, str]:
        """The FileSystem and the path that pyarrow knows it by. Raises ImportError without pyarrow."""
        return self._system.arrow(self._inner)

    # Writing.

    def write(self, data: bytes) -> None:
        """Replace the file at once: whoever reads meanwhile sees the old one or this, and never a part.

        It is durable here. On HDFS behind a gateway, and on systems of fsspec that are no object stores, a reader may
        see none for a moment. Who reads a file over HTTP that is replaced by a longer or shorter one gets an error.
        """
        with self._explained("written"):
            self._system.put(self._inner, io.BytesIO(data), replace=True)

    def create(self, data: bytes) -> None:
        """The same, only where nothing is. Raises FileExistsError.

        Of several who try at once, one succeeds: here, on HDFS over HTTP, on object stores by fsspec. On those by
        pyarrow, which cannot ask S3 for it, two that try within the same moment may both believe that they did.
        """
        with self._explained("written"):
            self._system.put(self._inner, io.BytesIO(data), replace=False)

    @contextlib.contextmanager
    def writing(self, *, replace: bool = True) -> Iterator[BinaryIO]:
        """A file that gets its name when the block ends, and not at all if it fails. See `write` and `create`.

        On other file systems it is kept in a temporary file of this machine until then.
        """
        if (here := self.local) is not None:
            with local.writing(str(here), replace=replace) as file:
                yield file
            return
        with tempfile.TemporaryFile(prefix="pidkeeper-") as file:
            yield file
            file.seek(0)
            with self._explained("written"):
                self._system.put(self._inner, file, replace=replace)

    def make(self) -> None:
        """Create the directory, with those above it. No file needs it; it shows early what may not be written to."""
        with self._explained("written"):
            self._system.make(self._inner)

    def delete(self) -> None:
        """The file, or the directory with all that is in it; nothing happens if it is not there."""
        with contextlib.suppress(*_ABSENT), self._explained("deleted"):
            self._system.delete(self._inner)

    @property
    def _system(self) -> System:
        return system_of(self.root)

    @property
    def _inner(self) -> str:
        """The path as its file system has it."""
        start = self.root.partition("?")[0].removesuffix("/")
        assert self.path.startswith(start), f"{self.path} is not on {self.root}"
        return self.path[len(start) :] or "/"

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """What libraries say of other file systems, with the name and with advice."""
        try:
            yield
        except OSError as error:
            if not self.root:
                raise
            if isinstance(error, _ABSENT):
                raise type(error)(f"there is nothing at {self}") from error
            if isinstance(error, FileExistsError):
                raise FileExistsError(f"{self} is there already") from error
            kind = next((kind for kind in _KINDS if isinstance(error, kind)), OSError)
            raise kind(f"{self} cannot be {what}: {_with_advice(str(error) or kind.__name__)}") from error


def locate(path: str | Path) -> Location:
    """A path or a URI as it stands, without wildcards. Raises OSError for a URI with a password."""
    if isinstance(path, Path) or _SCHEME not in path:
        return Location("", str(Path(path).absolute()))
    query = _QUERY.search(path)
    scheme, _, rest = path[: query.start() if query else None].partition(_SCHEME)
    authority, _, inner = rest.partition("/")
    if ":" in authority.rpartition("@")[0]:
        raise OSError(f"{scheme}{_SCHEME}...@: name no password in a URI, for it would be in every table and report")
    start = f"{scheme}{_SCHEME}{authority}/"
    return Location(start + (query[0] if query else ""), start + inner.rstrip("/"))


def is_uri(path: str | Path) -> bool:
    """Whether it is for another file system, or file:///."""
    return isinstance(path, str) and _SCHEME in path


def parent(path: str) -> str:
    """The directory around a path or a URI; that of the uppermost one is itself."""
    above = path.rpartition("/")[0]
    if above.endswith(":/"):
        return path
    return f"{above}/" if not above or above.endswith(_SCHEME) else above


def _with_advice(failure: str) -> str:
    """A message of a library, with what to do about it where that is known."""
    if _REFUSED.search(failure) is None:
        return failure
    return (
        f"{failure.rstrip('.')}; the credentials are those of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, else of the "
        "profile that AWS_PROFILE names, else of this machine's role"
    )


@functools.lru_cache(MAX_SYSTEMS)
def system_of(root: str) -> System:
    """The file system of a root. Raises OSError with a reason if there is none."""
    scheme = root.partition(_SCHEME)[0]
    if root in {"", _HERE}:
        return local.LocalSystem()
    if scheme in _WEB_HDFS:
        return _by_fsspec(root, scheme)
    try:
        from pyarrow import fs

        from pidkeeper.pipeline.files.arrow_system import ArrowSystem

        system, base = fs.FileSystem.from_uri(re.sub(r"^s3a://", "s3://", root))
    except (ImportError, NotImplementedError):  # this build of pyarrow has no such file system
        return _by_fsspec(root, scheme)
    except ValueError as error:
        if "?" not in root:
            return _by_fsspec(root, scheme)
        raise OSError(str(error)) from error
    except OSError as error:
        if _NO_LIBRARY.search(str(error)) is None:
            raise
        raise OSError(
            f"{scheme}:// needs Hadoop's native library libhdfs, which is not here; name "
            "webhdfs://NAMENODE:9870/PATH, which needs none, or install it and set HADOOP_HOME and JAVA_HOME"
        ) from error
    return ArrowSystem(system, base)


def _by_fsspec(root: str, scheme: str) -> System:
    try:
        from fsspec.core import url_to_fs

        from pidkeeper.pipeline.files.fsspec_system import FsspecSystem

        uri = root.partition("?")[0]
        if scheme in _WEB_HDFS:
            from pidkeeper.pipeline.files.web_hdfs import web_hdfs

            return web_hdfs(uri)
        return FsspecSystem(*url_to_fs(uri, use_listings_cache=False))
    except ImportError as error:
        missing = f"{error}; fsspec, requests and pyarrow come with {_EXTRA}"
        raise OSError(f"nothing here knows {scheme}://: {missing}") from error
    except ValueError as error:
        raise OSError(f"no file system is known for {scheme}:// ({error})") from error
