"""What the tests of the audit share: one broker with all that producers can write, one Spark session."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.real_producers import write_everything
from tests.support.kafka_broker import KafkaBroker, why_unavailable


@pytest.fixture(scope="session")
def kafka_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory of a broker after real producers wrote to it; the broker is gone, so nothing changes there."""
    if (reason := why_unavailable()) is not None:
        pytest.skip(reason)
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    try:
        broker.start()
        write_everything(broker)
    finally:
        broker.close()
    return broker.logs
