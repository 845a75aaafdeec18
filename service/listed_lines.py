"""Files of one entry a line, as people and commands write them: read as a whole, and within bounds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from pidkeeper.service.settings import SettingsError

MAX_FILE_BYTES: Final = 1024 * 1024
"""Some 8,000 tokens: those of all the brokers that the quotas count with, twice while they are changed."""

Entry = TypeVar("Entry")


def read_lines(path: str, key: str, parse: Callable[[str, str], Entry]) -> list[Entry]:
    """The entries of the file that the setting `key` names; a line that begins with `#` is a comment.

    `parse` gets a line, and where it stands, for what it raises. Raises SettingsError.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        lines = content.decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{key}: cannot read {path}: {type(error).__name__}") from error
    if len(content) > MAX_FILE_BYTES:
        raise SettingsError(f"{key}: {path} is larger than {MAX_FILE_BYTES} bytes")
    texts = ((number, line.strip()) for number, line in enumerate(lines, start=1))
    return [parse(text, f"{key}: {path}, line {number}") for number, text in texts if text and text[0] != "#"]
