"""Finding and opening files: on this machine, or by URI on any file system that pyarrow or else fsspec knows.

A path without a scheme is local and needs neither. In a URI, SCHEME://AUTHORITY/PATH, the path is taken as it stands,
without percent-decoding, as Hadoop does; `s3a` is pyarrow's `s3`. A `?name=value` at its end is for pyarrow's file
system, as `?region=eu-west-1`. `*`, `?` and `[` match within one name of a path.

A file is a root and a path: the root is empty on this machine, else the URI of the file system, and then the path is
a whole URI as well, so that equal paths are one file.
"""

from __future__ import annotations

import fnmatch
import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Protocol

_SCHEME: Final = "://"
_WILD: Final = "*?["
_QUERY: Final = re.compile(r"\?\w+=(?:://|[^/*?\[])*$")
_EXTRA: Final = "pip install 'pidkeeper[audit]'"
_NO_LIBRARY: Final = re.compile(r"Unable to load lib|attempt to load lib")
"""What pyarrow says where libhdfs or its Java is not there."""
_REFUSED: Final = re.compile("AWS Error (?:ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH)")
_WEB_HDFS: Final = ("webhdfs", "swebhdfs")
_HERE: Final = "file:///"
_NO_DATA: Final = ("_", ".")
"""How names begin that Spark's writers keep for themselves, as _SUCCESS."""
MAX_SYSTEMS: Final = 64
"""File systems that a process keeps open: far more than buckets or clusters that one audit names."""


class FilePlace(NamedTuple):
    """See the module."""

    root: str
    path: str


class Entry(NamedTuple):
    """What a directory holds: `folder` says whether it is one itself."""

    name: str
    folder: bool


class _Info(NamedTuple):
    """`stamp` changes with the contents of a file, and is empty for a directory."""

    folder: bool
    stamp: str


class _System(Protocol):
    """A file system with paths of its own. All raise OSError, and FileNotFoundError where nothing is."""

    base: str

    def info(self, path: str) -> _Info: ...

    def entries(self, path: str) -> list[Entry]: ...

    def below(self, path: str) -> Iterator[str]:
        """The paths, relative to this one, of all files at any depth."""
        ...

    def open(self, path: str) -> BinaryIO: ...

    def arrow(self) -> Any:
        """The same as a FileSystem of pyarrow."""
        ...


def find_files(path: str, suffix: str) -> list[FilePlace]:
    """The files ending with `suffix` at a path: a file, a directory (all below it) or a glob; sorted.

    A file that is named outright is taken under whatever name. Raises FileNotFoundError if nothing is there and the
    path is no glob, OSError if its file system cannot be reached.
    """
    return _find_remote(path, suffix) if _SCHEME in path else _find_local(path, suffix)


def place_of(path: str) -> FilePlace:
    """A path or a URI as it stands, without wildcards. Raises OSError for a URI with a password."""
    return _split(path) if _SCHEME in path else FilePlace("", str(Path(path).absolute()))


def open_file(root: str, path: str) -> BinaryIO:
    """Raises OSError."""
    return _system(root).open(_inner(root, path)) if root else Path(path).open("rb")


def file_names(root: str, folder: str) -> list[str]:
    """The files in a directory, sorted. Raises OSError."""
    if not root:
        return sorted(entry.name for entry in os.scandir(folder) if entry.is_file())
    return sorted(entry.name for entry in _system(root).entries(_inner(root, folder)) if not entry.folder)


def data_files(root: str, folder: str) -> tuple[Any, list[str]]:
    """What Spark wrote to a directory, for pyarrow: its FileSystem, and the paths in it of all files, sorted.

    Raises FileNotFoundError or NotADirectoryError if there is no directory, OSError, ImportError without pyarrow.
    """
    if not root:
        root, folder = _HERE, f"file://{folder}"
    system, inner = _system(root), _inner(root, folder)
    if not system.info(inner).folder:
        raise NotADirectoryError(folder)
    names = [name for name in system.below(inner) if not any(part.startswith(_NO_DATA) for part in name.split("/"))]
    return system.arrow(), [join(inner, name) for name in sorted(names)]


def stamp(root: str, path: str) -> str:
    """Another text whenever a file was written: by length and time of modification; "-" if nothing is there.

    Raises OSError if another file system does not answer.
    """
    if root:
        try:
            return _system(root).info(_inner(root, path)).stamp
        except FileNotFoundError:
            return "-"
    try:
        found = Path(path).stat()
    except OSError:
        return "-"
    return f"{found.st_size}@{found.st_mtime_ns}"


