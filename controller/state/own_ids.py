"""What is left of the quorum's own blocks, from which transactional producers get their IDs.

Nobody is asked for such an ID, so nobody can name one that is another's: a block is taken once (S1), and its IDs are
used up in ascending order. There is the range in use, and at most one that was filled ahead.
"""

from __future__ import annotations

from typing import Final

import msgspec

from pidkeeper.snapshots.image import MAX_OWN_RANGES, IdRange


class OwnIds(msgspec.Struct, frozen=True):
    """A value: what takes of it returns another one. `ranges` ascend."""

    ranges: tuple[IdRange, ...] = ()

    @property
    def next_id(self) -> int | None:
        """The ID that the next transactional id to need one gets; None if none is left."""
        return self.ranges[0].first if self.ranges else None

    def holds(self, producer_id: int) -> bool:
        """Whether it is left."""
        return bool(self.ranges) and any(one.first <= producer_id <= one.last for one in self.ranges)

    @property
    def full(self) -> bool:
        """Whether no block may be added."""
        return len(self.ranges) == MAX_OWN_RANGES

    def check_room(self, offset: int) -> None:
        """Only one block is ever there ahead."""
        assert not self.full, f"T6: offset {offset} takes a block, but {self.ranges} are left"

    def filled(self, first: int, last: int) -> OwnIds:
        """With a block behind what is left."""
        return OwnIds((*self.ranges, IdRange(first, last)))

    def taken(self, producer_id: int, offset: int) -> OwnIds:
        """Without its lowest ID, which is `producer_id`."""
        assert producer_id == self.next_id, (
            f"T5: offset {offset} gives a transactional id the producer ID {producer_id}, but the next one is "
            f"{self.next_id}"
        )
        first, *others = self.ranges
        left = (IdRange(producer_id + 1, first.last),) if producer_id < first.last else ()
        return OwnIds((*left, *others))


NO_OWN_IDS: Final = OwnIds()
