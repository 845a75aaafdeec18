"""Negative controls: what the checker must find, or it proves nothing.

Two are allocators that are known to hand out an ID again: the mock cluster of librdkafka, and raftos. The others are
lies that are put into a copy of what a real run has left.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from pidkeeper.cli.kafka_load import ClaimTally, connect
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.messages import AllocatedBlock
from tests.chaos.checker import check
from tests.chaos.copies import AbsentError, Control, Copy, control_of, give, like, result_of
from tests.chaos.group_lies import GROUP_LIES
from tests.chaos.ledgers import LEDGER, Ledger
from tests.chaos.load.journal import ActorJournal, Invoked, Outcome, Returned
from tests.chaos.load.kinds import ALLOCATE, INIT, ZOMBIE
from tests.chaos.record_lies import RECORD_LIES, hasty_agent

MOCK_IDS: Final = 5_000
MOCK_SECONDS: Final = 20.0
IN_FLIGHT: Final = 100
RAFTOS_SECONDS: Final = 180.0
REPOSITORY: Final = Path(__file__).resolve().parents[2]
PEERS: Final = REPOSITORY / ".tools" / "peers" / "complete"
"""Is there once raftos is installed, which its run.sh does."""


# Allocators that repeat themselves.


async def mock_cluster(directory: Path) -> Control:
    """MOCK_IDS from librdkafka's mock cluster, whose IDs are random: 4,983 of 5,000 were distinct once."""
    from confluent_kafka import Producer

    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "ignored:1", "log_level": 0})
    address = next(iter((await asyncio.to_thread(producer.list_topics, timeout=MOCK_SECONDS)).brokers.values()))
    tally = ClaimTally()
    connection = await connect(f"{address.host}:{address.port}", tally, repeat=True)
    try:
        connection.send(IN_FLIGHT)
        async with asyncio.timeout(MOCK_SECONDS):
            while tally.claims < MOCK_IDS:  # noqa: ASYNC110 - counted on the hot path, which sets no events
                await asyncio.sleep(0.01)
    finally:
        connection.close()
    return _claimed("librdkafka's mock cluster", tally.ids[:MOCK_IDS], directory)


def why_no_raftos() -> str | None:
    """What is missing for raftos; None if nothing is."""
    return None if PEERS.exists() else "raftos is not installed; bench/peers/run.sh raftos_repeat installs it"


def raftos(directory: Path) -> Control:
    """What a leader of raftos acknowledged, and what its successor would hand out next. Takes half a minute; blocking.

    Raises CalledProcessError if it does not run.
    """
    command = [str(REPOSITORY / "bench" / "peers" / "run.sh"), "raftos_repeat", "--runs", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RAFTOS_SECONDS, check=True, cwd=REPOSITORY)
    (found,) = json.loads(done.stdout)["runs"]
    return _claimed("raftos", array("q", [*found["acknowledged"], found["offered"]]), directory)


def _claimed(name: str, ids: array[int], directory: Path) -> Control:
    """As if they were IDs of an agent that had one block for all of them."""
    block = AllocatedBlock(0, MAX_PRODUCER_ID, 0, 0, 1, 0)
    (directory / f"{name}{LEDGER}").write_bytes(msgspec.json.encode(Ledger(1, 0, MAX_PRODUCER_ID, [block])))
    with ActorJournal(directory, "claimer") as journal:
        journal.claims(0).take(ids)
    return control_of(name, check(directory), "repeated-id")


# Lies in a copy.


def repeated_id(copy: Copy) -> None:
    copy.claim(copy.claimed())


def foreign_id(copy: Copy) -> None:
    with copy.operations(copy.having(ALLOCATE)) as pairs:
        copy.claim(result_of(pairs[like(pairs, ALLOCATE)[0]])["producer_id_start"])


def block_twice(copy: Copy) -> None:
    with copy.operations(copy.having(ALLOCATE, at_least=2)) as pairs:
        one, other = like(pairs, ALLOCATE)[:2]
        give(pairs, other, result_of(pairs[one]))


def lost_block(copy: Copy) -> None:
    with copy.operations(copy.having(ALLOCATE)) as pairs, copy.ledgers() as ledgers:
        first = result_of(pairs[like(pairs, ALLOCATE)[-1]])["producer_id_start"]
        for blocks in ledgers:
            blocks[:] = [block for block in blocks if block.first != first]


def lost_by_a_member(copy: Copy) -> None:
    with copy.operations(copy.having(ALLOCATE)) as pairs, copy.ledgers(of_all=False) as (blocks,):
        first = result_of(pairs[like(pairs, ALLOCATE)[-1]])["producer_id_start"]
        blocks[:] = [block for block in blocks if block.first != first]


def shorter_block(copy: Copy) -> None:
    with copy.operations(copy.having(ALLOCATE)) as pairs:
        place = like(pairs, ALLOCATE)[0]
        give(pairs, place, result_of(pairs[place]) | {"producer_id_len": 1})


def two_histories(copy: Copy) -> None:
    with copy.ledgers(of_all=False) as (blocks,):
        blocks[0] = replace(blocks[0], offset=blocks[0].offset + 1)


def overlap(copy: Copy) -> None:
    with copy.ledgers() as ledgers:
        met = _newest(ledgers)
        for blocks in ledgers:
            blocks[:] = [replace(block, first=block.first - 1) if block == met else block for block in blocks]