def join(folder: str, name: str) -> str:
    """A path or a URI below another one."""
    return f"{folder.removesuffix('/')}/{name}"


def parent(path: str) -> str:
    """The directory around a path or a URI; that of the uppermost one is itself."""
    above = path.rpartition("/")[0]
    if above.endswith(":/"):
        return path
    return f"{above}/" if not above or above.endswith(_SCHEME) else above


# This machine.


def _is_glob(path: str) -> bool:
    return any(sign in path for sign in _WILD)


def _nothing(path: str) -> FileNotFoundError:
    return FileNotFoundError(f"there is nothing at {path}: name a file, a directory or a glob")


def _find_local(path: str, suffix: str) -> list[FilePlace]:
    exact = Path(path).absolute()
    if exact.exists():
        matches = [exact]
    elif _is_glob(path):
        matches = list(Path(exact.anchor).glob(str(exact.relative_to(exact.anchor))))
    else:
        raise _nothing(path)
    found: list[Path] = []
    for match in matches:
        if match.is_dir():
            found += [file for file in match.rglob(f"*{suffix}") if file.is_file()]
        elif match.name.endswith(suffix) or match == exact:
            found.append(match)
    return sorted(FilePlace("", str(file)) for file in found)


# Other file systems.


def _find_remote(uri: str, suffix: str) -> list[FilePlace]:
    root, whole = _split(uri)
    system = _system(root)
    folder, parts = _fixed_part(whole)
    if "**" in parts:
        raise OSError(f"{uri}: ** is for paths of this machine; name the directory above it, all below it is read")
    try:
        if parts:
            found = _below_glob(system, root, folder, parts, suffix)
        else:
            found = set(_at(system, root, whole, suffix, named=True))
    except (FileNotFoundError, PermissionError):
        raise
    except OSError as error:
        raise OSError(f"{uri} cannot be read: {_with_advice(str(error))}") from error
    return sorted(FilePlace(root, path) for path in found)


def _below_glob(system: _System, root: str, folder: str, parts: list[str], suffix: str) -> set[str]:
    matches = [folder]
    for part in parts:
        matches = [join(above, name) for above in matches for name in _matching(system, _inner(root, above), part)]
    return {path for match in matches for path in _at(system, root, match, suffix, named=False)}


def _with_advice(failure: str) -> str:
    if _REFUSED.search(failure) is None:
        return failure
    return (
        f"{failure.rstrip('.')}; the credentials are those of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, else of the "
        "profile that AWS_PROFILE names, else of this machine's role"
    )


def _at(system: _System, root: str, path: str, suffix: str, *, named: bool) -> Iterator[str]:
    inner = _inner(root, path)
    try:
        if not system.info(inner).folder:
            yield from [path] if named or path.endswith(suffix) else []
            return
    except FileNotFoundError:
        if named:
            raise _nothing(path) from None
        return
    yield from (join(path, name) for name in system.below(inner) if name.endswith(suffix))


