"""Rules of which is counted how often they were broken, and told what was found first."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.world import Violation


class Broken(Violation):
    """`count`: how often a rule was broken."""

    def __init__(self, rule: str, found: list[str]) -> None:
        super().__init__(rule, found[0] if len(found) == 1 else f"{found[0]}, and {len(found) - 1} more")
        self.count = len(found)


def none_of(found: list[str], rule: str) -> int:
    """0. Raises Broken if anything was found."""
    if found:
        raise Broken(rule, found)
    return 0


class Rules:
    """`violations`: in words, of each rule the first."""

    def __init__(self) -> None:
        self.violations: list[str] = []

    def count(self, check: Callable[[], int]) -> int:
        """How often its rule is broken."""
        try:
            return check()
        except Broken as broken:
            self.violations.append(str(broken))
            return broken.count
