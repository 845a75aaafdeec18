"""The bearer token that a service sends to another one; it is read again when its file changes."""

from __future__ import annotations

import logging

from pidkeeper.service.refreshing import stamp_of
from pidkeeper.service.settings import SettingsError, read_secret

logger = logging.getLogger(__name__)


class SentToken:
    """`value`: what is sent. Raises SettingsError if the file cannot be used."""

    def __init__(self, path: str, key: str) -> None:
        self._path = path
        self._key = key
        self._seen = stamp_of(path)
        self.value = read_secret(path, key)

    def refresh(self) -> None:
        """Read the file if it has changed. If it is of no use, that is logged, and the token of before is sent."""
        stamp = stamp_of(self._path)
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            self.value = read_secret(self._path, self._key)
        except SettingsError as error:
            logger.warning("the token has changed and cannot be used, that of before is sent: %s", error)
