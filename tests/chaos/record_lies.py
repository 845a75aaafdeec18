"""What the check of records must find: lies in a copy of a run, and an agent that acknowledges before it commits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from pidkeeper.broker_agent.data.gathered import GatheredObject
from pidkeeper.broker_agent.data.writing import ObjectWriter
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.log_messages import CommitObjectResponse
from pidkeeper.protocol.messages import AllocatedBlock
from tests.chaos.checker import check
from tests.chaos.copies import AbsentError, Control, Copy, control_of, give, like
from tests.chaos.ledgers import LEDGER, Ledger
from tests.chaos.load.journal import ActorJournal, Invoked, Outcome, Returned
from tests.chaos.load.kinds import FINAL_READ, READ, TRANSACTION, WRITE
from tests.chaos.load.records_process import COMMITTED, UNCOMMITTED
from tests.support.data_parts import RNG, records
from tests.support.gatherer_rig import Rig

HASTY_RECORDS: Final = 30
DIES_AT: Final = 10
"""Every so many objects the agent is gone before the quorum has heard of one."""

Pairs = list[tuple[Invoked, Returned]]
Read = list[list[Any]]
"""Offset and value of each record that a consumer saw of one partition."""


# An agent that is wrong.


class HastyWriter(ObjectWriter):
    """Answers when an object is stored, with the offsets that it will have, and then has it committed, or dies."""

    rig: Rig
    stored: int = 0

    async def commit(self, item: GatheredObject) -> CommitObjectResponse:
        """As if it were committed."""
        log = self.rig.leader.machine.logs.log(0)
        assert log is not None, "the rig has a topic"
        self.stored += 1
        if self.stored % DIES_AT:
            return await super().commit(item)
        return CommitObjectResponse([log.end + place for place in range(len(item))], True)


async def hasty_agent(directory: Path) -> Control:
    """Records that such an agent has acknowledged, each alone, and what its logs have in the end."""
    rig, told = Rig(), {}
    writer = HastyWriter(rig.store, rig.leader, rig.session, rig.discarder, RNG, rig.counters)
    writer.rig = rig
    rig.gatherer._writer = writer
    with ActorJournal(directory, "hasty") as journal:
        for sequence in range(HASTY_RECORDS):
            value = f"hasty.{sequence}"
            batch = records(values=[value.encode()])
            told[bytes(batch)] = value
            number = journal.invoke(WRITE, partition=0, value=value)
            (offset,) = await rig.append(batch)
            journal.ok(number, {"offset": offset})
        await rig.stop()
        found = [
            (offset, told[await rig.store.read(name, position, size)])
            for offset, name, position, size in rig.leader.places(0)
        ]
        for isolation in (UNCOMMITTED, COMMITTED):
            journal.ok(journal.invoke(FINAL_READ, isolation=isolation, partition=0), {"records": found})
    block = AllocatedBlock(0, MAX_PRODUCER_ID, 0, 0, 1, 0)
    (directory / f"hasty{LEDGER}").write_bytes(msgspec.json.encode(Ledger(1, 0, MAX_PRODUCER_ID, [block])))
    return control_of("an agent that acknowledges before it commits", check(directory), "record-lost")


# Lies in a copy.


def lost_record(copy: Copy) -> None:
    """It is gone to all who read in the end."""
    value = _acknowledged(copy)
    edit_final(copy, lambda read: [one for one in read if one[1] != value])


def lost_in_part(copy: Copy) -> None:
    """It is gone to those who read what was committed."""
    value = _acknowledged(copy)
    edit_final(copy, lambda read: [one for one in read if one[1] != value], isolations=(COMMITTED,))


def doubled_record(copy: Copy) -> None:
    value = _acknowledged(copy)
    edit_final(copy, lambda read: [*read, [read[-1][0] + 1, value]] if _has(read, value) else read)


def reordered_records(copy: Copy) -> None:
    """The last one of a partition and its first change places; nobody was told of their offsets."""
    with copy.operations(copy.having(WRITE, at_least=2)) as pairs:
        places = like(pairs, WRITE)
        by_producer = [pairs[place][0].arguments for place in places]
        first = by_producer[0]
        others = [one for one in by_producer if one["partition"] == first["partition"]]
        last = next((one for one in reversed(others) if _producer(one) == _producer(first) and one != first), None)
        if last is None:
            raise AbsentError("no producer has two records in one partition")
        swapped = {first["value"]: last["value"], last["value"]: first["value"]}
    edit_final(copy, lambda read: [[offset, swapped.get(value, value)] for offset, value in read])


def foreign_record(copy: Copy) -> None:
    edit_final(copy, lambda read: [*read, [read[-1][0] + 1, "nobody.0"]] if read else read)


def torn_transaction(copy: Copy) -> None:
    """One of its records is seen by those who read what was committed, and one is not."""
    value = _transaction(copy, committed=True)[0]
    edit_final(copy, lambda read: [one for one in read if one[1] != value], isolations=(COMMITTED,))


def aborted_transaction(copy: Copy) -> None:
    """What was aborted is seen: to its producer it was."""
    with copy.operations(copy.having(TRANSACTION)) as pairs:
        for place in like(pairs, TRANSACTION):
            if (pairs[place][1].result or {})["committed"]:
                give(pairs, place, {"committed": False})
                return
    raise AbsentError("no transaction was committed")


def other_read(copy: Copy) -> None:
    """A consumer saw something else meanwhile than is there in the end."""
    with copy.operations(copy.having(READ)) as pairs:
        place = like(pairs, READ)[0]
        read = (pairs[place][1].result or {})["records"]
        give(pairs, place, {"records": [[read[0][0], "nobody.1"], *read[1:]]})


def unread_partition(copy: Copy) -> None:
    with copy.operations(copy.having(FINAL_READ)) as pairs:
        place = like(pairs, FINAL_READ)[0]
        asked, told = pairs[place]
        pairs[place] = asked, replace(told, outcome=Outcome.UNKNOWN, result=None)


RECORD_LIES: Final[dict[Callable[[Copy], None], str]] = {
    lost_record: "record-lost",
    lost_in_part: "record-lost",
    doubled_record: "record-doubled",
    reordered_records: "record-reordered",
    foreign_record: "record-foreign",
    torn_transaction: "transaction-torn",
    aborted_transaction: "transaction-torn",
    other_read: "read-differs",
    unread_partition: "unread",
}
"""Each lie, and the rule by which it must be found."""


def _acknowledged(copy: Copy) -> str:
    with copy.operations(copy.having(WRITE)) as pairs:
        value: str = pairs[like(pairs, WRITE)[-1]][0].arguments["value"]
    return value


def _transaction(copy: Copy, *, committed: bool) -> list[str]:
    """The values of one that ended so."""
    with copy.operations(copy.having(TRANSACTION)) as pairs:
        for place in like(pairs, TRANSACTION):
            if (pairs[place][1].result or {})["committed"] is committed:
                return [value for _, value in pairs[place][0].arguments["records"]]
    raise AbsentError(f"no transaction was committed: {not committed}")


def edit_final(
    copy: Copy,
    edit: Callable[[Read], Read],
    isolations: tuple[str, ...] = (UNCOMMITTED, COMMITTED),
    kind: str = FINAL_READ,
) -> None:
    """Change what was read in the end. Raises AbsentError if nothing was."""
    if not any(copy.directory.glob("*final*.jsonl")):
        raise AbsentError("nothing was read in the end")
    for path in sorted(copy.directory.glob("*final*.jsonl")):
        with copy.operations(path.name.partition(".operations")[0]) as pairs:
            for place in like(pairs, kind):
                asked, told = pairs[place]
                if asked.arguments["isolation"] in isolations:
                    give(pairs, place, {"records": edit((told.result or {})["records"])})


def _has(read: Read, value: str) -> bool:
    return any(one[1] == value for one in read)


def _producer(arguments: dict[str, Any]) -> str:
    producer: str = arguments["value"].rpartition(".")[0]
    return producer
