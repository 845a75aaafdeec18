"""What is read again when its file has changed, without a restart."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Final, Generic, TypeVar

from pidkeeper.service.settings import SettingsError

REFRESH_SECONDS: Final = 1.0
"""Between two looks."""

T = TypeVar("T")
Stamp = tuple[int, int, int] | None

logger = logging.getLogger(__name__)


def stamp_of(path: str) -> Stamp:
    """Another one whenever the file was written, or another was put in its place; None if there is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


class Refreshed(Generic[T]):
    """What `read` makes of files, as `value`; `what` is their name in the log. Raises SettingsError as `read` does."""

    def __init__(
        self, what: str, paths: Sequence[str | None], read: Callable[[], T], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._what = what
        self._paths = [path for path in paths if path is not None]
        self._read = read
        self._clock = clock
        self._seen = self._stamps()
        self._complaint = ""
        self._again = math.inf
        self.value = read()

    def refresh(self) -> None:
        """Read again if a file has changed. If that is of no use, it is logged, and the value of before stays.

        Then it is tried once a REFRESH_SECONDS, though nothing changes: there may have been no descriptor to read it
        with, or a certificate becomes valid.
        """
        stamps, now = self._stamps(), self._clock()
        if stamps == self._seen and now < self._again:
            return
        self._seen = stamps
        try:
            self.value = self._read()
        except SettingsError as error:
            self._again = now + REFRESH_SECONDS
            self._complain(str(error))
        else:
            self._again, self._complaint = math.inf, ""
            logger.info("%s changed and was read again", self._what)

    def _complain(self, why: str) -> None:
        if why != self._complaint:
            self._complaint = why
            logger.warning("%s changed and cannot be used, what was read before stays in use: %s", self._what, why)

    def _stamps(self) -> list[Stamp]:
        return [stamp_of(path) for path in self._paths]


@contextlib.asynccontextmanager
async def refreshing(*refresh: Callable[[], None]) -> AsyncIterator[None]:
    """Call each of these every REFRESH_SECONDS meanwhile."""

    async def refresh_for_ever() -> None:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            for one in refresh:
                one()

    task = asyncio.create_task(refresh_for_ever(), name="refreshing")
    try:
        yield
    finally:
        task.cancel()
