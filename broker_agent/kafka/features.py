"""What agents that keep records tell of the transactions of KIP-890, as a feature of the cluster (KIP-584). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pidkeeper.protocol.metadata_version import TRANSACTION_EPOCHS
from pidkeeper.service.kafka.wire.api_versions import Features

TRANSACTION_VERSION: Final = "transaction.version"
NEW_EPOCHS: Final = 2
"""The level at which producers have an epoch for each transaction, and add no partitions to it."""

_SUPPORTED: Final[Mapping[str, tuple[int, int]]] = MappingProxyType({TRANSACTION_VERSION: (0, NEW_EPOCHS)})
_NOTHING_FINALIZED: Final = Features(_SUPPORTED, {}, epoch=-1)


def features_at(metadata_version: int) -> Features:
    """What clients are told once the quorum is known to be at `metadata_version`.

    That is the epoch too: it never falls, and agents that know the same version say the same. A client that has seen
    several agents goes by the one that knows most; the others take what it sends then, or have it come again.
    """
    if metadata_version < TRANSACTION_EPOCHS:
        return _NOTHING_FINALIZED
    return Features(_SUPPORTED, {TRANSACTION_VERSION: NEW_EPOCHS}, epoch=metadata_version)
