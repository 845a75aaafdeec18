"""What a kept state has read of every file, so that the next run reads only what is new.

A file that did not change is not read again: an archive file never changes, a Kafka segment grows at its end. A file
that changed otherwise, or went away, loses its rows in the state. So the tables of a state are those that a full run
would read now, and all checks run in full on them: no check needs facts of an earlier run.

A file's stamp is its length, its time of modification and those of the `meta.json` or `meta.properties` that names its
member. So damage that a disk does without a write is found by a run without a state, and not by one with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from pidkeeper.pipeline.formats.archive import file_name
from pidkeeper.pipeline.formats.record_batch import START
from pidkeeper.pipeline.sources.files import join, open_file, parent, stamp
from pidkeeper.pipeline.sources.listing import Listing
from pidkeeper.pipeline.sources.segment_files import SegmentFile
from pidkeeper.pipeline.store import Store

STATE_VERSION: Final = 1
NAME: Final = "state.json"


class StateError(RuntimeError):
    """The state directory cannot be used; the message says what to do."""


class Manifest(msgspec.Struct):
    """What is in a state: by table, the stamp of every file that was read, and from which generation on its rows count.

    `stale` has a file only if older rows of it are void.
    `generation` counts the runs. Nothing of a run counts before its manifest is written.
    """

    version: int = STATE_VERSION
    generation: int = 0
    files: dict[str, dict[str, str]] = {}
    stale: dict[str, dict[str, int]] = {}


class LastBatch(msgspec.Struct, frozen=True):
    """The last batch of a segment that a state holds: where it stands, and what identifies it."""

    position: int
    base_offset: int
    crc: int


def load_manifest(state: Store) -> Manifest:
    """That of a state directory; an empty one where there is none. Raises StateError."""
    path = state.location(NAME)
    try:
        manifest = msgspec.json.decode(state.read(NAME), type=Manifest)
    except FileNotFoundError:
        return Manifest()
    except (msgspec.DecodeError, OSError) as error:
        raise StateError(f"{path} cannot be read ({error}): remove {state.place} to audit everything again") from error
    if manifest.version != STATE_VERSION:
        raise StateError(
            f"{path} is of version {manifest.version}, this build knows {STATE_VERSION}: remove {state.place}"
        )
    return manifest


def save_manifest(state: Store, manifest: Manifest) -> None:
    """Replace it at once, so that a run that dies leaves the one before. Raises OSError."""
    state.write(NAME, msgspec.json.encode(manifest))


def archive_stamps(listings: Iterable[Listing]) -> dict[str, str]:
    """A stamp for each archive file by its path. Files that overlap are read together, so they share theirs."""
    stamps: dict[str, str] = {}
    for listing in listings:
        meta = stamp(listing.folder.root, listing.folder.beside("meta.json").path)
        own = {name: stamp(listing.folder.root, listing.folder.join(name)) for name in listing.names}
        for group in _overlapping(listing.names):
            together = ";".join(f"{name}={own[name]}" for name in group)
            stamps |= {listing.folder.join(name): f"{together};{meta}" for name in group}
    return stamps


def segment_stamps(files: Iterable[SegmentFile]) -> dict[str, str]:
    """A stamp for each segment by its path."""
    metas: dict[str, str] = {}
    stamps = {}
    for file in files:
        logs = parent(parent(file.path))
        if logs not in metas:
            metas[logs] = stamp(file.root, join(logs, "meta.properties"))
        stamps[file.path] = f"{stamp(file.root, file.path)};{metas[logs]}"
    return stamps


def still_there(file: SegmentFile, last: LastBatch) -> bool:
    """Whether the segment still has the batch where it was: then it only grew, for it is never cut but at its end."""
    if file.size is None:
        return False
    try:
        with open_file(file.root, file.path) as opened:
            opened.seek(last.position)
            start = opened.read(START.size)
    except OSError:
        return False
    if len(start) < START.size:
        return False
    base_offset, _, _, _, crc, *_ = START.unpack(start)
    return (base_offset, crc) == (last.base_offset, last.crc)


class Changes(msgspec.Struct):
    """What a run has to do for one table. `read`: files to read. `void`: files whose kept rows do not count any more.

    A file in `read` and not in `void` grew: the rows that are there stay.
    """

    read: list[str]
    void: list[str]


def changes(known: Mapping[str, str], now: Mapping[str, str], grown: Iterable[str] = ()) -> Changes:
    """Compare the files that are there now with those of the state."""
    kept = set(grown)
    read = sorted(path for path, stamp in now.items() if path not in known or known[path] != stamp)
    changed = (path for path in read if path in known and path not in kept)
    return Changes(read, sorted([*changed, *(path for path in known if path not in now)]))


def advance(manifest: Manifest, table: str, now: Mapping[str, str], found: Changes) -> None:
    """Note in the manifest that the next generation holds what `found` says."""
    generation = manifest.generation + 1
    manifest.files[table] = dict(now)
    manifest.stale.setdefault(table, {}).update(dict.fromkeys(found.void, generation))


def _overlapping(names: Iterable[str]) -> list[list[str]]:
    groups: list[list[str]] = []
    end = -1
    for file in sorted(file for name in names if (file := file_name(name)) is not None):
        if file.from_offset < end:
            groups[-1].append(file.name)
        else:
            groups.append([file.name])
        end = max(end, file.to_offset)
    return groups + [[name] for name in names if file_name(name) is None]
