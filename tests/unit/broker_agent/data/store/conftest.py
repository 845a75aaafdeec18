from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from pidkeeper.broker_agent.data.store.memory import MemoryStore
from pidkeeper.broker_agent.data.store.opening import open_store
from pidkeeper.broker_agent.data.store.port import ObjectStore
from tests.support.gcs_store import GcsBucket
from tests.support.s3_store import NAMED, Bucket, NamedBucket, S3Bucket


@pytest.fixture(scope="session")
def s3() -> Iterator[Bucket]:
    """moto's, or the one that runs already where NAMED says."""
    if NAMED in os.environ:
        yield NamedBucket(os.environ[NAMED])
        return
    with S3Bucket() as bucket:
        yield bucket


@pytest.fixture(scope="session")
def gcs() -> Iterator[Bucket]:
    """One that speaks as Google's do."""
    with GcsBucket() as bucket:
        yield bucket


@pytest.fixture(params=["memory", "local", "remote", "gcs"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ObjectStore]:
    """An empty one of each kind."""
    opened: ObjectStore
    if request.param == "memory":
        opened = MemoryStore()
    elif request.param == "local":
        opened = open_store(str(tmp_path / "store"), {})
    else:
        bucket: Bucket = request.getfixturevalue("s3" if request.param == "remote" else request.param)
        opened = open_store(bucket.new_url(), bucket.options)
    yield opened
    await opened.close()
