"""A cluster of real processes each of which can be hurt: its links, its disk, its clock, itself.

The members have the configuration that an ordinary local cluster has. What stands between them and the machine is
preloaded: a library of ours for connections and disks, libfaketime for clocks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pidkeeper.cli.local_cluster import Agent, LocalCluster, Member, member_name
from tests.chaos.plan import Planned, Target

if TYPE_CHECKING:
    from tests.chaos.links.laying import Links
    from tests.chaos.load.kafka_clients import KafkaClients
    from tests.chaos.load.quorum_operator import QuorumOperator

T = TypeVar("T")


class Preload(Protocol):
    """What is preloaded into a process: a library, and variables that tell it what to do there."""

    library: Path

    def variables(self, process: str) -> dict[str, str]:
        """The environment of the process of this name, as `member_name` gives it, or that of a client."""


class Launcher(Protocol):
    """What a process is started by."""

    def launch(self, process: str) -> list[str]:
        """The words before the command of the process of this name, which become it once they have done their part."""


class ChaosCluster(LocalCluster):
    """A local cluster whose members are started with libraries preloaded.

    `edits`: what the file of a member says instead, by its name, from its next start on.
    """

    def __init__(
        self,
        directory: Path,
        preloads: tuple[Preload, ...] = (),
        *,
        launcher: Launcher | None = None,
        **options: Any,
    ) -> None:
        self._preloads = preloads
        self.launcher = launcher
        self.edits: dict[str, dict[str, Any]] = {}
        super().__init__(directory, **options)

    def preload(self, kind: type[T]) -> T | None:
        """The preload of this kind; None if there is none."""
        return next((one for one in self._preloads if isinstance(one, kind)), None)

    def program(self, member: Member) -> list[str]:
        """The command behind the launcher and `env`, which become it."""
        name = member_name(member)
        launch = [] if self.launcher is None else self.launcher.launch(name)
        return [*launch, *preloaded(name, self._preloads), *super().program(member)]

    def member(self, name: str) -> Member:
        """The member of this name. Raises KeyError."""
        return {member_name(one): one for one in self.members()}[name]

    def _config(self, member: Member) -> dict[str, Any]:
        return super()._config(member) | self.edits.get(member_name(member), {})


def preloaded(process: str, preloads: tuple[Preload, ...]) -> list[str]:
    """The words before a command that start it as `process`, with the libraries preloaded."""
    if not preloads:
        return []
    variables = {name: value for preload in preloads for name, value in preload.variables(process).items()}
    variables["LD_PRELOAD"] = ":".join(str(preload.library) for preload in preloads)
    return ["env", *(f"{name}={value}" for name, value in variables.items())]


class Stage:
    """The cluster, and whoever is meant by a target. `leader_id`: who leads as far as was heard last; `coordinator_id`:
    likewise the agent that coordinates the group of copiers.

    `links`: between its processes, and with them the library that is preloaded; None where nothing is. `down`: the
    names of those whom a fault has taken down, which is enough for one at a time. `operator`: who changes the quorum.
    `group_members`: the processes that have members of groups.
    """

    def __init__(self, cluster: ChaosCluster, links: Links | None = None) -> None:
        self.cluster = cluster
        self.links = links
        self.leader_id = 0
        self.coordinator_id = 0
        self.down: set[str] = set()
        self.operator: QuorumOperator | None = None
        self.group_members: list[KafkaClients] = []
        self._turn = asyncio.Lock()

    def members(self) -> list[Member]:
        """All that have to be ready for the cluster to be whole: not a controller that only stands by."""
        return [one for one in self.cluster.members() if isinstance(one, Agent) or not one.learner]

    async def start(self, *members: Member) -> None:
        """Start those of the members that do not run, as `LocalCluster.start` does."""
        if members:
            await self.in_turn(self.cluster.start, *members)

    async def kill(self, *members: Member) -> None:
        """`kill -9` those of the members that run."""
        await self.in_turn(self.cluster.kill, *(one for one in members if self.cluster.running(one)))

    async def in_turn(self, work: Callable[..., T], *arguments: Any) -> T:
        """What `work` returns, done on a thread. One at a time: the cluster is not thread-safe."""
        async with self._turn:
            doing = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
            try:
                return await asyncio.shield(doing)
            except asyncio.CancelledError:
                # The thread goes on: whoever is next must find it done.
                await asyncio.wait([doing])
                raise

    def chosen(self, planned: Planned) -> Member | None:
        """The member that is meant; None where the whole cluster is, or where all that could be are down."""
        candidates = [one for one in self._candidates(planned.target) if member_name(one) not in self.down]
        return candidates[planned.pick % len(candidates)] if candidates else None

    def _candidates(self, target: Target) -> Sequence[Member]:
        controllers = [one for one in self.cluster.layout.controllers if not one.learner]
        if target is Target.AGENT:
            return self.cluster.layout.agents
        if target is Target.COORDINATOR:
            agents = self.cluster.layout.agents
            return [one for one in agents if one.id == self.coordinator_id] or agents
        if target is Target.CONTROLLER:
            return controllers
        if target is Target.LEADER:
            return [one for one in controllers if one.id == self.leader_id] or controllers
        if target is Target.FOLLOWER:
            return [one for one in controllers if one.id != self.leader_id]
        return []
