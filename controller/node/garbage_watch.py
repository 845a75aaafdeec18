"""How long the oldest object that no log needs has waited to be deleted, as the leader sees it. Pure."""

from __future__ import annotations

from pidkeeper.controller.state.logs.objects import Objects


class GarbageWatch:
    """Garbage goes from its oldest end, so as long as that stays nothing was deleted.

    Soft state: a leader that is new has seen nothing wait.
    """

    def __init__(self) -> None:
        self._oldest: int | None = None
        self._since = 0

    def lead(self) -> None:
        """This member leads from now on."""
        self._oldest = None

    def tick(self, objects: Objects, ticks: int) -> None:
        """Time has passed."""
        oldest = next(iter(objects.garbage), None)
        if oldest != self._oldest:
            self._oldest, self._since = oldest, ticks

    def age_ticks(self, ticks: int) -> int:
        """For how long the same object is the oldest; 0 without garbage."""
        return 0 if self._oldest is None else ticks - self._since
