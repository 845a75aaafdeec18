"""Groups whose coordinator is gone, and whose members may be, too: nobody asks for them, but they are to become empty.

Until they do their offsets are never old, and they cannot be deleted. So each agent looks through the quorum's groups
for those that it coordinates and has not heard of.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from pidkeeper.broker_agent.groups.calls import GroupCalls
from pidkeeper.broker_agent.groups.coordinator import Coordinator
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.group_messages import MAX_LISTED_GROUPS

ADOPT_SECONDS: Final = 60.0
"""Between two looks at all groups, of which MAX_GROUPS are ten pages."""

_log = logging.getLogger(__name__)


class Adopter:
    """Has groups of this agent loaded while they have members."""

    def __init__(self, coordinator: Coordinator, calls: GroupCalls) -> None:
        self._coordinator = coordinator
        self._calls = calls

    async def run(self) -> None:
        """Look from time to time, until cancelled."""
        while True:
            await asyncio.sleep(ADOPT_SECONDS)
            try:
                await self._look()
            except RequestError as error:
                _log.debug("groups without a coordinator are not looked for, trying again: %s", error)

    async def _look(self) -> None:
        after: str | None = None
        while True:
            page = await self._calls.groups(after, MAX_LISTED_GROUPS)
            for group in page.groups:
                if group.members:
                    await self._coordinator.adopt(group.group_id)
            after = page.next_after
            if after is None:
                return
