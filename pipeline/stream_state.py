"""Whose a stream's state directory is: of one set of paths."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from pidkeeper.pipeline.store import Store, is_uri
from pidkeeper.pipeline.watermark import StateError

STREAM_VERSION: Final = 1
NAME: Final = "stream.json"
BLOCKS: Final = "blocks"
FOUND: Final = "findings"
CHECKPOINT: Final = "checkpoint"
_ANOTHER: Final = "name another --state, or remove it to start anew"


class _StreamState(msgspec.Struct):
    data: list[str]
    version: int = STREAM_VERSION


def claim(state: Store, data: list[str]) -> None:
    """Note that the state, which is made if it is not there, is of these paths.

    Further paths may come to those of before, as when a member is added. Without one of those of before, the state
    would tell of what nobody watches. Raises StateError for such paths, and for what is not a stream's state; OSError.
    """
    paths = [path if is_uri(path) else str(Path(path).absolute()) for path in data]
    state.make()
    file = state.location(NAME)
    try:
        known = msgspec.json.decode(state.read(NAME), type=_StreamState)
    except FileNotFoundError:
        _check_that_it_is_new(state)
    except (msgspec.DecodeError, OSError) as error:
        raise StateError(f"{file} cannot be read ({error}): {_ANOTHER}") from error
    else:
        if known.version != STREAM_VERSION:
            raise StateError(f"{file} is of version {known.version}, this build knows {STREAM_VERSION}: {_ANOTHER}")
        if missing := sorted(set(known.data) - set(paths)):
            raise StateError(f"{state.place} is the state of a stream of other paths, as {missing[0]}: {_ANOTHER}")
        if not state.exists(CHECKPOINT) and state.names(BLOCKS):
            raise StateError(f"{state.place} has blocks, and its {CHECKPOINT} is gone: {_ANOTHER}")
    state.write(NAME, msgspec.json.encode(_StreamState(paths)))


def _check_that_it_is_new(state: Store) -> None:
    there = sorted({BLOCKS, FOUND, CHECKPOINT} & set(state.names()))
    if there:
        raise StateError(f"{state.place} has {', '.join(there)} and no {NAME}: it is not a stream's state; {_ANOTHER}")


def refuse_output(out: Store) -> None:
    """Raise StateError if it is a stream's state, whose blocks an audit's tables would replace. Raises OSError."""
    if out.exists(NAME):
        raise StateError(f"{out.place} is the state of `pidkeeper audit stream`: name another --out")
