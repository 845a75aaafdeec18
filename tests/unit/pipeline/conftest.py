"""File systems that are not this machine's, on loopback."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from tests.support import s3
from tests.support.name_node import NameNode
from tests.support.s3 import S3


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameNode]:
    """An HDFS over HTTP."""
    for name in ("requests", "fsspec"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)
    node = NameNode()
    yield node
    node.close()


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """An S3, with the user's key where pyarrow finds it."""
    if (reason := s3.why_unavailable()) is not None:
        pytest.skip(reason)
    credentials = tmp_path_factory.mktemp("aws") / "credentials"
    server = S3()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
        environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
            environment.delenv(name, raising=False)
        _forget()  # what another server of this process kept
        try:
            server.start(credentials)
            yield server
        finally:
            server.close()
            _forget()


def _forget() -> None:
    from moto.moto_api._internal.models import moto_api_backend

    moto_api_backend.reset()
