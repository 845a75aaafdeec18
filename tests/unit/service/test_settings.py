"""Configuration: the file, the environment above it, and errors that name the key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from pidkeeper.protocol.addresses import HostPort
from pidkeeper.service.settings import SettingsError, load_settings, parse_address, read_secret

PREFIX = "APP__"


class Inner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rate: float = 1.0
    deep: dict[str, int] = {}


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    size: Annotated[int, msgspec.Meta(ge=1)] = 3
    on: bool = False
    inner: Inner = Inner()


def write(path: Path, text: str | bytes) -> Path:
    file = path / "app.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def test_the_file_alone(tmp_path: Path) -> None:
    path = write(tmp_path, 'name = "a"\non = true\n[inner]\nrate = 2.5\n')
    assert load_settings(Shape, path, {}, PREFIX) == Shape("a", 3, True, Inner(2.5))


def test_the_environment_alone_and_its_strings_are_converted() -> None:
    environment = {"APP__NAME": "a", "APP__SIZE": "7", "APP__ON": "true", "APP__INNER__RATE": "0.5", "OTHER": "x"}
    assert load_settings(Shape, None, environment, PREFIX) == Shape("a", 7, True, Inner(0.5))


def test_the_environment_goes_above_the_file_key_by_key(tmp_path: Path) -> None:
    path = write(tmp_path, 'name = "a"\nsize = 5\n[inner]\nrate = 2.5\ndeep = {x = 1}\n')
    settings = load_settings(Shape, path, {"APP__SIZE": "6", "APP__INNER__DEEP__Y": "2"}, PREFIX)
    assert settings == Shape("a", 6, False, Inner(2.5, {"x": 1, "y": 2}))


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"APP__NAME": "a", "APP__SIZ": "1"}, "no key 'siz'; known keys: name, size, on, inner"),
        ({"APP__NAME": "a", "APP__INNER__RAT": "1"}, r"no key 'rat' in \[inner\]"),
        ({"APP__NAME": "a", "APP__SIZE": "many"}, r"environment: .*`int`.*\$.size"),
        ({"APP__NAME": "a", "APP__SIZE": "0"}, r"environment: .*>= 1.*\$.size"),
        ({"APP__NAME": "a", "APP__ON": "perhaps"}, r"\$.on"),
        ({"APP__NAME__X": "a", "APP__NAME": "b"}, None),
        ({"APP__NAME": "a", "APP__NAME__X": "b"}, "APP__NAME__X: name is not a table"),
        ({}, "missing required field `name`"),
    ],
)
def test_bad_environments_are_refused(environment: dict[str, str], message: str | None) -> None:
    if message is None:  # the later, plain value wins
        assert load_settings(Shape, None, environment, PREFIX).name == "b"
        return
    with pytest.raises(SettingsError, match=message):
        load_settings(Shape, None, environment, PREFIX)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("name = ", "is not TOML"),
        (b"name = '\xff'", "is not TOML"),
        ('name = "a"\nnmae = "b"', "no key 'nmae'; known keys"),
        ("name = 5", r"Expected `str`.*\$.name"),
        ('name = "a"\ninner = 5', r"\$.inner"),
    ],
)
def test_bad_files_are_refused_with_their_path(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(SettingsError, match=message) as refused:
        load_settings(Shape, path, {}, PREFIX)
    assert str(path) in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"missing.toml: cannot be read: No such file"):
        load_settings(Shape, tmp_path / "missing.toml", {}, PREFIX)


def test_an_address_that_is_none_is_an_error_of_the_settings() -> None:
    assert parse_address("[::1]:0", "listen") == HostPort("::1", 0)
    with pytest.raises(SettingsError, match=r"^listen: 'host' is not host:port"):
        parse_address("host", "listen")


def test_lists_have_commas_in_the_environment() -> None:
    class Listed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        urls: tuple[str, ...]

    environment = {"APP__URLS": " http://a:1, http://b:2 ,"}
    assert load_settings(Listed, None, environment, PREFIX, lists=("urls",)).urls == ("http://a:1", "http://b:2")


def test_a_secret_is_the_line_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("s3cret\n")
    assert read_secret(str(path), "token_file") == "s3cret"


@pytest.mark.parametrize("content", [b"", b"\n", b"y" * 5000, b"a\nb", b"\xff", b"short"])
def test_a_bad_secret_is_refused_without_showing_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=r"^key_file: ") as caught:
        read_secret(str(path), "key_file", least=16)
    assert "yyy" not in str(caught.value)
    assert "short" not in str(caught.value)


def test_a_missing_secret_is_named() -> None:
    with pytest.raises(SettingsError, match=r"key_file: cannot read /nonexistent/key: FileNotFoundError"):
        read_secret("/nonexistent/key", "key_file")
