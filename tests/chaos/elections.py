"""Who leads, seen from outside while a run goes on."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import time
from typing import Any, Final

from pidkeeper.cli.local_cluster import Controller, member_name
from tests.chaos.stage import Stage
from tests.chaos.timeline import Elected

LOOK_SECONDS: Final = 0.5
CALL_SECONDS: Final = 0.5


class Elections:
    """Asks all controllers again and again who leads; `seen` has each term's leader once, in order."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.seen: list[Elected] = []

    async def watch(self) -> None:
        """Look until cancelled."""
        while True:
            controllers = self._stage.cluster.layout.controllers
            told = await asyncio.gather(*(asyncio.to_thread(self._described, one) for one in controllers))
            for controller, description in zip(controllers, told, strict=True):
                self._note(controller, description)
            await asyncio.sleep(LOOK_SECONDS)

    def _described(self, controller: Controller) -> dict[str, Any]:
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            _, body = self._stage.cluster.get(controller, "/v1/quorum", timeout=CALL_SECONDS)
            described: dict[str, Any] = json.loads(body)
            return described
        return {}

    def _note(self, controller: Controller, description: dict[str, Any]) -> None:
        newest = self.seen[-1].term if self.seen else 0
        if description.get("role") == "leader" and description["term"] > newest:
            self.seen.append(Elected(time.monotonic(), description["term"], member_name(controller)))
            # A fault that strikes a leader is for the one who leads now, not for whom an act began with.
            self._stage.leader_id = controller.id
