"""The small files of the driver, and the folders beside them: in a directory here, or on any Hadoop file system.

Spark's writers take a path or a URI themselves. What the driver writes goes here the same way: a path by pathlib, so
that reading a verdict needs no Java; a URI by Hadoop's FileSystem in the session's Java, so that schemes, users and
settings (core-site.xml, `spark.hadoop.*`) are those of Spark's writers.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Place = str | Path
"""A local directory, or a URI as hdfs://namenode:8020/audit. Its path is taken as it stands, as Hadoop does."""
_SCHEME: Final = "://"
_HERE: Final = "file://"
_FAILED_CALL: Final = re.compile(r"An error occurred while calling \S+\s*:?\s*")
_JAVA_PACKAGE: Final = re.compile(r"\b(?:[a-z]\w*\.)+(?=[\w$]*(?:Exception|Error)\b)")
_NO_CLASS: Final = re.compile(r"ClassNotFoundException: Class \S+ not found|NoClassDefFoundError")
_SEEN_WHEN_CLOSED: Final = "fs.capability.outputstream.abortable"
"""What is written is seen when the stream is closed, and what was there until then (Hadoop's abortable.md)."""


class Store(Protocol):
    """A directory. Names are relative to it and may have slashes. All raise OSError with a message for the user."""

    place: Place

    def location(self, name: str = "") -> str:
        """What Spark's readers and writers take."""
        ...

    def make(self) -> None:
        """Create the directory, with those above it."""
        ...

    def exists(self, name: str) -> bool: ...

    def names(self, name: str = "") -> list[str]:
        """What is in a folder of it, sorted; nothing if it is not there."""
        ...

    def read(self, name: str) -> bytes:
        """Raises FileNotFoundError too."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Replace a file at once, where the file system can."""
        ...

    def delete(self, name: str = "") -> None:
        """With all that is in it; nothing happens if it is not there."""
        ...


def open_store(place: Place, spark: SparkSession | None = None) -> Store:
    """The store at a place; a URI needs the session. Touches nothing. Raises OSError if Hadoop knows no such system."""
    if not is_uri(place):
        return _LocalStore(Path(place))
    assert spark is not None, f"{place} is read by the Java of a session"
    return _HadoopStore(_tidy(str(place)), spark)


def is_uri(place: Place) -> bool:
    """Whether it is for Hadoop."""
    return isinstance(place, str) and _SCHEME in place


def local_directory(place: Place) -> Path | None:
    """Where it is on this machine, as it is by a path and by file:///; None on another file system."""
    if is_uri(place) and not str(place).startswith(f"{_HERE}/"):
        return None
    return Path(str(place).removeprefix(_HERE))


def join_place(place: Place, name: str) -> Place:
    """A folder in it."""
    return f"{_tidy(str(place)).removesuffix('/')}/{name}" if is_uri(place) else Path(place) / name


def _tidy(uri: str) -> str:
    """Without slashes at its end, but for the one that is the uppermost directory."""
    scheme, _, rest = uri.partition(_SCHEME)
    authority, _, path = rest.partition("/")
    return f"{scheme}{_SCHEME}{authority}/{path.rstrip('/')}"


def locate(place: Place, name: str) -> str:
    """What Spark's readers and writers take for a file or a folder at a place."""
    found = join_place(place, name) if name else place
    # Without a scheme it would be on the default file system of core-site.xml.
    return str(found) if is_uri(found) else f"{_HERE}{Path(found).absolute()}"


def first_line(error: Exception) -> str:
    """What Java or Spark said went wrong, without traces, packages and the call that met it."""
    java = getattr(error, "java_exception", None)
    text = str(error) if java is None else str(java.toString())
    lines = [line.strip() for line in _FAILED_CALL.sub("", text).strip().splitlines()]
    return _JAVA_PACKAGE.sub("", next(iter(lines), "")) or type(error).__name__


