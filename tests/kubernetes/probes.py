"""When a container's probes are asked, and what follows from what they find (Kubernetes, "Configure Probes")."""

from __future__ import annotations

from typing import Any, Final

_PERIOD_SECONDS: Final = 10.0
_FAILURES: Final = 3


class Probe:
    """One probe of a container since it was started; nothing to ask if there is none of that name.

    `passed`: whether it was good often enough, and not bad too often since. `failed`: whether it was bad too often.
    """

    def __init__(self, name: str, container: dict[str, Any], now: float) -> None:
        specification = container.get(name, {})
        self.name = name
        self._asked = bool(specification)
        self._period = float(specification.get("periodSeconds", _PERIOD_SECONDS))
        self._successes = int(specification.get("successThreshold", 1))
        self._failures = int(specification.get("failureThreshold", _FAILURES))
        self._due = now + float(specification.get("initialDelaySeconds", 0))
        self._good = self._bad = 0
        self.passed = not self._asked
        self.failed = False

    def is_due(self, now: float) -> bool:
        """Whether it is to be asked; then `found` is told what it finds."""
        return self._asked and now >= self._due

    def found(self, good: bool, now: float) -> None:
        self._due = now + self._period
        self._good, self._bad = (self._good + 1, 0) if good else (0, self._bad + 1)
        if self._good >= self._successes:
            self.passed = True
        if self._bad >= self._failures:
            self.passed, self.failed = False, True
