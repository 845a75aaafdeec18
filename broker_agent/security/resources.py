"""What rules are about, and what can be done to it, as a line of the file names both. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TRANSACTIONAL_ID: Final = "transactional-id"
TOPIC: Final = "topic"
TOPIC_READ: Final = "topic-read"
TOPIC_WRITE: Final = "topic-write"
TOPIC_CREATE: Final = "topic-create"
TOPIC_DELETE: Final = "topic-delete"
TOPIC_DESCRIBE: Final = "topic-describe"
GROUP: Final = "group"
GROUP_READ: Final = "group-read"
GROUP_DELETE: Final = "group-delete"
GROUP_DESCRIBE: Final = "group-describe"
RESOURCES: Final = (
    TRANSACTIONAL_ID,
    TOPIC,
    TOPIC_READ,
    TOPIC_WRITE,
    TOPIC_CREATE,
    TOPIC_DELETE,
    TOPIC_DESCRIBE,
    GROUP,
    GROUP_READ,
    GROUP_DELETE,
    GROUP_DESCRIBE,
)

PARTS: Final[Mapping[str, frozenset[str]]] = {
    TOPIC: frozenset({TOPIC_READ, TOPIC_WRITE, TOPIC_CREATE, TOPIC_DELETE, TOPIC_DESCRIBE}),
    GROUP: frozenset({GROUP_READ, GROUP_DELETE, GROUP_DESCRIBE}),
}
"""What stands for several."""

DESCRIBES: Final[Mapping[str, frozenset[str]]] = {
    TOPIC_DESCRIBE: frozenset({TOPIC_READ, TOPIC_WRITE, TOPIC_DELETE}),
    GROUP_DESCRIBE: frozenset({GROUP_READ, GROUP_DELETE}),
}
"""Who is allowed one of these may describe the topic or the group (`AclEntry` in Kafka)."""
