"""Packets that are lost at random, of the ports on which one process listens, in both directions.

The kernel's packet filter drops them, within a network of the run's own alone (`tests.chaos.own_network`): nothing here
touches the rules of the machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pidkeeper.cli.local_cluster import Agent, Member, member_name
from tests.chaos.fault import Fault, FaultKind
from tests.chaos.own_network import is_own, why_no_network
from tests.chaos.plan import Planned, Target
from tests.chaos.stage import Stage

REPOSITORY: Final = Path(__file__).resolve().parents[3]
FETCHED: Final = REPOSITORY / ".tools" / "nft"

LEAST_LOST: Final = 20
MOST_LOST: Final = 300
"""Of a thousand packets."""

COMMAND_SECONDS: Final = 10.0

TABLE: Final = """
table inet {name} {{
    counter lost {{ }}
    chain lose {{
        type filter hook input priority 0; policy accept;
        tcp dport {{ {ports} }} numgen random mod 1000 < {lost} counter name lost drop
        tcp sport {{ {ports} }} numgen random mod 1000 < {lost} counter name lost drop
    }}
}}
"""


class LostPackets(Fault):
    """From 2 to 30 % of all packets to and from one process, by `strength`, are lost."""

    def __init__(self, stage: Stage, planned: Planned) -> None:
        super().__init__(stage, planned)
        member = stage.chosen(planned)
        assert member is not None, "packets are of one process"
        self.victims = (member_name(member),)
        self._table = f"chaos_{member_name(member)}".replace("-", "_")
        ports = ", ".join(map(str, ports_of(member)))
        lost = round(LEAST_LOST + (MOST_LOST - LEAST_LOST) * planned.strength)
        self._rules = TABLE.format(name=self._table, ports=ports, lost=lost)
        self._lost = 0

    async def begin(self) -> None:
        """Lose some."""
        await asyncio.to_thread(nft, "-f", "-", given=self._rules)

    async def end(self) -> None:
        """Lose none."""
        listed = await asyncio.to_thread(nft, "-j", "list", "counters", "table", "inet", self._table)
        counters = [entry["counter"] for entry in json.loads(listed)["nftables"] if "counter" in entry]
        self._lost = sum(counter["packets"] for counter in counters)
        await asyncio.to_thread(nft, "delete", "table", "inet", self._table)

    async def bites(self) -> int:
        """How many were lost."""
        return self._lost


def ports_of(member: Member) -> list[int]:
    """Where the process listens."""
    other = member.kafka if isinstance(member, Agent) else member.peer
    found = [urlsplit(member.http).port, urlsplit(f"//{other}").port]
    return [port for port in found if port is not None]


def nft(*arguments: str, given: str = "") -> str:
    """What the packet filter's program says. Raises PermissionError outside of a network of our own, RuntimeError."""
    if not is_own():
        raise PermissionError("no rule of the machine's own network is touched: run within tests.chaos.own_network")
    program = [str(FETCHED / "nft")] if (FETCHED / "nft").exists() else ["nft"]
    # Its libraries came with it.
    environment = os.environ | ({"LD_LIBRARY_PATH": str(FETCHED)} if len(program[0]) > len("nft") else {})
    done = subprocess.run(
        [*program, *arguments],
        input=given,
        env=environment,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"nft {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def why_no_packets(_: Stage) -> str | None:
    """What is missing, or what the kernel refuses."""
    if not is_own():
        return why_no_network() or "the run is not in a network of its own: tests.chaos.own_network enters one"
    if not (FETCHED / "nft").exists() and shutil.which("nft") is None:
        return "nft is neither on PATH nor in .tools/nft; tools/fetch-nft brings it by apt"
    try:
        nft("-f", "-", given=TABLE.format(name="chaos_trial", ports="1", lost=1))
        nft("delete", "table", "inet", "chaos_trial")
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        return f"the kernel loses no packets: {error}"
    return None


KINDS: Final = (
    FaultKind(
        "lost_packets",
        LostPackets,
        (Target.LEADER, Target.FOLLOWER, Target.AGENT),
        (3.0, 20.0),
        takes_down=True,
        why_not=why_no_packets,
    ),
)
