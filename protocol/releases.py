"""Which builds may be members of one quorum at a time: those of neighbouring minor releases (decision 0041)."""

from __future__ import annotations

import re
from typing import Final

MAX_RELEASE_LENGTH: Final = 64
"""Of what a member tells of its build; the rest, as of a local version, says nothing of the release."""

_RELEASE: Final = re.compile(r"(\d{1,9})\.(\d{1,9})(?!\d)")


def may_meet(one: str, other: str) -> bool:
    """Whether members of these releases, each MAJOR.MINOR and whatever follows, may be in one quorum.

    They may if they are one minor release apart at most. MAJOR.0 follows every release of the major before it. A text
    of another form, as of a source tree or of a build that tells none, meets them all: nothing is known of it.
    """
    found = [_RELEASE.match(text) for text in (one, other)]
    if found[0] is None or found[1] is None:
        return True
    (major, minor), (next_major, next_minor) = sorted((int(each[1]), int(each[2])) for each in found if each)
    if major == next_major:
        return next_minor - minor <= 1
    return (next_major, next_minor) == (major + 1, 0)