def _matching(system: _System, folder: str, pattern: str) -> list[str]:
    if not _is_glob(pattern):
        return [pattern]
    try:
        return [entry.name for entry in system.entries(folder) if fnmatch.fnmatchcase(entry.name, pattern)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _split(uri: str) -> FilePlace:
    """The root, with what is for pyarrow, and the whole URI without it."""
    query = _QUERY.search(uri)
    scheme, _, rest = uri[: query.start() if query else None].partition(_SCHEME)
    authority, _, path = rest.partition("/")
    if ":" in authority.rpartition("@")[0]:
        raise OSError(f"{scheme}{_SCHEME}...@: name no password in a URI, for it would be in every table and report")
    start = f"{scheme}{_SCHEME}{authority}/"
    return FilePlace(start + (query[0] if query else ""), start + path.rstrip("/"))


def _fixed_part(uri: str) -> tuple[str, list[str]]:
    """The directory in front of the first wildcard, and the names from there on."""
    wild = min((uri.index(sign) for sign in _WILD if sign in uri), default=-1)
    if wild < 0:
        return uri, []
    end = uri.rindex("/", 0, wild)
    return uri[:end], uri[end + 1 :].split("/")


def _inner(root: str, path: str) -> str:
    """A path as its file system has it."""
    start = root.partition("?")[0].removesuffix("/")
    assert path.startswith(start), f"{path} is not on {root}"
    return _system(root).base + (path[len(start) :] or "/")


@functools.lru_cache(MAX_SYSTEMS)
def _system(root: str) -> _System:
    """Raises OSError with a reason if there is none."""
    scheme = root.partition(_SCHEME)[0]
    if scheme in _WEB_HDFS:
        return _fsspec_system(root, scheme)
    try:
        from pyarrow import fs

        system, base = fs.FileSystem.from_uri(re.sub(r"^s3a://", "s3://", root))
    except (ImportError, NotImplementedError):  # this build of pyarrow has no such file system
        return _fsspec_system(root, scheme)
    except ValueError as error:
        if "?" not in root:
            return _fsspec_system(root, scheme)
        raise OSError(f"{root} cannot be read: {error}") from error
    except OSError as error:
        if _NO_LIBRARY.search(str(error)) is None:
            raise OSError(f"{root} cannot be read: {error}") from error
        raise OSError(
            f"{root} cannot be read: {scheme}:// needs Hadoop's native library libhdfs, which is not here; name "
            "webhdfs://NAMENODE:9870/PATH, which needs none, or install it and set HADOOP_HOME and JAVA_HOME"
        ) from error
    return _ArrowSystem(system, base)


class _ArrowSystem:
    """One of pyarrow's own."""

    def __init__(self, system: Any, base: str) -> None:
        self._system = system
        self.base = base.rstrip("/")

    def info(self, path: str) -> _Info:
        from pyarrow import fs

        found = self._system.get_file_info(path.rstrip("/") or "/")
        if found.type == fs.FileType.NotFound:
            raise FileNotFoundError(path)
        return _Info(not found.is_file, f"{found.size}@{found.mtime_ns}" if found.is_file else "")

    def entries(self, path: str) -> list[Entry]:
        return [Entry(info.base_name, not info.is_file) for info in self._select(path, recursive=False)]

    def below(self, path: str) -> Iterator[str]:
        start = len(path.rstrip("/")) + 1
        return (info.path[start:] for info in self._select(path, recursive=True) if info.is_file)

    def open(self, path: str) -> BinaryIO:
        file: BinaryIO = self._system.open_input_file(path)
        return file

    def arrow(self) -> Any:
        return self._system

    def _select(self, path: str, *, recursive: bool) -> list[Any]:
        from pyarrow import fs

        found: list[Any] = self._system.get_file_info(fs.FileSelector(path.rstrip("/") or "/", recursive=recursive))
        return found


def _fsspec_system(root: str, scheme: str) -> _System:
    try:
        from fsspec.core import url_to_fs

        uri = root.partition("?")[0]
        if scheme in _WEB_HDFS:
            from pidkeeper.pipeline.sources.web_hdfs import web_hdfs

            return _FsspecSystem(web_hdfs(uri), "")
        return _FsspecSystem(*url_to_fs(uri, use_listings_cache=False))
    except ImportError as error:
        missing = f"{error}; fsspec, requests and pyarrow come with {_EXTRA}"
        raise OSError(f"{root} cannot be read: nothing here knows {scheme}://: {missing}") from error
    except ValueError as error:
        raise OSError(f"{root} cannot be read: no file system is known for {scheme}:// ({error})") from error


class _FsspecSystem:
    """One of fsspec. Its `find`, `isfile` and `exists` take every failure for absence, so they are not used."""

    def __init__(self, system: Any, base: str) -> None:
        self._system = system
        self.base = base.rstrip("/")

    def info(self, path: str) -> _Info:
        found = self._system.info(path)
        if found["type"] == "directory":
            return _Info(True, "")
        modified = found.get("mtime")
        # Where the time is called otherwise, fsspec has a hash of all that it knows of a file.
        return _Info(False, f"{found['size']}@{self._system.ukey(path) if modified is None else modified}")

    def entries(self, path: str) -> list[Entry]:
        names = ((found["name"].rstrip("/").rpartition("/")[2], found) for found in self._system.ls(path, detail=True))
        return [Entry(name, found["type"] == "directory") for name, found in names if name]

    def below(self, path: str) -> Iterator[str]:
        folders = [""]
        while folders:
            above = folders.pop()
            for entry in self.entries(join(path, above) if above else path):
                name = join(above, entry.name) if above else entry.name
                if entry.folder:
                    folders.append(name)
                else:
                    yield name

    def open(self, path: str) -> BinaryIO:
        if self._system.info(path)["type"] == "directory":
            raise IsADirectoryError(path)
        file: BinaryIO = self._system.open(path, "rb")
        return file

    def arrow(self) -> Any:
        from pidkeeper.pipeline.sources.fsspec_arrow import arrow_system

        return arrow_system(self._system)
