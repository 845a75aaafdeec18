"""What a wrong quorum or a wrong coordinator may do to consumer groups, and which check says so, of whom and where."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from pidkeeper.protocol.groups import GroupMember, GroupRecord, PartitionOffset, RemoveGroupRecord, TopicOffsets
from pidkeeper.protocol.records import Record
from pidkeeper.protocol.transactions import ForgetTransactionRecord, TransactionRecord
from pidkeeper.snapshots.groups_image import GroupsImage, KeptOffset, OffsetRow
from tests.pipeline.log_faults import Fault, Spoil
from tests.pipeline.rolled_faults import check_by_command
from tests.support.group_state import delete_offsets, member
from tests.support.sound_groups import APP, LONE, READERS, gone_by_right, groups_history
from tests.support.sound_logs import SoundLogs

SNAPSHOT: Final = 39
"""The offset of the record behind the newest snapshot; the names below are of records before it."""
RECORD_BYTES: Final = 200
"""Of an entry with one record at most."""
GATHERED, CAME_AGAIN, COMMITTED, ABORTED, NEXT, HELD = 26, 29, 31, 34, 36, 38


class GroupFault(NamedTuple):
    """A fault, and what is told of it: about whom, at which log offset, and a word of the record that shows it.

    In a snapshot the offset is SNAPSHOT.
    """

    fault: Fault
    subject: str
    offset: int | None
    severity: str
    shows: str


def _fault(
    check: str | None,
    part: str = "",
    *spoils: Spoil,
    subject: str = f"group {READERS}",
    at: int | None = None,
    severity: str = "violation",
    of_all: bool = True,
    shows: str = READERS,
) -> GroupFault:
    def history(made: SoundLogs) -> None:
        for one in spoils:
            one(made)

    verdict = "clean" if check is None or severity == "warning" else "violations"
    fault = Fault(check, part, history, of_all=of_all, verdict=verdict, begin=groups_history)
    return GroupFault(fault, subject, at, severity, shows)


def at(offset: int, **fields: Any) -> Spoil:
    """Another record at a log offset."""

    def spoil(made: SoundLogs) -> None:
        places = [(entry, number) for entry in made.entries for number in range(len(entry))]
        entry, number = places[offset]
        entry[number] = replace(entry[number], **fields)

    return spoil


def in_the_image(edit: Callable[[GroupsImage], GroupsImage], nth: int = -1) -> Spoil:
    def spoil(made: SoundLogs) -> None:
        image = made.images[nth]
        assert image.groups is not None
        made.images[nth] = replace(image, groups=edit(image.groups))

    return spoil


def kept(record_offset: int, offset: int) -> KeptOffset:
    """As the record there committed it."""
    return KeptOffset(offset, 3, "", record_offset, 1_700_000_019_000)


def committed(topic: str, partition: int, what: KeptOffset | None) -> Spoil:
    """READERS go on elsewhere in the newest snapshot; None: nowhere."""

    def edit(groups: GroupsImage) -> GroupsImage:
        others = [
            row for row in groups.offsets if (row.group_id, row.topic, row.partition) != (READERS, topic, partition)
        ]
        mine = [] if what is None else [OffsetRow(READERS, topic, partition, what)]
        return replace(groups, offsets=sorted(others + mine, key=lambda row: (row.group_id, row.topic, row.partition)))

    return in_the_image(edit)


def held(topic: str, partition: int, what: KeptOffset | None, producer_id: int = APP[0]) -> Spoil:
    """What is pending in the newest snapshot is another offset alone; None: nothing is."""

    def edit(groups: GroupsImage) -> GroupsImage:
        (row,) = groups.pending
        other = replace(row, topic=topic, partition=partition, producer_id=producer_id)
        return replace(groups, pending=[] if what is None else [replace(other, kept=what)])

    return in_the_image(edit)


def told(topic: str, partition: int, offset: int) -> tuple[TopicOffsets, ...]:
    return (TopicOffsets(topic, (PartitionOffset(partition, offset, 3, ""),)),)


def more(*records: Record) -> Spoil:
    """Entries at the end that nobody should have decided."""
    return lambda made: made.entries.extend([one] for one in records)


def forgotten(made: SoundLogs) -> None:
    """Offsets are deleted once more."""
    made.ask(delete_offsets(READERS, ("orders", 0)))
    made.entries.append(list(made.entries[-1]))


def generation(after: int, number: int, *members: GroupMember, epoch: int = 3) -> Record:
    return GroupRecord(READERS, after, number, "consumer", members, 1, epoch, 1_700_000_032_000)


_ORDERS_0, _ORDERS_1, _PAYMENTS = (f"group {READERS}, {place}" for place in ("orders-0", "orders-1", "payments-0"))
_CLEAN: Final = {
    "groups with nothing wrong": _fault(None),
    "offsets and groups that are gone by right": _fault(None, "", gone_by_right),
    "an offset behind the end": _fault(
        "group_offsets",
        "offset 9 was committed, and the log ended at 8",
        at(SNAPSHOT, topics=told("payments", 0, 9)),
        subject=f"group {LONE}, payments-0",
        at=SNAPSHOT,
        shows=LONE,
        severity="warning",
    ),
}
_MOVED: Final = {
    "offsets that moved with an aborted transaction": _fault(
        "group_offsets",
        "it moved, and its transaction was aborted",
        committed("payments", 0, kept(ABORTED, 1)),
        subject=_PAYMENTS,
        at=SNAPSHOT,
    ),
    "offsets that moved before the end": _fault(
        "group_offsets",
        "it moved, and its transaction is under way",
        committed("orders", 1, kept(HELD, 4)),
        subject=_ORDERS_1,
        at=SNAPSHOT,
    ),
    "offsets that did not move with their transaction": _fault(
        "group_offsets",
        "its transaction was committed, and it did not move",
        committed("orders", 0, kept(27, 3)),
        subject=_ORDERS_0,
        at=SNAPSHOT,
    ),
    "offsets that nothing moved": _fault(
        "replicas_disagree",
        "by the log it is offset 5 of the record at offset 31",
        committed("orders", 0, kept(COMMITTED, 6)),
        subject=_ORDERS_0,
        at=SNAPSHOT,
    ),
    "pending offsets of a transaction that ended": _fault(
        "group_offsets",
        "by the log it is none",
        held("payments", 0, kept(ABORTED, 1)),
        subject=_PAYMENTS,
        at=SNAPSHOT,
    ),
    "pending offsets of no transaction": _fault(
        "group_offsets",
        "producer 21 has no transaction that holds it",
        held("orders", 1, kept(HELD, 4), producer_id=21),
        subject=_ORDERS_1,
        at=SNAPSHOT,
    ),
    "pending offsets that are lost": _fault(
        "group_offsets", "the snapshot has none pending", held("orders", 1, None), subject=_ORDERS_1, at=SNAPSHOT
    ),
    "offsets of a partition that is not in the snapshot": _fault(
        "group_offsets",
        "and there is no such partition",
        committed("orders", 7, kept(27, 3)),
        subject=f"group {READERS}, orders-7",
        at=SNAPSHOT,
    ),
    "offsets whose transactional id is forgotten": _fault(
        "group_offsets",
        "is forgotten, which settles no offset",
        more(ForgetTransactionRecord("app")),
        subject=_ORDERS_1,
        at=SNAPSHOT + 1,
        shows="app",
    ),
    "offsets that no end settles": _fault(
        "group_offsets",
        "goes on to state 3",
        more(TransactionRecord("app", *APP, -1, -1, 60_000, 3, 1_700_000_033_000)),
        subject=_ORDERS_1,
        at=SNAPSHOT + 1,
        shows="app",
    ),
}
_RECORDED: Final = {
    "offsets of a fenced producer": _fault(
        "transaction_pair", "producer 20, epoch 7", at(HELD, producer_epoch=7), at=HELD
    ),
    "offsets of a group that had not joined": _fault(
        "transaction_pair",
        "__consumer_offsets-26 had not joined",
        at(HELD, group_id="other"),
        subject="group other",
        at=HELD,
        shows="other",
    ),
    "offsets of no transactional id": _fault(
        "transaction_pair", "no transactional id has", at(HELD, producer_id=21), at=HELD
    ),
    "offsets of a partition that there is not": _fault(
        "group_offsets",
        "there is no such partition",
        at(27, topics=told("orders", 2, 1)),
        subject=f"group {READERS}, orders-2",
        at=27,
    ),
    "a group that is forgotten in use": _fault(
        "group_offsets",
        "forgotten with 1 members and 1 pending offsets",
        more(RemoveGroupRecord(READERS, 0)),
        at=SNAPSHOT + 1,
    ),
    "a group that is forgotten twice": _fault(
        "group_offsets",
        "nothing was known of it",
        more(RemoveGroupRecord(LONE, 0), RemoveGroupRecord(LONE, 1)),
        subject=f"group {LONE}",
        at=SNAPSHOT + 2,
        shows=LONE,
    ),
    "offsets that are forgotten twice": _fault(
        "group_offsets", "none was committed", forgotten, subject=_ORDERS_0, at=SNAPSHOT + 2
    ),
    "other offsets of one member": _fault(
        "replicas_disagree",
        '"group_id":"lone"',
        at(SNAPSHOT, topics=told("payments", 0, 1)),
        subject="log index 37, member 1",
        at=SNAPSHOT,
        shows=LONE,
        of_all=False,
    ),
    "another snapshot of one member": _fault(
        "snapshot_behind",
        "members differ",
        committed("orders", 0, kept(27, 3)),
        subject="snapshot at index 36",
        at=SNAPSHOT,
        of_all=False,
    ),
}
_GENERATIONS: Final = {
    "a generation that falls": _fault("group_generation", "generation 0 follows 1", at(NEXT, generation=0), at=NEXT),
    "a generation that is there twice": _fault(
        "group_generation", "generation 1 is there twice", at(NEXT, generation=1), at=NEXT
    ),
    "a member that is in it twice": _fault(
        "group_generation", "is in it twice", at(NEXT, members=(member("a"), member("a"))), at=NEXT
    ),
    "two coordinators of a group": _fault(
        "group_generation",
        "two coordinators had the group",
        more(generation(CAME_AGAIN, 3, member("d"))),
        at=SNAPSHOT + 1,
    ),
    "a coordinator whose epoch is over": _fault(
        "stale_epoch", "broker 1 with epoch 2", more(generation(NEXT, 3, epoch=2)), at=SNAPSHOT + 1
    ),
    "another generation in the snapshot": _fault(
        "replicas_disagree",
        "by the log it is generation 2 with 1 members",
        in_the_image(lambda one: replace(one, groups=[replace(known, version=GATHERED) for known in one.groups])),
        at=SNAPSHOT,
    ),
}
GROUPS: Final[dict[str, GroupFault]] = {**_CLEAN, **_MOVED, **_RECORDED, **_GENERATIONS}


def check_group_fault(root: Path, due: GroupFault) -> None:
    """By the command: check, subject, verdict and exit code; and in the file that is named there is what is wrong."""
    found = check_by_command(root, due.fault)
    if due.fault.check is None:
        assert found == []
        return
    rows = [row for row in found if row[0] == due.fault.check and due.fault.part in row[-1]]
    severity, subject, offset, file, position = rows[0][1:6]
    assert (severity, subject) == (due.severity, due.subject), rows
    assert due.offset is None or offset == str(due.offset), rows
    content = (root / file).read_bytes()
    place = 0 if position == "None" else int(position)
    assert file.endswith(".wal" if place else ".snap")
    assert due.shows.encode() in content[place : place + RECORD_BYTES if place else None]