def reordered(copy: Copy) -> None:
    with copy.operations(copy.having(ALLOCATE, at_least=2)) as pairs:
        one, other = like(pairs, ALLOCATE)[:2]
        early, late = result_of(pairs[one]), result_of(pairs[other])
        give(pairs, one, late)
        give(pairs, other, early)


def unexplained_gap(copy: Copy) -> None:
    with copy.operations(copy.having(ALLOCATE)) as pairs:
        del pairs[like(pairs, ALLOCATE)[0]]


def unexplained_floor(copy: Copy) -> None:
    """A hole in the newest part of the history, which all know: nobody asked for IDs to be left out there."""
    with copy.ledgers() as ledgers:
        hole = _newest(ledgers)
        for blocks in ledgers:
            blocks[:] = [block for block in blocks if block != hole]


def stale_epoch_in_the_log(copy: Copy) -> None:
    with copy.operations(copy.having(ALLOCATE)) as pairs, copy.ledgers() as ledgers:
        place = like(pairs, ALLOCATE)[-1]
        asked, told = pairs[place]
        older = asked.arguments["broker_epoch"] - 1
        pairs[place] = replace(asked, arguments=asked.arguments | {"broker_epoch": older}), told
        for blocks in ledgers:
            for number, block in enumerate(blocks):
                if block.first == result_of((asked, told))["producer_id_start"]:
                    blocks[number] = replace(block, broker_epoch=older)


def stale_epoch(copy: Copy) -> None:
    refused = (ALLOCATE, Outcome.REFUSED)
    with copy.operations(copy.having(*refused, code="STALE_BROKER_EPOCH")) as pairs:
        give(
            pairs,
            like(pairs, *refused, "STALE_BROKER_EPOCH")[0],
            {"producer_id_start": 2**40, "producer_id_len": 1000},
        )


def pair_twice(copy: Copy) -> None:
    with copy.operations(copy.having(INIT, at_least=2)) as pairs:
        one, other = _of_one_id(pairs)
        give(pairs, other, result_of(pairs[one]))


def epoch_fell(copy: Copy) -> None:
    with copy.operations(copy.having(INIT, at_least=2)) as pairs:
        one, other = _of_one_id(pairs)
        give(pairs, one, result_of(pairs[one]) | {"producer_epoch": result_of(pairs[other])["producer_epoch"] + 1})


def id_of_two(copy: Copy) -> None:
    with copy.operations(copy.having(INIT, at_least=2)) as pairs:
        asked, told = pairs[like(pairs, INIT)[-1]]
        number = asked.number + 1_000_000_000
        arguments = asked.arguments | {"transactional_id": "another"}
        pairs.append((replace(asked, number=number, arguments=arguments), replace(told, number=number)))


def unfenced(copy: Copy) -> None:
    with copy.operations(copy.having(ZOMBIE, Outcome.REFUSED)) as pairs:
        give(pairs, like(pairs, ZOMBIE, Outcome.REFUSED)[0], None)


def _newest(ledgers: list[list[AllocatedBlock]]) -> AllocatedBlock:
    """The last but one in the newest part of the history, which all know."""
    return max(ledgers, key=lambda blocks: blocks[-1].first if len(blocks) > 1 else -1)[-2]


def _of_one_id(pairs: list[tuple[Invoked, Returned]]) -> tuple[int, int]:
    """Two instances of one transactional id."""
    seen: dict[str, int] = {}
    for place in like(pairs, INIT):
        transactional_id = pairs[place][0].arguments["transactional_id"]
        if transactional_id in seen:
            return seen[transactional_id], place
        seen[transactional_id] = place
    raise AbsentError("no transactional id had two instances")


PLANTED: Final[dict[Callable[[Copy], None], str]] = (
    RECORD_LIES
    | GROUP_LIES
    | {
        repeated_id: "repeated-id",
        foreign_id: "foreign-id",
        block_twice: "duplicate",
        lost_block: "lost",
        lost_by_a_member: "lost-by-a-member",
        shorter_block: "lost",
        two_histories: "two-histories",
        overlap: "id-gap",
        reordered: "real-time-order",
        unexplained_gap: "unexplained-gap",
        unexplained_floor: "unexplained-floor",
        stale_epoch_in_the_log: "stale-epoch",
        stale_epoch: "stale-epoch-granted",
        pair_twice: "pair-twice",
        epoch_fell: "epoch-fell",
        id_of_two: "repeated-id",
        unfenced: "two-unfenced",
    }
)
"""Each lie, and the rule by which it must be found."""


def planted(lie: Callable[[Copy], None], kept: Path, scratch: Path) -> Control:
    """Put a lie into a copy of the run that was kept, made in `scratch`. Raises AbsentError if the run has no such."""
    directory = scratch / lie.__name__
    shutil.copytree(kept, directory)
    try:
        lie(Copy(directory))
        return control_of(lie.__name__, check(directory), PLANTED[lie])
    finally:
        shutil.rmtree(directory)


async def all_controls(kept: Path, scratch: Path) -> tuple[list[Control], dict[str, str]]:
    """Every control, on allocators and in copies of the run in `kept`; and why some cannot be had."""
    await asyncio.to_thread(scratch.mkdir)
    found, absent = [await mock_cluster(scratch)], {}
    if (reason := why_no_raftos()) is None:
        found.append(await asyncio.to_thread(raftos, scratch))
    else:
        absent["control raftos"] = reason
    found.append(await hasty_agent(scratch))
    for lie in PLANTED:
        try:
            found.append(await asyncio.to_thread(planted, lie, kept, scratch))
        except AbsentError as error:
            absent[f"control {lie.__name__}"] = str(error)
    return found, absent
