"""Which process of a parallel run (`pytest -n`) this is."""

from __future__ import annotations

import os


def share() -> tuple[int, int]:
    """The number of this process, from 0, and how many there are; (0, 1) in a run of one process."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    return int(worker.removeprefix("gw")), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
