"""The allocation history of a cluster, of which a member alone may lack a part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pidkeeper.cli.controllers import Controllers
from pidkeeper.cli.local_cluster import Controller
from pidkeeper.protocol.messages import AllocatedBlock, AllocatedBlocksPage


def whole_history(members: Iterable[Controller]) -> list[AllocatedBlock]:
    """What all members together know, in order of ID: one that was sent a snapshot lacks what lies before it.

    Where two of them contradict each other both blocks are there, so that they overlap. Raises CommandError if a
    member does not answer.
    """
    found = {block for member in members for block in _history(member)}
    return sorted(found, key=lambda block: (block.first, block.last, block.offset))


def _history(member: Controller) -> Iterator[AllocatedBlock]:
    asked = Controllers.of([member.http])
    after: int | None = -1
    while after is not None:
        page = asked.ask(AllocatedBlocksPage, "GET", f"/v1/producer-ids/blocks?after={after}&limit=1000")
        yield from page.blocks
        after = page.next_after
