"""`python -m bench.raw_read QUORUM KAFKA`: Spark reads both sources, `local[2]`, and drops the rows."""

from __future__ import annotations

import sys
import time

import msgspec


class RawRead(msgspec.Struct, frozen=True):
    """Seconds from the session's start on."""

    archive_seconds: float
    segment_seconds: float


def main(quorum: str, kafka: str) -> None:
    """Print a RawRead as JSON."""
    from pidkeeper.pipeline.session import session

    seconds = []
    with session("local[2]") as spark:
        for source, path in (("pidkeeper_archive", quorum), ("kafka_segment", kafka)):
            started = time.monotonic()
            spark.read.format(source).load(path).write.format("noop").mode("overwrite").save()
            seconds.append(time.monotonic() - started)
    print(msgspec.json.encode(RawRead(*seconds)).decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
