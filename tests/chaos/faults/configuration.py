"""Files that somebody edited: a member is started with one that names another identity, other voters, another's port.

Each says what it must come to, as docs/operations.md has it: the member ends, or it goes on by its disk and warns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from pidkeeper.cli.local_cluster import Controller, member_name
from tests.chaos.fault import Fault, FaultKind
from tests.chaos.looking import LogSince, described, until
from tests.chaos.plan import Planned, Target
from tests.chaos.stage import Stage

ANSWER_SECONDS: Final = 5.0
"""How long the end waits for the answer to an edited file, if a start on a busy machine took longer than the fault."""


class Edit(msgspec.Struct, frozen=True):
    """`changes(stage, member)`: keys of the file. `told`: what the member says then, one of these.

    `refused`: whether it logs that and ends, with an exit code other than 0; else it warns and goes on.
    """

    changes: Callable[[Stage, Controller], dict[str, Any]]
    told: tuple[str, ...]
    refused: bool


def _other(stage: Stage, member: Controller) -> Controller:
    return next(one for one in stage.cluster.layout.controllers if one is not member and not one.learner)


def _own_table(_: Stage, member: Controller) -> dict[str, Any]:
    return {"voters": [{"id": member.id, "peer": member.peer, "http": member.http}]}


NOT_ITS_NAME: Final = "among its subject alternative names"
"""What a certificate says comes before what the disk says."""

EDITS: Final = (
    Edit(lambda *_: {"cluster_id": "elsewhere"}, ("belongs to cluster", NOT_ITS_NAME), refused=True),
    Edit(lambda stage, member: {"node_id": _other(stage, member).id}, ("belongs to node", NOT_ITS_NAME), refused=True),
    Edit(
        lambda stage, member: {"http_listen": _other(stage, member).http.partition("://")[2]},
        ("cannot listen on",),
        refused=True,
    ),
    Edit(lambda *_: {"voter": 1}, ("there is no key 'voter'",), refused=True),
    Edit(_own_table, ("its file names the voters",), refused=False),
    Edit(lambda *_: {"block_size": 500}, ("the quorum was founded with 1000",), refused=False),
)


class EditedConfiguration(Fault):
    """Killed, and started with another file; with its own again at the end."""

    def __init__(self, edit: Edit | None, stage: Stage, planned: Planned) -> None:
        super().__init__(stage, planned)
        member = stage.chosen(planned)
        assert isinstance(member, Controller), "edits are of controllers' files"
        self._member = member
        self._edit = edit or EDITS[planned.pick % len(EDITS)]
        self.victims = (member_name(member),)
        self._log = LogSince(stage.cluster, member)
        self._done = False

    async def begin(self) -> None:
        """Start it with the edited file."""
        await self.stage.kill(self._member)
        self.stage.cluster.edits[self.victims[0]] = self._edit.changes(self.stage, self._member)
        await self.stage.start(self._member)

    async def end(self) -> None:
        """Start it with its own file, once it has read the other one."""
        self._done = await until(self._has_answered, ANSWER_SECONDS)
        self.stage.cluster.edits.pop(self.victims[0], None)
        await self.stage.kill(self._member)
        await self.stage.start(self._member)

    async def bites(self) -> int:
        """Whether it did what it must."""
        return int(self._done)

    def _has_answered(self) -> bool:
        code = self.stage.cluster.exit_code(self._member)
        if self._edit.refused:
            return bool(code) and bool(self._log.lines(*self._edit.told))
        warnings = described(self.stage.cluster, self._member).get("warnings", ())
        return code is None and any(told in warning for warning in warnings for told in self._edit.told)


KINDS: Final = (
    FaultKind(
        "edited_configuration",
        partial(EditedConfiguration, None),
        (Target.LEADER, Target.FOLLOWER),
        (3.0, 10.0),
        takes_down=True,
    ),
)
