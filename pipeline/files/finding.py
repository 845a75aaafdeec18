"""Which files are at a path that somebody named: a file, a directory, or a glob, here or by URI.

`*`, `?` and `[` match within one name of a path; `**` is for paths of this machine. No file is opened: sizes and stamps
come with the listing.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from pidkeeper.pipeline.files.location import Location, is_uri, locate
from pidkeeper.pipeline.files.system import Entry

_WILD: Final = "*?["
_ABSENT: Final = (FileNotFoundError, NotADirectoryError)


class Found(NamedTuple):
    """A file, its bytes, and a text that is another one whenever it was written."""

    location: Location
    size: int
    stamp: str


def find_files(path: str, suffix: str) -> list[Found]:
    """The files ending with `suffix` at a path: a file, a directory (all below it) or a glob; sorted, each once.

    A file that is named outright is taken under whatever name. Raises FileNotFoundError if nothing is there and the
    path is no glob, OSError if its file system cannot be reached.
    """
    return sorted(set(_find(path, suffix)))


def _find(path: str, suffix: str) -> Iterator[Found]:
    exact = locate(path)
    folder, parts = _fixed_part(exact.path)
    # A name with signs of a glob, if that is what is there, is no glob.
    if not parts or (not is_uri(path) and exact.exists()):
        yield from _at(exact, suffix, named=True)
        return
    if not is_uri(path):
        anchor = Path(exact.path).anchor
        matches: Iterator[Location] = (
            Location("", str(match)) for match in Path(anchor).glob(exact.path[len(anchor) :])
        )
    elif "**" not in parts:
        matches = _matches(Location(exact.root, folder), parts)
    else:
        raise OSError(f"{path}: ** is for paths of this machine; name the directory above it, all below it is read")
    for match in matches:
        yield from _at(match, suffix, named=False)


def _at(place: Location, suffix: str, *, named: bool) -> Iterator[Found]:
    try:
        entry = place.entry()
        if entry.folder:
            yield from (_found(place / one.name, one) for one in place.below() if one.name.endswith(suffix))
        elif named or entry.name.endswith(suffix):
            yield _found(place, entry)
    except _ABSENT:
        if named:
            raise FileNotFoundError(f"there is nothing at {place}: name a file, a directory or a glob") from None


def _found(place: Location, entry: Entry) -> Found:
    return Found(place, entry.size, entry.stamp)


def _matches(folder: Location, parts: list[str]) -> Iterator[Location]:
    """Those of a glob on another file system, whose directories are asked level by level."""
    matches = [folder]
    for part in parts:
        matches = [above / name for above in matches for name in _matching(above, part)]
    yield from matches


def _matching(folder: Location, pattern: str) -> list[str]:
    if not _is_glob(pattern):
        return [pattern]
    return [name for name in folder.names() if fnmatch.fnmatchcase(name, pattern)]


def _fixed_part(path: str) -> tuple[str, list[str]]:
    """The directory in front of the first wildcard, and the names from there on."""
    wild = min((path.index(sign) for sign in _WILD if sign in path), default=-1)
    if wild < 0:
        return path, []
    end = path.rindex("/", 0, wild)
    return path[:end], path[end + 1 :].split("/")


def _is_glob(path: str) -> bool:
    return any(sign in path for sign in _WILD)
