"""An agent with a store serves records too, and one without is as it was."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from pidkeeper.broker_agent.config import load_config
from pidkeeper.broker_agent.coordinator.directory import Directory, Node
from pidkeeper.broker_agent.data.settings import DataSettings
from pidkeeper.broker_agent.ids.reserve import BlockReserve
from pidkeeper.broker_agent.kafka.dispatch import IDS_ALONE, WITH_DATA, Apis, DataCall, GroupCall, ProduceCall
from pidkeeper.broker_agent.kafka.responder import KafkaResponder
from pidkeeper.service.kafka.wire.primitives import WireError
from pidkeeper.service.kafka.wire.versions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    API_VERSIONS,
    END_TXN,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from pidkeeper.service.settings import SettingsError
from tests.support.data_frames import valid_frames

CONTROLLERS = {"PIDKEEPER_AGENT__BROKER_ID": "7", "PIDKEEPER_AGENT__CONTROLLERS": "http://127.0.0.1:8081"}


def responder(apis: Apis = IDS_ALONE) -> KafkaResponder:
    return KafkaResponder(BlockReserve(), Directory(Node(7, "a", 1)), lambda: "c", apis=apis)


def advertised(apis: Apis) -> dict[int, tuple[int, int]]:
    """What ApiVersions version 0 lists."""
    answer, _ = responder(apis).respond(struct.pack(">ihhih", 10, API_VERSIONS, 0, 1, -1))
    assert isinstance(answer, bytes)
    count = int.from_bytes(answer[10:14], "big")
    rows: Sequence[tuple[int, int, int]] = [struct.unpack_from(">hhh", answer, 14 + 6 * row) for row in range(count)]
    return {key: (lowest, highest) for key, lowest, highest in rows}


def test_without_a_store_an_agent_serves_what_it_did() -> None:
    assert advertised(IDS_ALONE).keys() == {
        METADATA, FIND_COORDINATOR, SASL_HANDSHAKE, API_VERSIONS, INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN,
        ADD_OFFSETS_TO_TXN, END_TXN, SASL_AUTHENTICATE,
    }  # fmt: skip
    for frame in valid_frames().values():
        with pytest.raises(WireError, match="is not served here"):
            responder().respond(len(frame).to_bytes(4, "big") + frame)


def test_with_a_store_it_serves_records_and_groups_too() -> None:
    told, alone = advertised(WITH_DATA), advertised(IDS_ALONE)
    assert {key: told[key] for key in alone} == alone | {END_TXN: (0, 5)}
    assert (told[PRODUCE], told[FETCH]) == ((0, 12), (4, 12))
    for (api, version), frame in valid_frames().items():
        call, used = responder(WITH_DATA).respond(len(frame).to_bytes(4, "big") + frame)
        assert isinstance(call, DataCall | ProduceCall | GroupCall)
        assert isinstance(call, GroupCall) is (".wire.groups." in type(call.request).__module__)
        assert (used, call.header.api_version) == (len(frame) + 4, version)
        assert getattr(call, "overlaps", False) is (api == "produce")


def test_a_produce_version_that_is_advertised_alone_is_refused() -> None:
    with pytest.raises(WireError, match="version 2 of API key 0"):
        responder(WITH_DATA).respond(struct.pack(">ihhih", 10, PRODUCE, 2, 1, -1))


def test_settings() -> None:
    assert load_config(environment=CONTROLLERS).data is None
    data = load_config(environment=CONTROLLERS | {"PIDKEEPER_AGENT__DATA__STORE": "s3://b/p"}).data
    assert data == DataSettings(store="s3://b/p")
    groups = load_config(environment=CONTROLLERS | {"PIDKEEPER_AGENT__GROUPS__MAX_SIZE": "5"}).groups
    assert (groups.max_size, groups.initial_rebalance_delay_ms) == (5, 3000)
    for key, value, message in (
        ("MAX_MESSAGE_BYTES", str(5 << 20), "does not fit into an object"),
        ("FETCHING_BYTES", "100", "must hold one answer"),
        ("MAX_PENDING_BYTES", "100", "max_pending_bytes"),
        ("STOER", "x", "stoer"),
    ):
        environment = CONTROLLERS | {"PIDKEEPER_AGENT__DATA__STORE": "x", f"PIDKEEPER_AGENT__DATA__{key}": value}
        with pytest.raises(SettingsError, match=message):
            load_config(environment=environment)
