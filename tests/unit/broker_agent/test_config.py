from __future__ import annotations

from pathlib import Path

import pytest

from broker_agent.config import AgentConfig, ConfigError, HostPort, load_config, parse_host_port, read_token

LEAST = {"broker_id": 1, "controllers": ["http://c:1"]}


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    return path


def test_later_sources_win(tmp_path: Path) -> None:
    path = write(
        tmp_path, 'broker_id = 1\ncontrollers = ["http://a:1"]\nmax_burst = 2\nmin_blocks = 3\nlog_level = "debug"\n'
    )
    environment = {
        "PIDKEEPER_AGENT__CONTROLLERS": "http://b:1, http://c:1",
        "PIDKEEPER_AGENT__MAX_BURST": "4",
        "PIDKEEPER_AGENT__RESERVE_SECONDS": "2.5",
        "UNRELATED": "x",
    }
    config = load_config(path, environment=environment, overrides={"max_burst": "6", "token_file": None})
    assert (config.broker_id, config.min_blocks, config.log_level) == (1, 3, "debug")
    assert config.controllers == ("http://b:1", "http://c:1")
    assert (config.max_burst, config.reserve_seconds, config.token_file) == (6, 2.5, None)


@pytest.mark.parametrize("source", ["file", "environment", "overrides"])
def test_an_unknown_key_is_named_with_its_source_and_the_known_ones(tmp_path: Path, source: str) -> None:
    path = write(tmp_path, "max_bursts = 2\n") if source == "file" else None
    environment = {"PIDKEEPER_AGENT__MAX_BURSTS": "2"} if source == "environment" else {}
    overrides = {"max_bursts": 2} if source == "overrides" else {}
    with pytest.raises(
        ConfigError, match=rf"^{source}.*: unknown setting max_bursts; known are broker_id, .*max_burst,"
    ):
        load_config(path, environment=environment, overrides=overrides | LEAST)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"broker_id": -1}, "broker_id"),
        ({"broker_id": "seven"}, "broker_id"),
        ({"controllers": []}, "at least one base URL"),
        ({"controllers": ""}, "at least one base URL"),
        ({"controllers": "c:1"}, "'c:1' is not a base URL"),
        ({"http_listen": "8080"}, "http_listen: '8080' is not host:port"),
        ({"kafka_listen": "h:65536"}, "kafka_listen"),
        ({"kafka_listen": "h:x"}, "kafka_listen"),
        ({"kafka_advertised": "h:0"}, "kafka_advertised: clients need a port"),
        ({"kafka_advertised": ":9092"}, "kafka_advertised"),
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
    with pytest.raises(ConfigError, match=message):
        load_config(environment={}, overrides=LEAST | bad)


def test_what_has_no_default_must_be_given() -> None:
    with pytest.raises(ConfigError, match="broker_id"):
        load_config(environment={})


@pytest.mark.parametrize("text", ["broker_id = ", "\x00"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the configuration file .*agent\.toml"):
        load_config(write(tmp_path, text), environment={})
    with pytest.raises(ConfigError, match=r"missing\.toml"):
        load_config(tmp_path / "missing.toml", environment={})


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("h:0", HostPort("h", 0)), ("[::1]:9092", HostPort("::1", 9092)), ("0.0.0.0:1", HostPort("0.0.0.0", 1))],
)
def test_host_and_port(text: str, parsed: HostPort) -> None:
    assert parse_host_port("x", text) == parsed
    assert str(parsed) == text


def test_the_token_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("s3cret\n")
    base = AgentConfig(broker_id=1, controllers=("http://c:1",))
    assert read_token(base) is None
    assert read_token(AgentConfig(broker_id=1, controllers=("http://c:1",), token_file=str(path))) == "s3cret"


@pytest.mark.parametrize("content", [b"", b"\n", b"x" * 5000, b"a\nb", b"\xff"])
def test_a_bad_token_is_refused_without_showing_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"^token_file: ") as caught:
        read_token(AgentConfig(broker_id=1, controllers=("http://c:1",), token_file=str(path)))
    assert "xxx" not in str(caught.value)


def test_a_missing_token_file_is_named(tmp_path: Path) -> None:
    config = AgentConfig(broker_id=1, controllers=("http://c:1",), token_file=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="token_file: cannot read"):
        read_token(config)
