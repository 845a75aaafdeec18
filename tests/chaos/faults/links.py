"""What is done to links: every toxic in each direction, cuts and partitions, in both directions or in one.

That a fault bit is seen by probes through the links that it hurts. Each has a twin that goes around the proxy: only if
that one is answered as ever, it was the link and not its target.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
from collections.abc import Callable, Iterable
from typing import Final

from pidkeeper.cli.local_cluster import member_name
from tests.chaos.fault import Fault, FaultKind
from tests.chaos.links.laying import Links
from tests.chaos.links.probe import Outcome, Seen, ask, seconds_to_the_end
from tests.chaos.links.proxies import Link, PortKind, ProxyError, Stream, Toxic, ToxicKind
from tests.chaos.plan import Planned, Target
from tests.chaos.stage import Stage

PROBED_LINKS: Final = 3
"""Of all that one fault hurts: probes are load as well."""

PROBE_PAUSE_SECONDS: Final = 0.5
REMOVALS: Final = 3
"""Attempts: a toxic that stays would hurt until the end of the run."""

Wound = tuple[Link, Toxic | None]
"""A link and what it suffers; without a toxic it is disabled, so it refuses connections."""

Wounds = Callable[[Links, str, Planned], list[Wound]]
"""What of the links of the process of this name is hurt."""


class LinkFault(Fault):
    """Hurts links of one member. Those which another fault hurts in the same way already are left to that one."""

    def __init__(self, stage: Stage, planned: Planned, wounds: Wounds) -> None:
        super().__init__(stage, planned)
        member = stage.chosen(planned)
        assert member is not None and stage.links is not None, "link faults are for members, where links are laid"
        self.victims = (member_name(member),)
        self._links = stage.links
        self._choose = wounds
        self._wounds: list[Wound] = []
        self._uncertain: set[tuple[str, str]] = set()
        self._felt = 0
        self._watch: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        chosen = self._choose(self._links, self.victims[0], self.planned)
        self._wounds = [wound for wound in chosen if self._links.claim(_claim(wound))]
        await asyncio.gather(*map(self._hurt, self._wounds))
        self._watch = asyncio.get_running_loop().create_task(self._probe(), name=f"probe-{self.planned.kind}")

    async def end(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        await asyncio.gather(*map(self._heal, self._wounds))
        if self._watch is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch

    async def bites(self) -> int:
        """How many probes felt it while their twins did not."""
        return self._felt

    async def _hurt(self, wound: Wound) -> None:
        link, toxic = wound
        try:
            if toxic is None:
                await self._links.proxies.disable(link)
            else:
                await self._links.proxies.add(link, toxic)
        except ProxyError:
            # It may still come, once a process that stands still goes on. That it did not bite is told anyway.
            self._uncertain.add(_claim(wound))

    async def _heal(self, wound: Wound) -> None:
        link, toxic = wound
        for left in reversed(range(REMOVALS)):
            try:
                if toxic is None:
                    await self._links.proxies.enable(link)
                else:
                    await self._links.proxies.remove(link, toxic)
            except ProxyError:
                if left == 0 and _claim(wound) not in self._uncertain:
                    raise
            else:
                break
        self._links.release(_claim(wound))

    async def _probe(self) -> None:
        by_link = {link.name: (link, toxic) for link, toxic in self._wounds}
        probed = list(by_link.values())[:: max(1, len(by_link) // PROBED_LINKS)][:PROBED_LINKS]
        while True:
            self._felt += sum(await asyncio.gather(*(self._is_felt(link, toxic) for link, toxic in probed)))
            await asyncio.sleep(PROBE_PAUSE_SECONDS)

    async def _is_felt(self, link: Link, toxic: Toxic | None) -> bool:
        if toxic is not None and toxic.kind is ToxicKind.SLOW_CLOSE:
            return await _closes_slowly(link, toxic.attributes["delay"] / 1000)
        context = self._context(link.port)
        through, around = await asyncio.gather(
            ask(link.listen, link.port, context), ask(link.upstream, link.port, context)
        )
        return is_felt(toxic, through, around)

    def _context(self, port: PortKind) -> ssl.SSLContext | None:
        cluster = self.stage.cluster
        return cluster.context if cluster.layout.secure and port is not PortKind.KAFKA else None


async def _closes_slowly(link: Link, seconds: float) -> bool:
    """Whether the end of a connection takes the delay. A target that is down or stopped ends it at once or never."""
    took = await seconds_to_the_end(link.listen, 2 * seconds + 1)
    return took is not None and took >= seconds


def is_felt(toxic: Toxic | None, through: Seen, around: Seen) -> bool:
    """Whether a probe met what its link suffers, and its twin `around` the proxy did not."""
    if around.outcome is not Outcome.ANSWERED:
        return False
    if toxic is None or toxic.kind in {ToxicKind.RESET_PEER, ToxicKind.LIMIT_DATA}:
        return through.outcome is Outcome.ENDED
    if toxic.kind is ToxicKind.TIMEOUT:
        # A black hole lets the end pass of a target that has answered into it.
        return through.outcome is not Outcome.ANSWERED and through.received == 0
    later = through.seconds - around.seconds >= _shortest_delay(toxic, through) / 2
    return through.outcome is Outcome.SILENT or (through.outcome is Outcome.ANSWERED and later)


def _shortest_delay(toxic: Toxic, through: Seen) -> float:
    """By how many seconds the toxic delays such a probe at least."""
    told = toxic.attributes
    size = through.sent if toxic.stream is Stream.UPSTREAM else through.received
    if toxic.kind is ToxicKind.LATENCY:
        return (told["latency"] - told["jitter"]) / 1000
    if toxic.kind is ToxicKind.BANDWIDTH:
        return size / (1000 * told["rate"])
    slices = size // (told["average_size"] + told["size_variation"])
    return slices * told["delay"] / 1_000_000


def _claim(wound: Wound) -> tuple[str, str]:
    link, toxic = wound
    return link.name, "disabled" if toxic is None else toxic.name


# Which links are hurt, and how.


def toxic_on_some(kind: ToxicKind, stream: Stream, links: Links, victim: str, planned: Planned) -> list[Wound]:
    """One way of one to all links of the victim that are in use."""
    mine = _in_use(links, [*links.of(victim), *links.to(victim)])
    first, count = planned.pick % len(mine), 1 + int(planned.strength * (len(mine) - 1))
    toxic = Toxic(kind, stream, attributes(kind, planned.strength))
    return [(link, toxic) for link in [*mine[first:], *mine[:first]][:count]]


def partition(links: Links, victim: str, planned: Planned) -> list[Wound]:
    """All links of the victim, in both directions."""
    return [*deaf(links, victim, planned), *mute(links, victim, planned)]


def deaf(links: Links, victim: str, _: Planned) -> list[Wound]:
    """The victim hears nobody; what it says arrives."""
    return swallowed(links.to(victim), Stream.UPSTREAM) + swallowed(links.of(victim), Stream.DOWNSTREAM)


def mute(links: Links, victim: str, _: Planned) -> list[Wound]:
    """Nobody hears the victim; what they say arrives."""
    return swallowed(links.of(victim), Stream.UPSTREAM) + swallowed(links.to(victim), Stream.DOWNSTREAM)


def cut(links: Links, victim: str, planned: Planned) -> list[Wound]:
    """All links between the victim and one other process: connections are closed, new ones refused."""
    return [(link, None) for link in _between(links, victim, _other(links, victim, planned))]


def cut_one_way(links: Links, victim: str, planned: Planned) -> list[Wound]:
    """One other process does not hear the victim any more, but is heard."""
    between = _between(links, victim, _other(links, victim, planned))
    return [
        *swallowed([link for link in between if link.source == victim], Stream.UPSTREAM),
        *swallowed([link for link in between if link.target == victim], Stream.DOWNSTREAM),
    ]


def swallowed(links: Iterable[Link], stream: Stream) -> list[Wound]:
    """What goes this way of the links is thrown away."""
    toxic = Toxic(ToxicKind.TIMEOUT, stream, {"timeout": 0})
    return [(link, toxic) for link in links]


def _in_use(links: Links, candidates: list[Link]) -> list[Link]:
    """Those on which a process has connected. Of clients that live in the runner nothing is known: they count."""
    of_the_runner = {*links.clients, *links.allocators}
    return [one for one in candidates if links.connects(one) or one.source in of_the_runner] or candidates


def _other(links: Links, victim: str, planned: Planned) -> str:
    used = _in_use(links, [*links.of(victim), *links.to(victim)])
    others = sorted({name for link in used for name in (link.source, link.target)} - {victim})
    return others[planned.pick % len(others)]


def _between(links: Links, one: str, other: str) -> list[Link]:
    return [link for link in links.all() if {link.source, link.target} == {one, other}]


def attributes(kind: ToxicKind, strength: float) -> dict[str, int]:
    """Of a toxic that is as strong as that, from 0, which is felt, to 1."""
    if kind is ToxicKind.LATENCY:
        latency = 40 + int(260 * strength)
        return {"latency": latency, "jitter": latency // 2}
    if kind is ToxicKind.BANDWIDTH:
        return {"rate": 4 - int(3 * strength)}
    if kind is ToxicKind.SLOW_CLOSE:
        return {"delay": 100 + int(1900 * strength)}
    if kind is ToxicKind.RESET_PEER:
        return {"timeout": int(500 * (1 - strength))}
    if kind is ToxicKind.SLICER:
        size = 32 - int(24 * strength)
        return {"average_size": size, "size_variation": size // 4, "delay": 10_000}
    if kind is ToxicKind.LIMIT_DATA:
        return {"bytes": 96 - int(80 * strength)}
    return {"timeout": 0}


TARGETS: Final = (Target.LEADER, Target.FOLLOWER, Target.AGENT)
TOXIC_SECONDS: Final = (2.0, 8.0)
CUT_SECONDS: Final = (2.0, 8.0)
LEAVES_IT_UP: Final = {ToxicKind.LATENCY, ToxicKind.SLOW_CLOSE}
"""With all its links so, a member still serves."""


def why_no_links(stage: Stage) -> str | None:
    """Why no link can be hurt; None if they can."""
    return "no links are laid" if stage.links is None else None


def _kind(name: str, wounds: Wounds, seconds: tuple[float, float], *, takes_down: bool) -> FaultKind:
    make = functools.partial(LinkFault, wounds=wounds)
    return FaultKind(name, make, TARGETS, seconds, takes_down, why_no_links)


KINDS: Final[tuple[FaultKind, ...]] = (
    *(
        _kind(
            f"{kind}_{stream}",
            functools.partial(toxic_on_some, kind, stream),
            TOXIC_SECONDS,
            takes_down=kind not in LEAVES_IT_UP,
        )
        for kind in ToxicKind
        for stream in Stream
    ),
    *(
        _kind(name, wounds, CUT_SECONDS, takes_down=True)
        for name, wounds in (
            ("partition", partition),
            ("deaf", deaf),
            ("mute", mute),
            ("cut", cut),
            ("cut_one_way", cut_one_way),
        )
    ),
)
