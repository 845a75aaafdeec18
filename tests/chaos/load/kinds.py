"""The kinds of operations that a journal has."""

from __future__ import annotations

from typing import Final

ALLOCATE: Final = "allocate"
REGISTER: Final = "register"
RAISE_FLOOR: Final = "raise-floor"

CLAIM: Final = "claim"
"""Stands for `count` claims that got no ID. Those that got one are in other files."""

INIT: Final = "init"
"""A Kafka client gets its pair for `transactional_id`; `instance` numbers the clients that had this id."""

STEP: Final = "step"
"""What an instance does with its pair, which is the newest."""

ZOMBIE: Final = "zombie"
"""What an instance tries that was replaced: it is refused, if it is heard at all."""

FENCED: Final = "fenced"
"""The code of what is refused to a zombie."""

FATAL: Final = "fatal"
"""An error after which a client cannot go on, and that no fault of links and processes explains."""

WRITE: Final = "write"
"""A record with this `value` for one `partition`, of an idempotent producer."""

TRANSACTION: Final = "transaction"
"""`records`, partition and value of each, in one transaction; the result says whether it was `committed`."""

READ: Final = "read"
"""A consumer of an `isolation` saw `records`, offset and value of each, of one `partition`."""

FINAL_READ: Final = "final-read"
"""All that it sees of a partition when all is over."""

FOUND: Final = "found"
"""A member of `group` asks under a `generation` for what is committed; the result: `offsets`, partition and offset of
each, 0 where there is none."""

COMMIT: Final = "commit"
"""A member of `group` commits `offsets` under a `generation`."""

FINAL_COPIES: Final = "final-copies"
"""All copies that the group of copiers has made of a partition; as FINAL_READ."""

FORBIDDEN: Final = "forbidden"
"""A request that nobody may be granted."""

QUOTA: Final = "quota"
"""Broker `broker_id` asks for more than `per_second` and `burst` allow it."""

CHANGE: Final = "change"
"""An operator changes the quorum."""
