"""Which names topics may have (`org.apache.kafka.common.internals.Topic`), for agents and controllers alike. Pure."""

from __future__ import annotations

import re
from typing import Final

from pidkeeper.protocol.transactions import MAX_TOPIC_LENGTH

_NAME: Final = re.compile(rf"(?!\.\.?$)[A-Za-z0-9._-]{{1,{MAX_TOPIC_LENGTH}}}", re.ASCII)

RULE: Final = f'1 to {MAX_TOPIC_LENGTH} of A-Z a-z 0-9 . _ - other than "." and ".."'


def is_topic_name(name: str) -> bool:
    """Whether a topic may be called so."""
    return _NAME.fullmatch(name) is not None
