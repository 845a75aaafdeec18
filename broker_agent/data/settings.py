"""Settings of the data plane: the table `[data]` of an agent's configuration."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from pidkeeper.broker_agent.kafka.wire.data.frames import MAX_PRODUCE_FRAME_BYTES
from pidkeeper.protocol.logs import MAX_OBJECT_BYTES, MAX_PARTITIONS

LEAST_PENDING_BYTES: Final = 2 * MAX_PRODUCE_FRAME_BYTES
"""Of `max_pending_bytes`: one largest request is put while the next one gathers."""

_Bytes = Annotated[int, msgspec.Meta(ge=1)]


class DataSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`store`: a directory, or s3://, gs:// or az:// and a bucket and prefix; `store_options`: of a remote one.

    An object is put once its first batch is `linger_ms` old, or once it has `max_object_bytes`; sooner where nothing is
    gained by waiting (`gathering.py`). A batch has at most `max_message_bytes` (Kafka's `max.message.bytes`); those
    that wait for their commit have `max_pending_bytes`.
    `auto_create_topics`: whether a topic is created when a client first asks for it, with `default_partitions`.
    `max_fetch_bytes`: of records in one answer. `fetching_bytes`: of those that answers under way have together.
    `recent_bytes`: of this agent's own objects that are kept in memory for consumers that are close behind.
    `index_bytes`: of the indices of segments that are kept in memory. `roll`: whether this agent rolls logs.
    `collect`: whether this agent deletes what no log needs, when it is its turn; `sweep_interval_ms`: between two looks
    at the whole store for what agents put and did not live to commit.
    """

    store: str
    store_options: dict[str, str] = {}
    linger_ms: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 20
    max_object_bytes: Annotated[int, msgspec.Meta(ge=1, le=MAX_OBJECT_BYTES)] = 4 << 20
    max_message_bytes: _Bytes = 1 << 20
    max_pending_bytes: Annotated[int, msgspec.Meta(ge=LEAST_PENDING_BYTES)] = 64 << 20
    auto_create_topics: bool = True
    default_partitions: Annotated[int, msgspec.Meta(ge=1, le=MAX_PARTITIONS)] = 1
    max_fetch_bytes: _Bytes = 8 << 20
    fetching_bytes: _Bytes = 64 << 20
    recent_bytes: Annotated[int, msgspec.Meta(ge=0)] = 32 << 20
    index_bytes: Annotated[int, msgspec.Meta(ge=0)] = 16 << 20
    roll: bool = True
    collect: bool = True
    sweep_interval_ms: Annotated[int, msgspec.Meta(ge=1000, le=2**53)] = 3_600_000

    def __post_init__(self) -> None:
        if self.max_message_bytes > self.max_object_bytes:
            raise ValueError(
                f"max_message_bytes: a batch of {self.max_message_bytes} bytes does not fit into an object of "
                f"max_object_bytes = {self.max_object_bytes}"
            )
        # The first batch is given even if it is larger than every limit.
        if self.fetching_bytes < self.max_fetch_bytes + self.max_message_bytes:
            raise ValueError("fetching_bytes: must hold one answer, max_fetch_bytes and max_message_bytes together")
