"""No fault of sequences is lost with the producers that are not looked at."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from pidkeeper.pipeline.engine.duck import connect
from pidkeeper.pipeline.segments.following import begin, follow
from pidkeeper.pipeline.segments.streams import PRODUCER_ID_EXPIRATION_MS, find_faults
from tests.unit.pipeline.segments.logs import MAX_SEQUENCE, Log, compact, lawful_logs, write
from tests.unit.pipeline.segments.test_carrying import loaded


def lengthen(log: Log, row: dict[str, Any], count: int) -> None:
    """Give a batch another number of records, so that its last sequence is another."""
    row["last_offset"] = row["base_offset"] + count - 1
    row["last_sequence"] = (row["base_sequence"] + count - 1) & MAX_SEQUENCE if row["base_sequence"] >= 0 else -1
    log.close_up()


def spoil(chance: random.Random, log: Log) -> None:
    """Up to three faults in any batches."""
    for _ in range(chance.randrange(4)):
        if not log.rows:
            return
        row, other = chance.choice(log.rows), chance.choice(log.rows)
        sequences = ("producer_epoch", "base_sequence", "last_sequence")
        match chance.randrange(7):
            case 0:
                log.rows.remove(row)
            case 1:
                log.rows.append(dict(row))
                log.close_up()
            case 2:
                row["producer_epoch"] = max(0, row["producer_epoch"] + chance.choice((-1, 1)))
            case 3:
                silence = chance.choice((PRODUCER_ID_EXPIRATION_MS, PRODUCER_ID_EXPIRATION_MS - 20_000))
                for each in log.rows[log.rows.index(row) :]:
                    each["max_timestamp_ms"] += silence
            case 4:
                row["base_sequence"] = chance.choice((-1, 0, row["last_sequence"]))
            case 5:
                lengthen(log, row, chance.choice((1, 9)))
            case _:
                held = {name: row[name] for name in sequences}
                row |= {name: other[name] for name in sequences}
                other |= held


def edges(topic: str, producer: int) -> Log:
    """Markers where data is compacted away: what begins behind them, and where, decides. Some are lawful."""
    log = Log(topic)
    log.marker(producer, 0)
    log.data(producer, 0, 5)
    for follower, first_epoch, sequence in ((1, 0, 5), (2, 1, 5), (3, 0, 0)):
        log.marker(producer + follower, first_epoch)
        log.marker(producer + follower, 1)
        log.data(producer + follower, 1, sequence)
    log.data(producer + 4, 0, 0)
    log.marker(producer + 4, 1)
    log.data(producer + 4, 1, 3)
    return log


def spoilt_logs(chance: random.Random, count: int) -> list[Log]:
    logs = [edges("edges", 5000)]
    for number in range(count):
        made = lawful_logs(chance, f"topic{number}", number * 10, steps=20)
        copies = [log.copy("2") for log in made if chance.random() < 0.2]
        for log in (*made, *copies):
            if chance.random() < 0.3:
                compact(chance, log)
            spoil(chance, log)
        logs += [log for log in (*made, *copies) if log.rows]
    return logs


def test_no_fault_is_lost_with_producers_that_are_not_looked_at(tmp_path: Path) -> None:
    write(tmp_path, spoilt_logs(random.Random(11), 120))
    with connect() as con:
        loaded(con, tmp_path)
        begin(con)
        follow(con)
        find_faults(con)
        found = con.execute("from faults order by all").fetchall()
        con.execute("create table spared as from followed anti join suspects using (producer_id, log_id)")
        assert con.execute("select distinct fenced_by from spared").fetchall() == [(None,)]
        con.execute("create or replace temp table suspects as select distinct producer_id, log_id from spared")
        count = con.execute("select count(*) from suspects").fetchone()
        find_faults(con)
        assert con.execute("from faults").fetchall() == []
    assert len(found) > 100, "too few faults"
    assert count > (100,), "too few producers were spared"
