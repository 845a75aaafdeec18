from __future__ import annotations

from pathlib import Path

import pytest

from pidkeeper.broker_agent.config import ENVIRONMENT_PREFIX, AgentConfig, load_config
from pidkeeper.service.settings import SettingsError

LEAST = {"broker_id": "1", "controllers": "http://c:1"}


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    return path


def from_environment(**settings: object) -> AgentConfig:
    """What is made of LEAST and `settings`, all given as variables."""
    values = LEAST | {key: str(value) for key, value in settings.items()}
    return load_config(environment={ENVIRONMENT_PREFIX + key.upper(): value for key, value in values.items()})


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    path = write(
        tmp_path, 'broker_id = 1\ncontrollers = ["http://a:1"]\nmax_burst = 2\nmin_blocks = 3\nlog_level = "debug"\n'
    )
    environment = {
        "PIDKEEPER_AGENT__CONTROLLERS": "http://b:1, http://c:1",
        "PIDKEEPER_AGENT__MAX_BURST": "4",
        "PIDKEEPER_AGENT__RESERVE_SECONDS": "2.5",
        "UNRELATED": "x",
    }
    config = load_config(path, environment=environment)
    assert (config.broker_id, config.min_blocks, config.log_level) == (1, 3, "debug")
    assert config.controllers == ("http://b:1", "http://c:1")
    assert (config.max_burst, config.reserve_seconds, config.token_file) == (4, 2.5, None)


def test_an_unknown_key_is_named_with_its_source_and_the_known_ones(tmp_path: Path) -> None:
    path = write(tmp_path, 'broker_id = 1\ncontrollers = ["http://c:1"]\nmax_bursts = 2\n')
    with pytest.raises(SettingsError, match=r"agent\.toml: there is no key 'max_bursts'; known keys: broker_id, "):
        load_config(path, environment={})
    with pytest.raises(SettingsError, match=r"environment: there is no key 'max_bursts'; known keys: .*max_burst,"):
        from_environment(max_bursts=2)


def test_groups_have_a_table_and_kafkas_defaults(tmp_path: Path) -> None:
    least = 'broker_id = 1\ncontrollers = ["http://c:1"]\n'
    path = write(tmp_path, least + "[groups]\ninitial_rebalance_delay_ms = 0\nmax_size = 7\n")
    groups = load_config(path, environment={}).groups
    assert (groups.initial_rebalance_delay_ms, groups.max_size, groups.min_session_timeout_ms) == (0, 7, 6_000)
    write(tmp_path, least + "[groups]\nmin_session_timeout_ms = 2_000_000\n")
    with pytest.raises(SettingsError, match="above max_session_timeout_ms"):
        load_config(path, environment={})


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"broker_id": -1}, "broker_id"),
        ({"broker_id": "seven"}, "broker_id"),
        ({"controllers": ""}, "at least one address"),
        ({"controllers": "c:1"}, "'c:1' is not a base URL"),
        ({"transport": "kafka"}, "controllers, with transport = .kafka.: 'http://.*' is no address like kafka://"),
        ({"transport": "kafka", "controllers": "kafka://c"}, "'c' is not host:port"),
        ({"transport": "kafka", "controllers": "kafka://c:0"}, "has port 0"),
        ({"transport": "kafka", "controllers": "kafka://c:1,c:2"}, "'c:2' is no address"),
        ({"controllers": "kafka://c:1"}, "'kafka://c:1' is not a base URL"),
        ({"transport": "carrier pigeon"}, "transport"),
        ({"http_listen": "8080"}, "http_listen: '8080' is not host:port"),
        ({"probe_listen": "8080"}, "probe_listen: '8080' is not host:port"),
        ({"kafka_listen": "h:65536"}, "kafka_listen"),
        ({"kafka_listen": "h:x"}, "kafka_listen"),
        ({"kafka_advertised": "h:0"}, "kafka_advertised: clients need a port"),
        ({"kafka_advertised": ":9092"}, "kafka_advertised"),
        ({"kafka_advertised": "x" * 260 + ":9092"}, "kafka_advertised: 265 characters, not 264"),
        ({"kafka_listen": "0.0.0.0:9092"}, "no client can connect to 0.0.0.0:9092"),
        ({"kafka_listen": "[::]:9092"}, "no client can connect"),
        ({"max_burst": 0}, "max_burst"),
        ({"min_blocks": 9, "max_reserve_blocks": 8}, "min_blocks"),
        ({"log_level": "loud"}, "log_level"),
        ({"ask_fraction": 1.5}, "ask_fraction"),
        ({"kafka_idle_timeout_seconds": 0}, "kafka_idle_timeout_seconds"),
    ],
)
def test_a_bad_value_is_named(bad: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        from_environment(**bad)


def test_what_has_no_default_must_be_given() -> None:
    with pytest.raises(SettingsError, match="broker_id"):
        load_config(environment={})


@pytest.mark.parametrize("text", ["broker_id = ", "\x00"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match=r"agent\.toml: is not TOML"):
        load_config(write(tmp_path, text), environment={})
    with pytest.raises(SettingsError, match=r"missing\.toml"):
        load_config(tmp_path / "missing.toml", environment={})
