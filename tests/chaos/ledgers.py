"""The allocation histories of the members, kept beside the journal: what they say once the load is over, and what they
said before, for a member whose disk is lost knows no more than it is sent.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from pidkeeper.cli.controllers import Controllers, dev_files
from pidkeeper.cli.failures import CommandError
from pidkeeper.cli.local_cluster import Controller, LocalCluster
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.messages import AllocatedBlock, AllocatedBlocksPage, QuorumDescription
from tests.chaos.load.journal import JournalError
from tests.support.cluster import wait_until

LEDGER: Final = ".ledger.json"
PAGE: Final = 1000
KEEP_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 2.0
ASK_SECONDS: Final = 60.0
"""For one page: a machine that is as busy as a run makes it may take long."""


class Ledger(msgspec.Struct, frozen=True):
    """What one member knew: all blocks of the IDs from `complete_from` to `through`, and perhaps some below."""

    member: int
    complete_from: int
    through: int
    blocks: list[AllocatedBlock]


class LedgerKeeper:
    """Asks the members of a cluster for what they know; blocking. Raises CommandError if one does not answer."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        self._cluster = cluster
        self._directory = directory
        self._known: dict[int, int] = {}

    def look(self, member: Controller) -> None:
        """Keep what a member knows that it did not know at the look before: for one who is about to forget it."""
        after = self._known.get(member.id, -1)
        pages = list(_pages(self._asked(member, LOOK_SECONDS), after))
        blocks = [block for page in pages for block in page.blocks]
        if blocks:
            self._known[member.id] = blocks[-1].first
            complete_from = max(pages[-1].complete_from, after + 1)
            self._keep(
                Ledger(member.id, complete_from, blocks[-1].last, blocks), f"member-{member.id}-from-{after + 1}"
            )

    async def keep(self) -> None:
        """Look at all controllers now and then, until cancelled. Those that do not answer are left out.

        One that lags is sent a snapshot, and lacks from then on what lies before it.
        """
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            for member in list(self._cluster.layout.controllers):
                with contextlib.suppress(CommandError):
                    await asyncio.to_thread(self.look, member)

    def finish(self) -> None:
        """Keep all that the voters know, once each has applied what the leader has; nobody asks for blocks any more.

        Raises AssertionError if a member does not get that far.
        """
        description = self._described(self._cluster.leader())
        voters = {voter.id for voter in description.voters}
        for member in self._cluster.layout.controllers:
            if member.id not in voters:
                continue

            def caught_up(member: Controller = member) -> bool:
                return self._described(member).applied_index >= description.commit_index

            wait_until(caught_up, f"member {member.id} to apply what member {description.node_id} has committed")
            pages = list(_pages(self._asked(member), -1))
            blocks = [block for page in pages for block in page.blocks]
            self._keep(Ledger(member.id, pages[-1].complete_from, MAX_PRODUCER_ID, blocks), f"member-{member.id}")

    def _keep(self, ledger: Ledger, name: str) -> None:
        (self._directory / f"{name}{LEDGER}").write_bytes(msgspec.json.encode(ledger))

    def _described(self, member: Controller) -> QuorumDescription:
        return self._asked(member).ask(QuorumDescription, "GET", "/v1/quorum")

    def _asked(self, member: Controller, seconds: float = ASK_SECONDS) -> Controllers:
        files = dev_files(self._cluster.directory, "operator") if self._cluster.layout.secure else None
        return Controllers.of([member.http], seconds, files)


def ledgers(directory: Path) -> list[Ledger]:
    """Those that were kept. Raises JournalError."""
    found: list[Ledger] = []
    for path in sorted(directory.glob(f"*{LEDGER}")):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=Ledger))
        except msgspec.DecodeError as error:
            raise JournalError(f"{path}: not the history of a member: {error}") from error
    return found


class Coverage:
    """The IDs of which some member that was asked must know the blocks."""

    def __init__(self, kept: Iterable[Ledger]) -> None:
        self._ranges: list[tuple[int, int]] = []
        for first, last in sorted((ledger.complete_from, ledger.through) for ledger in kept):
            if self._ranges and first <= self._ranges[-1][1] + 1:
                self._ranges[-1] = self._ranges[-1][0], max(last, self._ranges[-1][1])
            else:
                self._ranges.append((first, last))
        self._firsts = [first for first, _ in self._ranges]

    def has(self, first: int, last: int) -> bool:
        """Whether all IDs from the one to the other are among them."""
        place = bisect.bisect_right(self._firsts, first) - 1
        return place >= 0 and last <= self._ranges[place][1]


def _pages(asked: Controllers, after: int) -> Iterator[AllocatedBlocksPage]:
    following: int | None = after
    while following is not None:
        page = asked.ask(AllocatedBlocksPage, "GET", f"/v1/producer-ids/blocks?after={following}&limit={PAGE}")
        yield page
        following = page.next_after
