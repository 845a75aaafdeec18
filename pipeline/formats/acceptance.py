"""Which entries a member accepted in the very term in which they were made.

What a majority of the voters accepted so is committed, whether or not anybody knows it yet: see `quorum.commitment`.
"""

from __future__ import annotations


class Acceptance:
    """Follows what a member writes, in its order."""

    def __init__(self) -> None:
        self._term: int | None = None
        self._following = 0
        self._spans: dict[int, tuple[int, int]] = {}

    @property
    def last(self) -> dict[int, int]:
        """By term the last of these entries that nothing later replaced."""
        return {term: last for term, (_, last) in self._spans.items()}

    def hard_state(self, term: int, *, recovering: bool) -> None:
        """From here on the member is in this term. `recovering`: it lost what it may have acknowledged before."""
        self._term = None if recovering else term

    def restart(self, index: int) -> None:
        """The log begins anew behind `index`."""
        self._spans, self._following = {}, index + 1

    def entry(self, term: int, index: int) -> None:
        """An entry; it replaces those from its index on."""
        if index < self._following:
            kept = {of: span for of, span in self._spans.items() if span[0] < index}
            self._spans = {of: (first, min(last, index - 1)) for of, (first, last) in kept.items()}
        if term == self._term:
            first, _ = self._spans.get(term, (index, index))
            self._spans[term] = (first, index)
        self._following = index + 1
