"""One link for each ordered pair of processes that speak, and the routes that lead each process through its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pidkeeper.cli.local_cluster import HOST, Agent, free_ports, member_name
from tests.chaos.links.own_proxies import OwnProxies
from tests.chaos.links.proxies import Link, PortKind, Proxies
from tests.chaos.links.toxiproxy import ToxiproxyProxies, why_no_toxiproxy
from tests.chaos.shim.preload import Shim
from tests.chaos.stage import ChaosCluster, preloaded


def best_proxies() -> Proxies:
    """Toxiproxy where it can be used, else our own proxy; `program` says which."""
    return ToxiproxyProxies() if why_no_toxiproxy() is None else OwnProxies()


class Links:
    """The links of a cluster whose processes are preloaded with `shim`. Its proxies are started and closed by others.

    They are by source and target, so a process that starts again finds its own again. `clients` have names of their
    own, and each a link to every port of every agent; `allocators` one to every controller's HTTP port.
    """

    def __init__(self, cluster: ChaosCluster, shim: Shim, proxies: Proxies) -> None:
        self.cluster = cluster
        self.shim = shim
        self.proxies = proxies
        self.clients: list[str] = []
        self.allocators: list[str] = []
        self._claims: set[tuple[str, str]] = set()
        self._links: dict[tuple[str, str], Link] = {}

    async def lay(self, clients: Sequence[str] = (), allocators: Sequence[str] = ()) -> None:
        """Open what is missing, before the first of the two processes starts that it is for. Raises ProxyError.

        Again for whoever comes later: a controller that was added to the layout, or more clients.
        """
        self.clients += [name for name in clients if name not in self.clients]
        self.allocators += [name for name in allocators if name not in self.allocators]
        missing = [wanted for wanted in self._wanted() if (wanted[0], wanted[3]) not in self._links]
        ports = self._free_ports(len(missing))
        links = [Link(*wanted, f"{HOST}:{port}") for wanted, port in zip(missing, ports, strict=True)]
        await self.proxies.open(links)
        for link in links:
            self._links[link.source, link.upstream] = link
            self.shim.control(link.source).route(_port(link.upstream), _port(link.listen))

    def all(self) -> list[Link]:
        """Every link that is laid."""
        return list(self._links.values())

    def to(self, process: str) -> list[Link]:
        """Those on which others reach the process."""
        return [link for link in self._links.values() if link.target == process]

    def of(self, process: str) -> list[Link]:
        """Those on which the process reaches others."""
        return [link for link in self._links.values() if link.source == process]

    def claim(self, wound: tuple[str, str]) -> bool:
        """Whether nobody hurts a link in this way by now, (its name, how); the caller does, until it releases it."""
        free = wound not in self._claims
        self._claims.add(wound)
        return free

    def release(self, wound: tuple[str, str]) -> None:
        """Whoever claimed it has healed it."""
        self._claims.discard(wound)

    def routed(self, source: str, address: str) -> str:
        """Where a client that lives in this process and is called `source` connects to instead of `address`.

        The same address where no link is laid: hints and advertised addresses may be passed as they are.
        """
        link = self._links.get((source, address))
        return address if link is None else link.listen

    def program(self, client: str) -> list[str]:
        """The words before the command of a client that is a process of its own."""
        return preloaded(client, (self.shim,))

    def connects(self, link: Link) -> int:
        """How often the source's process asked for a connection on this link, as it counted itself."""
        return self.shim.control(link.source).connects(_port(link.upstream))

    def _wanted(self) -> Iterator[tuple[str, str, PortKind, str]]:
        layout = self.cluster.layout
        for target in layout.controllers:
            name = member_name(target)
            for source in layout.controllers:
                if source is not target:
                    yield member_name(source), name, PortKind.PEER, target.peer
            for asking in [*map(member_name, layout.agents), *self.allocators]:
                yield asking, name, PortKind.HTTP, _http(target.http)
        for client in self.clients:
            for agent in layout.agents:
                yield from _to_agent(client, agent)

    def _free_ports(self, count: int) -> list[int]:
        """Some that no member will listen on, nor a link that is disabled now."""
        taken = self.cluster.ports() | {_port(link.listen) for link in self._links.values()}
        return free_ports(count, taken)


def _to_agent(client: str, agent: Agent) -> Iterator[tuple[str, str, PortKind, str]]:
    yield client, member_name(agent), PortKind.KAFKA, agent.kafka
    yield client, member_name(agent), PortKind.HTTP, _http(agent.http)


def _http(url: str) -> str:
    """The host and port of a base URL."""
    return url.partition("://")[2]


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
