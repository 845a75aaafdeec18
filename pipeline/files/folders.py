"""Files of one kind by the folder that holds them."""

from __future__ import annotations

from collections.abc import Iterable

from pidkeeper.pipeline.files.finding import Found, find_files
from pidkeeper.pipeline.files.location import Location
from pidkeeper.pipeline.paths import SUFFIXES


def by_folder(paths: Iterable[str], suffix: str) -> dict[Location, list[Found]]:
    """The files ending with `suffix` at paths, by folder; both in order.

    A file that was named outright is there under whatever name, unless it is of another kind by that. Raises as
    `find_files`.
    """
    others = tuple(other for other in SUFFIXES if other != suffix)
    found = {one.location: one for path in paths for one in find_files(path, suffix)}
    folders: dict[Location, list[Found]] = {}
    for location, one in sorted(found.items()):
        if not location.name.endswith(others):
            folders.setdefault(location.parent, []).append(one)
    return dict(sorted(folders.items()))
