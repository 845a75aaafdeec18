"""`controller.toml` and the environment: every bad value is refused with a message that says which key and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from pidkeeper.controller.config import ENVIRONMENT_PREFIX, ControllerConfig, load_config
from pidkeeper.controller.node.settings import PROFILES, Voter, ZooKeeperSettings
from pidkeeper.protocol.addresses import HostPort
from pidkeeper.service.settings import SettingsError

VOTERS = [{"id": i, "peer": f"127.0.0.1:{9000 + i}", "http": f"http://127.0.0.1:{8000 + i}/"} for i in (3, 1, 2)]
GOOD: dict[str, Any] = {
    "node_id": 2,
    "cluster_id": "c",
    "data_dir": "/data",
    "http_listen": "127.0.0.1:8002",
    "peer_listen": "127.0.0.1:9002",
    "voters": VOTERS,
    "insecure": True,
}


def load(tmp_path: Path, environment: dict[str, str] | None = None, **changes: Any) -> ControllerConfig:
    """The good configuration with `changes`; None leaves a key out."""
    values = {key: value for key, value in {**GOOD, **changes}.items() if value is not None}
    path = tmp_path / "controller.toml"
    path.write_bytes(msgspec.toml.encode(values))
    return load_config(path, environment or {})


def test_a_good_file(tmp_path: Path) -> None:
    settings = load(tmp_path).member_settings()
    assert (settings.node_id, settings.cluster_id, settings.data_dir) == (2, "c", "/data")
    assert settings.peer_listen == HostPort("127.0.0.1", 9002)
    assert settings.voters == tuple(
        Voter(i, HostPort("127.0.0.1", 9000 + i), f"http://127.0.0.1:{8000 + i}") for i in (1, 2, 3)
    )
    assert settings.timing is PROFILES["lan"]
    assert settings.block_size == 1000
    assert settings.peer_keys == (None,)


def test_settings_of_partition_logs_reach_the_member(tmp_path: Path) -> None:
    settings = load(tmp_path, log_roll_rows=5, log_retention_check_ms=100, log_segment_delete_delay_ms=700)
    found = settings.member_settings().segments
    assert (found.rows, found.retention_check_ms, found.garbage_ms) == (5, 100, 700)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nod_id": 1}, "no key 'nod_id'; known keys: node_id, cluster_id"),
        ({"voters": [*VOTERS, {**VOTERS[0], "port": 1}]}, r"no key 'port' in \[voters"),
        ({"limits": {"max_pendig": 1}}, r"no key 'max_pendig' in \[limits\]"),
        ({"node_id": None}, "missing required field `node_id`"),
        ({"cluster_id": None}, "missing required field `cluster_id`"),
        ({"cluster_id": ""}, r"length >= 1.*\$.cluster_id"),
        ({"cluster_id": "c" * 65}, r"length <= 64.*\$.cluster_id"),
        ({"node_id": 0}, r">= 1.*\$.node_id"),
        ({"node_id": "two"}, r"\$.node_id"),
        ({"voters": []}, r"length >= 1.*\$.voters"),
        ({"voters": VOTERS * 4}, r"length <= 9.*\$.voters"),
        ({"voters": [{"id": 1, "peer": "x:1"}]}, "missing required field `http`"),
        ({"profile": "space"}, r"'space'.*\$.profile"),
        ({"block_size": 0}, r">= 1.*\$.block_size"),
        ({"block_size": 1_000_001}, r"<= 1000000.*\$.block_size"),
        ({"snapshot_entries": 9}, r">= 10.*\$.snapshot_entries"),
        ({"snapshot_allocations": 1_000_001}, r"\$.snapshot_allocations"),
        ({"segment_bytes": 1024}, r">= 1048576.*\$.segment_bytes"),
        ({"broker_session_timeout_ms": 99}, r">= 100.*\$.broker_session_timeout_ms"),
        ({"log_level": "loud"}, r"'loud'.*\$.log_level"),
        ({"limits": {"max_pending": 0}}, r">= 1.*\$.limits.max_pending"),
        ({"limits": {"broker_allocations": {"per_second": 0, "burst": 1}}}, r"\$.limits.broker_allocations"),
    ],
)
def test_values_that_cannot_be(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message) as refused:
        load(tmp_path, **changes)
    assert "controller.toml" in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"node_id": 4}, r"member 4 itself is not among \[1, 2, 3\]: .*learner = true.*`pidkeeper quorum add-voter`"),
        ({"node_id": 4}, "Voters are changed by `pidkeeper quorum add-voter` and `remove-voter`, never by a file"),
        ({"voters": [*VOTERS, VOTERS[0]]}, r"an id stands there twice: \[3, 1, 2, 3\]"),
        ({"voters": [{**VOTERS[2], "peer": "nowhere"}]}, "voters.peer: 'nowhere' is not host:port"),
        ({"peer_listen": "127.0.0.1:70000"}, "peer_listen: '127.0.0.1:70000' is not host:port"),
        ({"peer_key_file": "/nonexistent/key"}, "peer_key_file: cannot read /nonexistent/key"),
    ],
)
def test_values_that_do_not_fit_together(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    config = load(tmp_path, **changes)
    with pytest.raises(SettingsError, match=message):
        config.member_settings()


def test_members_say_where_they_speak_kafkas_protocol_or_do_not(tmp_path: Path) -> None:
    one, two, three = VOTERS
    voters = [{**one, "kafka": "kafka://h-3:9093/"}, {**two, "kafka": "kafka+ssl://[::1]:9093"}, three]
    config = load(tmp_path, voters=voters, kafka_listen="127.0.0.1:9093")
    assert config.kafka_addresses() == {3: "kafka://h-3:9093", 1: "kafka+ssl://[::1]:9093"}
    assert config.member_settings() == load(tmp_path).member_settings(), "it is nothing to the quorum"


@pytest.mark.parametrize("kafka", ["h:9093", "http://h:9093", "kafka://h", "kafka://h:0", "kafka+ssl://"])
def test_an_address_of_kafkas_protocol_that_cannot_be(tmp_path: Path, kafka: str) -> None:
    with pytest.raises(SettingsError, match=r"voters\.kafka: "):
        load(tmp_path, voters=[{**VOTERS[1], "kafka": kafka}], node_id=1).kafka_addresses()


def test_where_tls_is_required_kafkas_protocol_is_spoken_over_it(tmp_path: Path) -> None:
    voter = {**VOTERS[1], "http": "https://h:1", "kafka": "kafka://h:9093"}
    config = load(tmp_path, voters=[voter], node_id=1, security="required", insecure=None)
    with pytest.raises(SettingsError, match=r"voters\.kafka: kafka://h:9093 is no kafka\+ssl:// address"):
        config.protection()


def test_the_environment_goes_above_the_file(tmp_path: Path) -> None:
    environment = {
        "PIDKEEPER__NODE_ID": "3",
        "PIDKEEPER__BLOCK_SIZE": "50",
        "PIDKEEPER__PROFILE": "wan",
        "PIDKEEPER__LIMITS__MAX_PENDING": "77",
        "PIDKEEPER__LIMITS__BROKER_ALLOCATIONS__PER_SECOND": "12.5",
        "PIDKEEPER__LIMITS__BROKER_ALLOCATIONS__BURST": "9",
        "PIDKEEPER_SERVICE_HOST": "set by others",
    }
    config = load(tmp_path, environment, limits={"max_pending": 5, "request_timeout_ms": 1234})
    assert config.limits.max_pending == 77
    assert config.limits.request_timeout_ms == 1234
    assert (config.limits.broker_allocations.per_second, config.limits.broker_allocations.burst) == (12.5, 9)
    settings = config.member_settings()
    assert (settings.node_id, settings.block_size, settings.timing) == (3, 50, PROFILES["wan"])


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"PIDKEEPER__NODEID": "3"}, "no key 'nodeid'; known keys"),
        ({"PIDKEEPER__LIMITS__PENDING": "3"}, r"no key 'pending' in \[limits\]"),
        ({"PIDKEEPER__NODE_ID": "three"}, r"\$.node_id"),
        ({"PIDKEEPER__CLUSTER_ID__X": "three"}, "PIDKEEPER__CLUSTER_ID__X: cluster_id is not a table"),
        ({"PIDKEEPER__VOTERS__0__ID": "1"}, "PIDKEEPER__VOTERS__0__ID: voters is not a table"),
    ],
)
def test_variables_that_cannot_be(tmp_path: Path, environment: dict[str, str], message: str) -> None:
    assert all(name.startswith(ENVIRONMENT_PREFIX) for name in environment)
    with pytest.raises(SettingsError, match=message):
        load(tmp_path, environment)


def test_the_advertised_url_replaces_the_members_own(tmp_path: Path) -> None:
    settings = load(tmp_path, http_advertised="http://outside:80/").member_settings()
    assert [voter.http for voter in settings.voters] == [
        "http://127.0.0.1:8001",
        "http://outside:80",
        "http://127.0.0.1:8003",
    ]


def test_the_peer_key_comes_from_its_file(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("a secret of enough characters\n")
    settings = load(tmp_path, peer_key_file=str(key), insecure=None).member_settings()
    assert settings.peer_keys == (b"a secret of enough characters",)


def test_keys_are_rotated_and_introduced_with_more_than_one_that_is_good(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("the old key of the members\n\n  the new key of the members \r\n")
    both = (b"the old key of the members", b"the new key of the members")
    assert load(tmp_path, peer_key_file=str(key), insecure=None).member_settings().peer_keys == both
    assert load(tmp_path, peer_key_file=str(key), insecure=True).member_settings().peer_keys == (*both, None)


def test_a_member_with_peers_does_not_start_without_a_key_unless_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^peer_key_file: members must prove .* or say insecure = true"):
        load(tmp_path, insecure=None).member_settings()
    alone = load(tmp_path, insecure=None, voters=[VOTERS[2]])
    assert alone.member_settings().peer_keys == ()


def test_a_control_character_does_not_make_two_keys_of_one(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"the key of the members\x0bthe rest of that key\n")
    with pytest.raises(SettingsError, match=r"^peer_key_file: .*key must hold 1 to 4 lines of 16 to "):
        load(tmp_path, peer_key_file=str(key)).member_settings()


def test_a_short_peer_key_is_refused(tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_text("short\n")
    with pytest.raises(SettingsError, match=r"^peer_key_file: .*short must hold 1 to 4 lines of 16 to "):
        load(tmp_path, peer_key_file=str(short)).member_settings()


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(SettingsError, match=r"/nonexistent/controller\.toml: cannot be read: No such file"):
        load_config(Path("/nonexistent/controller.toml"), {})


LEARNER = {"id": 4, "peer": "127.0.0.1:9004", "http": "http://127.0.0.1:8004/", "learner": True}


@pytest.mark.parametrize("voters", [VOTERS, VOTERS[:2]])
def test_a_learner_names_the_voters_that_it_joins(tmp_path: Path, voters: list[dict[str, Any]]) -> None:
    settings = load(tmp_path, node_id=4, voters=[*voters, LEARNER]).member_settings()
    assert [voter.id for voter in settings.voters] == sorted(voter["id"] for voter in voters)
    assert settings.learner == Voter(4, HostPort("127.0.0.1", 9004), "http://127.0.0.1:8004")
    assert settings.address() == "127.0.0.1:9004"
    assert load(tmp_path).member_settings().address() == "127.0.0.1:9002"


@pytest.mark.parametrize(
    ("node_id", "voters"),
    [(2, [*VOTERS, LEARNER]), (4, [LEARNER]), (4, [*VOTERS, LEARNER, {**LEARNER, "id": 5}])],
)
def test_only_the_member_itself_can_be_a_learner(tmp_path: Path, node_id: int, voters: list[dict[str, Any]]) -> None:
    with pytest.raises(SettingsError, match=f"only member {node_id} itself can be one"):
        load(tmp_path, node_id=node_id, voters=voters).member_settings()


CONNECT = "z1:2181,z2:2181/kafka"


def test_a_quorum_begins_alone_unless_it_is_told_otherwise(tmp_path: Path) -> None:
    settings = load(tmp_path).member_settings()
    assert (settings.bridge, settings.zookeeper) == (False, None)
    # How ZooKeeper is reached says nothing about where the quorum begins.
    settings = load(tmp_path, zookeeper={"connect": CONNECT}).member_settings()
    assert (settings.bridge, settings.zookeeper is not None) == (False, True)


def test_zookeeper_with_all_that_can_be_said_of_it(tmp_path: Path) -> None:
    digest = tmp_path / "digest"
    digest.write_text("kafka:a pass:word\n")
    table = {
        "connect": " z1, z2:2182/kafka ",
        "session_timeout_ms": 1000,
        "request_timeout_ms": 100,
        "digest_file": str(digest),
    }
    settings = load(tmp_path, mode="zookeeper", zookeeper=table).member_settings()
    assert settings.bridge
    assert settings.zookeeper == ZooKeeperSettings(
        connect="z1:2181,z2:2182/kafka", session_timeout_ms=1000, request_timeout_ms=100, digest="kafka:a pass:word"
    )


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "missing required field `connect`"),
        ({"connect": CONNECT, "chroot": "/kafka"}, r"no key 'chroot' in \[zookeeper\]"),
        ({"connect": ["z1:2181"]}, r"\$.zookeeper.connect"),
        ({"connect": CONNECT, "session_timeout_ms": 999}, r">= 1000.*\$.zookeeper.session_timeout_ms"),
        ({"connect": CONNECT, "session_timeout_ms": 300_001}, r"<= 300000.*\$.zookeeper.session_timeout_ms"),
        ({"connect": CONNECT, "request_timeout_ms": 99}, r">= 100.*\$.zookeeper.request_timeout_ms"),
        ({"connect": CONNECT, "request_timeout_ms": 60_001}, r"<= 60000.*\$.zookeeper.request_timeout_ms"),
    ],
)
def test_a_zookeeper_table_that_cannot_be(tmp_path: Path, table: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load(tmp_path, zookeeper=table)


def test_a_mode_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"'kraft'.*\$.mode"):
        load(tmp_path, mode="kraft")
    with pytest.raises(SettingsError, match=r'^mode = "zookeeper" needs a \[zookeeper\] table: connect = "host:port'):
        load(tmp_path, mode="zookeeper").member_settings()


@pytest.mark.parametrize(
    ("connect", "message"),
    [
        ("", "there is no host in ''"),
        ("z1:2181,", "there is no host in ''"),
        ("z1:0", "the port '0' of z1 is not a number from 1 to 65535"),
        ("z1:2181/", "the chroot '/' must not end with a slash"),
        ("zk://z1:2181/kafka", "the port '' of zk is not a number"),
    ],
)
def test_a_connect_string_that_cannot_be(tmp_path: Path, connect: str, message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(tmp_path, zookeeper={"connect": connect}).member_settings()
    assert message in str(refused.value)


def test_a_digest_is_a_user_and_a_password(tmp_path: Path) -> None:
    digest = tmp_path / "digest"
    digest.write_text("only-a-password\n")
    with pytest.raises(SettingsError, match=r"^zookeeper\.digest_file: .*digest must hold user:password$") as refused:
        load(tmp_path, zookeeper={"connect": CONNECT, "digest_file": str(digest)}).member_settings()
    assert "only-a-password" not in str(refused.value)
    digest.unlink()
    with pytest.raises(SettingsError, match=r"^zookeeper\.digest_file: cannot read "):
        load(tmp_path, zookeeper={"connect": CONNECT, "digest_file": str(digest)}).member_settings()


def test_the_environment_may_say_where_zookeeper_is(tmp_path: Path) -> None:
    environment = {
        "PIDKEEPER__MODE": "zookeeper",
        "PIDKEEPER__ZOOKEEPER__CONNECT": "elsewhere:1/kafka",
        "PIDKEEPER__ZOOKEEPER__REQUEST_TIMEOUT_MS": "750",
    }
    for table in (None, {"connect": CONNECT, "session_timeout_ms": 7000}):
        settings = load(tmp_path, environment, zookeeper=table).member_settings()
        assert settings.bridge
        assert settings.zookeeper is not None
        assert (settings.zookeeper.connect, settings.zookeeper.request_timeout_ms) == ("elsewhere:1/kafka", 750)
        assert settings.zookeeper.session_timeout_ms == (6000 if table is None else 7000)
