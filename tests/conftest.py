"""What keeps the processes of a parallel run (`pytest -n`) out of each other's way, and both cores at work."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from pidkeeper.cli import local_cluster
from tests.support.side_by_side import share

# Whoever starts the tests in the background has all that they start ignore SIGINT, and some tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes tells how busy the machine is, and no more.
settings.register_profile("beside others", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("beside others")

TESTS: Final = Path(__file__).parent
COMPUTING: Final = ("pipeline",)
WAITING: Final = ("chaos", "clients", "cuts", "deploy", "integration", "migration", "pods", "soak")


@pytest.fixture(scope="session", autouse=True)
def _own_ports() -> Iterator[None]:
    """A free port is chosen long before a member listens on it: meanwhile another process must not choose it."""
    number, count = share()
    with pytest.MonkeyPatch.context() as lasting:
        lasting.setattr(local_cluster, "LISTEN_PORTS", local_cluster.LISTEN_PORTS[number::count])
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In a parallel run, what computes goes beside what waits, and the short files come last, for an even end."""
    if share() == (0, 1):
        return
    paths = list(dict.fromkeys(item.path for item in items))
    turns = {path: turn for folders in (COMPUTING, WAITING) for path, turn in _spread(paths, folders).items()}
    items.sort(key=lambda item: turns.get(item.path, 1.0))


def _spread(paths: list[Path], folders: tuple[str, ...]) -> dict[Path, float]:
    """The files of these folders, evenly from 0 to 1."""
    chosen = [path for path in paths if path.relative_to(TESTS).parts[0] in folders]
    return {path: number / len(chosen) for number, path in enumerate(chosen)}
