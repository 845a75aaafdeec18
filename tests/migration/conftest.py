"""The ZooKeepers that the tests share. Every test takes a chroot of its own and leaves all servers running."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest

from tests.support.zookeeper import Ensemble, why_unavailable


def _ensemble(factory: pytest.TempPathFactory, size: Literal[1, 3]) -> Iterator[Ensemble]:
    if (why := why_unavailable()) is not None:
        pytest.skip(why)
    ensemble = Ensemble(factory.mktemp(f"zookeeper-{size}-"), size)
    try:
        ensemble.start()
        yield ensemble
    finally:
        ensemble.close()


@pytest.fixture(scope="session")
def _single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    yield from _ensemble(tmp_path_factory, 1)


@pytest.fixture(scope="session")
def _three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    yield from _ensemble(tmp_path_factory, 3)


@pytest.fixture
def zookeeper(_single: Ensemble) -> Ensemble:
    """One server, which serves."""
    _single.start()
    return _single


@pytest.fixture
def zookeeper_ensemble(_three: Ensemble) -> Ensemble:
    """Three servers with a leader, all of which serve."""
    _three.start()
    return _three
