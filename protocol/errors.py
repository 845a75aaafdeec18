"""The error table: one row for every way in which a request can fail.

Names and codes are Kafka's (`org.apache.kafka.common.protocol.Errors`). A row also says which HTTP status carries the
error, whether the caller may send the same request again, and who has to act.
"""

from __future__ import annotations

import enum
from typing import Final, Literal

Actor = Literal["nobody", "client", "agent", "operator"]


class ErrorCode(enum.Enum):
    """A row of the table: `kafka_code`, `http_status`, `retriable`, `actor` (who has to act), `meaning`."""

    NONE = (0, 200, False, "nobody", "success")
    UNKNOWN_SERVER_ERROR = (-1, 500, True, "operator", "a fault in the server; its log has the details")
    OFFSET_OUT_OF_RANGE = (1, 400, False, "client", "the log has no such offset")
    UNKNOWN_TOPIC_OR_PARTITION = (3, 404, True, "client", "there is no such topic or partition")
    REQUEST_TIMED_OUT = (7, 504, True, "client", "the outcome is unknown: the request may still take effect")
    MESSAGE_TOO_LARGE = (10, 413, False, "client", "the request is larger than the limit")
    OFFSET_METADATA_TOO_LARGE = (12, 400, False, "client", "the metadata of an offset is larger than the limit")
    COORDINATOR_LOAD_IN_PROGRESS = (14, 503, True, "client", "no producer ID at hand right now; ask again")
    COORDINATOR_NOT_AVAILABLE = (15, 503, True, "client", "no coordinator can be named right now")
    NOT_COORDINATOR = (16, 421, True, "client", "another agent coordinates this group")
    INVALID_TOPIC_EXCEPTION = (17, 400, False, "client", "no topic may have this name")
    NOT_ENOUGH_REPLICAS = (19, 503, True, "operator", "the quorum has no room for more; nothing was changed")
    ILLEGAL_GENERATION = (22, 409, False, "client", "the group is in another generation")
    INCONSISTENT_GROUP_PROTOCOL = (23, 400, False, "client", "the members of the group have no protocol in common")
    INVALID_GROUP_ID = (24, 400, False, "client", "no group may have this id")
    UNKNOWN_MEMBER_ID = (25, 409, False, "client", "the group has no such member")
    INVALID_SESSION_TIMEOUT = (26, 400, False, "client", "the session timeout is out of bounds")
    REBALANCE_IN_PROGRESS = (27, 409, True, "client", "the group is rebalancing: join it again")
    INVALID_COMMIT_OFFSET_SIZE = (28, 400, False, "client", "the offsets are more than may be committed at once")
    GROUP_AUTHORIZATION_FAILED = (30, 403, False, "operator", "the group is not allowed here")
    CLUSTER_AUTHORIZATION_FAILED = (31, 403, False, "operator", "the caller may not act on this cluster")
    UNSUPPORTED_SASL_MECHANISM = (33, 400, False, "client", "this way of authentication is not offered here")
    ILLEGAL_SASL_STATE = (34, 400, False, "client", "nobody has to authenticate here, or not now")
    UNSUPPORTED_VERSION = (35, 400, False, "client", "this version of the request is not served here")
    TOPIC_ALREADY_EXISTS = (36, 409, False, "client", "there is a topic of this name")
    INVALID_PARTITIONS = (37, 400, False, "client", "no topic may have so many partitions")
    INVALID_CONFIG = (40, 400, False, "client", "a setting of the topic is unknown, or has another value here")
    NOT_CONTROLLER = (41, 421, True, "agent", "this member is not the leader; ask the one that is named")
    INVALID_REQUEST = (42, 400, False, "client", "the request is malformed; nothing was changed")
    OUT_OF_ORDER_SEQUENCE_NUMBER = (45, 409, False, "client", "batches of this producer before this one are missing")
    INVALID_PRODUCER_EPOCH = (47, 409, False, "client", "another instance of this producer has taken over")
    INVALID_TXN_STATE = (48, 409, False, "client", "the transaction is not in a state for this")
    INVALID_PRODUCER_ID_MAPPING = (49, 409, False, "client", "the transactional id has another producer id, or none")
    INVALID_TRANSACTION_TIMEOUT = (50, 400, False, "client", "the transaction timeout is out of bounds")
    CONCURRENT_TRANSACTIONS = (51, 409, True, "client", "the transaction before is still being completed; ask again")
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = (53, 403, False, "operator", "the transactional id is not allowed here")
    KAFKA_STORAGE_ERROR = (56, 503, True, "operator", "the disk of this member failed or is full")
    SASL_AUTHENTICATION_FAILED = (58, 401, False, "client", "user or password are wrong")
    REASSIGNMENT_IN_PROGRESS = (60, 409, True, "client", "another change of the quorum is not complete; ask again")
    NON_EMPTY_GROUP = (68, 409, False, "client", "the group has members")
    GROUP_ID_NOT_FOUND = (69, 404, False, "client", "nothing is known of this group")
    STALE_BROKER_EPOCH = (77, 409, True, "agent", "the broker epoch is not the current one; register anew")
    MEMBER_ID_REQUIRED = (79, 409, True, "client", "join again with the member id that was given")
    GROUP_MAX_SIZE_REACHED = (81, 409, False, "client", "the group has as many members as it may have")
    FENCED_INSTANCE_ID = (82, 409, False, "client", "another member has taken over this instance id")
    GROUP_SUBSCRIBED_TO_TOPIC = (86, 409, False, "client", "members of the group are subscribed to this topic")
    UNSTABLE_OFFSET_COMMIT = (88, 409, True, "client", "a transaction holds this offset still; ask again")
    THROTTLING_QUOTA_EXCEEDED = (89, 429, True, "agent", "too many requests; wait for throttle_time_ms")
    PRODUCER_FENCED = (90, 409, False, "client", "a newer instance of this producer has taken over")
    RESOURCE_NOT_FOUND = (91, 404, False, "client", "there is no such thing here")
    DUPLICATE_BROKER_REGISTRATION = (101, 409, False, "operator", "a newer process has taken over this broker id")
    BROKER_ID_NOT_REGISTERED = (102, 404, True, "agent", "the broker id is not registered; register first")
    INCONSISTENT_CLUSTER_ID = (104, 409, False, "operator", "the caller belongs to another cluster")
    TRANSACTIONAL_ID_NOT_FOUND = (105, 404, False, "client", "nothing is known of this transactional id")
    TRANSACTION_ABORTABLE = (120, 409, False, "client", "the transaction cannot go on: abort it")
    PRODUCER_IDS_EXHAUSTED = (-1, 507, False, "operator", "no producer ID is left below 2^63-1")
    ZOOKEEPER_UNAVAILABLE = (-1, 503, True, "operator", "no block is handed out without ZooKeeper, which is away")
    MIGRATION_UNDER_WAY = (-1, 503, True, "agent", "no block is handed out while the migration takes this step")
    MIGRATION_REFUSED = (-1, 409, False, "operator", "the migration cannot take this step now")
    STORE_REFUSED = (-1, 409, False, "operator", "this broker keeps objects in another store than the cluster")
    VOTERS_NOT_CONNECTED = (-1, 503, True, "operator", "not all voters are connected to this member yet; ask again")
    FOUNDING_UNDER_WAY = (
        -1,
        503,
        True,
        "agent",
        "the quorum was founded just now, and hears its brokers first; ask again",
    )
    EVIDENCE_OPEN = (-1, 503, True, "operator", "a broker holds IDs that were not handed out here; see health")
    EVIDENCE_REFUSED = (-1, 409, False, "operator", "what this broker says it holds cannot be, or was judged wrong")
    FOUNDING_REFUSED = (-1, 409, False, "operator", "no quorum can be founded here, or not with these voters")
    """Ours: Kafka answers these with its code -1, so the wire does too, under names of their own."""

    def __init__(self, kafka_code: int, http_status: int, retriable: bool, actor: Actor, meaning: str) -> None:
        self.kafka_code: Final = kafka_code
        self.http_status: Final = http_status
        self.retriable: Final = retriable
        self.actor: Final = actor
        self.meaning: Final = meaning


class RequestError(Exception):
    """A refusal that the caller is told about. It changes nothing and is never a fault of this process.

    Fields: `code`, the row of the table; `detail`, what was wrong in this case and what to do; `throttle_time_ms`, how
    long to wait, where that is the remedy.
    """

    def __init__(self, code: ErrorCode, detail: str = "", *, throttle_time_ms: int = 0) -> None:
        super().__init__(f"{code.name}: {detail or code.meaning}")
        self.code = code
        self.detail = detail or code.meaning
        self.throttle_time_ms = throttle_time_ms
