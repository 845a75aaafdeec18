"""Whose session with ZooKeeper lasts, and why the znode should not be sealed over their heads. Pure.

A look is advice to operators. That no broker is given an ID behind the seal rests on the seal alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from pidkeeper.controller.migration.zookeeper import BROKERS_PATH, Cause, Failure, LiveBrokers
from pidkeeper.protocol.ids import MAX_BROKER_ID
from pidkeeper.protocol.messages import ZookeeperBrokers

MAX_NAMED: Final = 20
"""Brokers that are named to operators: what one reads at a glance."""

_ID: Final = re.compile("0|[1-9][0-9]{0,9}")

BEHIND_THE_SEAL: Final = (
    "Once its last block is used up, a broker with inter.broker.protocol.version 3.0 or above answers new producers "
    "with COORDINATOR_LOAD_IN_PROGRESS for ever; one below 3.0 answers with UNKNOWN_SERVER_ERROR, and does not start "
    "again ('Have exhausted all producerIds')."
)
"""What brokers do that find the seal: from IBP_3_0_IV0 on they ask Kafka's controller for a block, again and again;
before, each takes its blocks itself, the first one when it starts (KIP-730)."""


def parse_children(names: Iterable[str]) -> LiveBrokers:
    """The brokers among the children of BROKERS_PATH."""
    ids, foreign = [], 0
    for name in names:
        if _ID.fullmatch(name) is not None and int(name) <= MAX_BROKER_ID:
            ids.append(int(name))
        else:
            foreign += 1
    return LiveBrokers(tuple(sorted(ids)), foreign)


def why_not_seal(brokers: LiveBrokers | Failure) -> str | None:
    """Why nobody should finalise without force; None if no broker is left."""
    if isinstance(brokers, Failure):
        who = f"which brokers are still in ZooKeeper ({BROKERS_PATH})"
        return f"nobody can tell {who}: {_explain(brokers)}. Mend that, or {_FORCE}"
    if not brokers.ids:
        return None
    return (
        f"{name_brokers(brokers.ids)} still in ZooKeeper ({BROKERS_PATH}). {BEHIND_THE_SEAL} Replace them by agents "
        f"or stop them, and wait until their sessions have ended; or {_FORCE}"
    )


def name_brokers(ids: Sequence[int]) -> str:
    """At least one broker, as the subject of a sentence, with its verb."""
    return f"broker {ids[0]} is" if len(ids) == 1 else f"brokers {listed(ids)} are"


def listed(ids: Sequence[int]) -> str:
    """The first MAX_NAMED of them, and how many more there are."""
    named = ", ".join(str(one) for one in ids[:MAX_NAMED])
    return named if len(ids) <= MAX_NAMED else f"{named} and {len(ids) - MAX_NAMED} more"


def describe_brokers(brokers: LiveBrokers | Failure) -> ZookeeperBrokers:
    """As the HTTP interface tells it."""
    if isinstance(brokers, Failure):
        return ZookeeperBrokers(BROKERS_PATH, [], 0, _explain(brokers))
    return ZookeeperBrokers(BROKERS_PATH, list(brokers.ids), brokers.foreign, None)


def _explain(failure: Failure) -> str:
    denied = failure.cause is Cause.DENIED
    return f"ZooKeeper does not permit it: let this user read {BROKERS_PATH}" if denied else failure.detail


_FORCE: Final = "force it, with the operators' token"
