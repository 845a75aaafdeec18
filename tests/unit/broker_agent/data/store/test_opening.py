from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pidkeeper.broker_agent.data.store.local import LocalStore
from pidkeeper.broker_agent.data.store.opening import open_store
from pidkeeper.broker_agent.data.store.remote import RemoteStore


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/", "s3://bucket/a/b", "gs://bucket/a"])
def test_urls_of_buckets(url: str) -> None:
    assert isinstance(open_store(url, {}), RemoteStore)


def test_a_container_of_azure() -> None:
    assert isinstance(open_store("az://container/a", {"account_name": "x", "account_key": "aGVsbG8="}), RemoteStore)


async def test_a_relative_path_is_a_directory_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("here", {})
    assert isinstance(store, LocalStore)
    await store.put("a", [b"x"])
    await store.close()
    assert (tmp_path / "here" / "a").is_file()


@pytest.mark.parametrize(
    ("location", "options", "message"),
    [
        ("", {}, "the path of a directory, or as s3://"),
        ("a\0b", {}, "the path of a directory"),
        ("file:///tmp", {}, "file:// is no kind of store; there are s3, gs, az"),
        ("https://bucket", {}, "https:// is no kind"),
        ("://bucket", {}, "no kind of store"),
        ("s3://", {}, "s3://BUCKET or s3://BUCKET/PREFIX"),
        ("s3://key:secret@bucket", {}, "s3://BUCKET or"),
        ("s3://bucket?region=x", {}, "s3://BUCKET or"),
        ("s3://bucket/a/../b", {}, "no name of an object"),
        ("gs://bucket/a", {"bogus": "1"}, "the options of the store bucket: .*bogus"),
        ("s3://b", {"endpoint": "no url"}, "endpoint: 'no url' is no URL like"),
        ("s3://b", {"aws_endpoint": "ftp://h"}, "is no URL like"),
        ("s3://b", {"AWS_ENDPOINT_URL": "http://h:99999"}, "is no URL like"),
        ("s3://b", {"endpoint": "http://h:9000"}, "without TLS, which takes allow_http"),
        ("gs://b", {"base_url": "no url"}, "base_url: 'no url' is no URL like"),
        ("gs://b", {"google_base_url": "http://h"}, "without TLS, which takes allow_http"),
        ("s3://b", {"web_identity_token_file": "/no/such"}, "there is no file /no/such"),
        ("gs://b", {"service_account_path": "/no/such"}, "the options of the store b: .*No such file"),
        ("az://container", {}, "the options of the store container: .*Account"),
    ],
)
def test_anything_else_is_refused(location: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        open_store(location, options)
    assert "secret" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_directory_has_no_options(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no options: endpoint, region"):
        open_store(str(tmp_path / "store"), {"region": "x", "endpoint": "y"})
    assert not (tmp_path / "store").exists()


def test_without_obstore_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pidkeeper.broker_agent.data.store.remote")
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(ValueError, match=r"needs obstore, which is not installed: pip install 'pidkeeper\[store\]'"):
        open_store("s3://bucket", {})


def test_what_the_environment_says_counts_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://h:9000")
    with pytest.raises(ValueError, match="takes allow_http"):
        open_store("s3://b", {})
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    open_store("s3://b", {})
    token = tmp_path / "token"
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    with pytest.raises(ValueError, match=r"there is no file .*token"):
        open_store("s3://b", {})
    open_store("s3://b", {"access_key_id": "x", "secret_access_key": "y"})
    token.touch()
    open_store("s3://b", {})