class _LocalStore:
    def __init__(self, directory: Path) -> None:
        self.place: Place = directory
        self._directory = directory.absolute()

    def location(self, name: str = "") -> str:
        return locate(self._directory, name)

    def make(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)

    def exists(self, name: str) -> bool:
        return (self._directory / name).exists()

    def names(self, name: str = "") -> list[str]:
        try:
            return sorted(path.name for path in (self._directory / name).iterdir())
        except FileNotFoundError:
            return []

    def read(self, name: str) -> bytes:
        return (self._directory / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        temporary = self._directory / _temporary(name)
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._directory / name)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def delete(self, name: str = "") -> None:
        path = self._directory / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


class _HadoopStore:
    def __init__(self, uri: str, spark: SparkSession) -> None:
        self.place: Place = uri
        internal: Any = spark
        self._java = internal._jvm
        self._arrays = internal.sparkContext._gateway
        with _explained(uri):
            # Spark's writers use these: Hadoop's settings with those of the session on top.
            self._settings = internal._jsparkSession.sessionState().newHadoopConf()
            self._system = self._java.org.apache.hadoop.fs.Path(uri).getFileSystem(self._settings)

    def location(self, name: str = "") -> str:
        return locate(str(self.place), name)

    def make(self) -> None:
        with self._at("") as path:
            if not self._system.mkdirs(path):
                raise OSError(f"{self.place} cannot be created")

    def exists(self, name: str) -> bool:
        with self._at(name) as path:
            return bool(self._system.exists(path))

    def names(self, name: str = "") -> list[str]:
        try:
            with self._at(name) as path:
                return sorted(status.getPath().getName() for status in self._system.listStatus(path))
        except FileNotFoundError:
            return []

    def read(self, name: str) -> bytes:
        with self._at(name) as path:
            stream = self._system.open(path)
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def write(self, name: str, data: bytes) -> None:
        with self._at(name) as path, self._at(_temporary(name)) as temporary:
            if self._system.hasPathCapability(path, _SEEN_WHEN_CLOSED):
                # On S3 a rename is a deletion and a copy.
                self._create(path, data)
                return
            try:
                self._create(temporary, data)
                self._replace(temporary, path)
            except Exception:
                with contextlib.suppress(Exception):
                    self._system.delete(temporary, False)
                raise

    def delete(self, name: str = "") -> None:
        with self._at(name) as path:
            self._system.delete(path, True)

    def _create(self, path: Any, data: bytes) -> None:
        stream = self._system.create(path, True)
        stream.write(data)
        stream.close()

    def _replace(self, temporary: Any, path: Any) -> None:
        java = self._java.org.apache.hadoop.fs
        overwrite = self._arrays.new_array(java.Options.Rename, 1)
        overwrite[0] = java.Options.Rename.OVERWRITE
        scheme = self._system.getUri().getScheme()
        if self._settings.get(f"fs.AbstractFileSystem.{scheme}.impl"):
            java.FileContext.getFileContext(self._system.getUri(), self._settings).rename(temporary, path, overwrite)
            return
        # Its only rename refuses to replace. Whoever reads in between finds no state and reads everything anew.
        self._system.delete(path, False)
        if not self._system.rename(temporary, path):
            raise OSError(f"{temporary.toString()} could not be renamed to {path.toString()}")

    @contextlib.contextmanager
    def _at(self, name: str) -> Iterator[Any]:
        location = self.location(name)
        with _explained(location):
            yield self._java.org.apache.hadoop.fs.Path(location)


@contextlib.contextmanager
def _explained(location: str) -> Iterator[None]:
    """What Java throws becomes an OSError that names the place."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        java = str(getattr(error, "java_exception", error))
        if "java.io.FileNotFoundException" in java:
            raise FileNotFoundError(f"there is nothing at {location}") from error
        advice = ""
        if _NO_CLASS.search(java):
            advice = "; name the jar that has it by --conf spark.jars.packages=GROUP:ARTIFACT:VERSION"
        elif location.startswith(("webhdfs:", "swebhdfs:")):
            advice = "; Spark's jars cannot write to it: name an output as hdfs://NAMENODE:RPC_PORT/PATH"
        raise OSError(f"{location} cannot be used: {first_line(error)}{advice}") from error


def _temporary(name: str) -> str:
    folder, _, file = name.rpartition("/")
    return f"{folder}/.{file}.{secrets.token_hex(4)}".lstrip("/") if folder else f".{file}.{secrets.token_hex(4)}"
