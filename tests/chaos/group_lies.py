"""What the check of groups must find: lies in a copy of a run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec.structs import replace

from tests.chaos.copies import AbsentError, Copy, give, like, result_of
from tests.chaos.load.journal import Outcome
from tests.chaos.load.kinds import COMMIT, FINAL_COPIES, FOUND
from tests.chaos.record_lies import Read, edit_final

edit_copies = partial(edit_final, kind=FINAL_COPIES)


def lost_copy(copy: Copy) -> None:
    edit_copies(copy, lambda read: read[:-1])


def doubled_copy(copy: Copy) -> None:
    """Of the first one there is another, behind all others."""
    edit_copies(copy, lambda read: [*read, [read[-1][0] + 1, read[0][1]]] if read else read)


def reordered_copies(copy: Copy) -> None:
    """The first one and the last change places."""

    def swapped(read: Read) -> Read:
        if len(read) < 2:
            return read
        first, last = read[0], read[-1]
        return [[first[0], last[1]], *read[1:-1], [last[0], first[1]]]

    edit_copies(copy, swapped)


def foreign_copy(copy: Copy) -> None:
    edit_copies(copy, lambda read: [*read, [read[-1][0] + 1, "nobody.0"]] if read else read)


def unread_copies(copy: Copy) -> None:
    with copy.operations(copy.having(FINAL_COPIES)) as pairs:
        place = like(pairs, FINAL_COPIES)[0]
        asked, told = pairs[place]
        pairs[place] = asked, replace(told, outcome=Outcome.UNKNOWN, result=None)


def lost_commit(copy: Copy) -> None:
    """Whoever asked last for what is committed was told of nothing."""
    _edit_last_found(copy, lambda _: 0)


def foreign_offset(copy: Copy) -> None:
    """Whoever asked last was told of more than anybody has committed."""
    _edit_last_found(copy, lambda offset: offset + 1_000_000)


def zombie_commit(copy: Copy) -> None:
    """The last commit that was taken is of a generation before that in which somebody asked."""
    with copy.operations(copy.having(COMMIT)) as pairs:
        place = like(pairs, COMMIT)[-1]
        asked, told = pairs[place]
        pairs[place] = replace(asked, arguments=asked.arguments | {"generation": 0}), told


def _edit_last_found(copy: Copy, edit: Callable[[int], int]) -> None:
    with copy.operations(copy.having(FOUND, at_least=2)) as pairs:
        place = like(pairs, FOUND)[-1]
        offsets = result_of(pairs[place])["offsets"]
        if not any(offset for _, offset in offsets):
            raise AbsentError("nothing was committed")
        give(pairs, place, {"offsets": [[partition, edit(offset)] for partition, offset in offsets]})


GROUP_LIES: Final[dict[Callable[[Copy], None], str]] = {
    lost_copy: "copy-lost",
    doubled_copy: "copy-doubled",
    reordered_copies: "copy-reordered",
    foreign_copy: "copy-foreign",
    unread_copies: "copies-unread",
    lost_commit: "commit-lost",
    foreign_offset: "offset-foreign",
    zombie_commit: "zombie-commit",
}
"""Each lie, and the rule by which it must be found."""
