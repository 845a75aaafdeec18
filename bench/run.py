"""`python -m bench.run`: every figure in one run, beside what the machine allows at most, and beside peers."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from bench import agents, copies, data, history
from bench import leader_cost as cost
from bench import snapshot_hold as hold
from bench.agents import AgentsBench
from bench.cluster import RAISED_OPTIONS
from bench.copies import CopiesBench
from bench.data import DataBench
from bench.history import HistoryBench
from bench.leader_cost import LeaderCostBench
from bench.loads import Loads
from bench.machine import Bystanders, machine_facts
from bench.peers.registry import PEERS
from bench.peers_section import PeersSection
from bench.plan import FULL, QUICK, Plan
from bench.plots import page
from bench.progress import Progress
from bench.report import Report, Row, print_report
from bench.section_command import Section
from bench.sections import Sections
from bench.snapshot_hold import SnapshotHoldBench
from bench.start_up import StartUpBench
from pidkeeper.cli.local_cluster import import_root

ON_THEIR_OWN: Final[Mapping[str, Callable[[Path, bool], Section]]] = {
    "start": lambda directory, quick: StartUpBench(directory, 1 if quick else FULL.repetitions),
    "history": lambda directory, quick: HistoryBench(directory, history.QUICK if quick else history.FULL),
    "snapshot": lambda directory, quick: SnapshotHoldBench(directory, hold.QUICK if quick else hold.FULL),
    "agents": lambda directory, quick: AgentsBench(directory, agents.QUICK if quick else agents.FULL),
    "leader": lambda directory, quick: LeaderCostBench(directory, cost.QUICK if quick else cost.FULL),
    "data": lambda directory, quick: DataBench(directory, data.QUICK if quick else data.FULL),
    "copies": lambda directory, quick: CopiesBench(directory, copies.QUICK if quick else copies.FULL),
}
"""Sections with plans of their own, which are commands as well."""

SECTIONS: Final = ("disk", "allocate", "kafka", "claims", "tls", "failover", *ON_THEIR_OWN, "crowd", "peers")

DISTURBING_CORES: Final = 0.2
"""From here on the report warns: the members, the load and the floors already share the cores."""


@click.command()
@click.option("--quick", is_flag=True, help="One short repetition of everything.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON in place of the table.")
@click.option("--only", multiple=True, type=click.Choice(SECTIONS), help="A section to run; may be given again.")
@click.option("--peer", "peers", multiple=True, type=click.Choice(list(PEERS)), help="A peer; may be given again.")
@click.option(
    "--dir",
    "parent",
    default=import_root() / "build",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where bench.json, bench.html and, while it runs, the members' data go. Default: build/.",
)
def run(quick: bool, as_json: bool, only: tuple[str, ...], peers: tuple[str, ...], parent: Path) -> None:
    """Measure what pidkeeper reaches of the machine's floors and beside its peers; write it to bench.json, and plots of
    it to bench.html.

    Ends with 1 if a producer ID was seen twice; a missed bar is only shown.
    """
    plan = QUICK if quick else FULL
    # Nodes of peers have working directories of their own.
    parent = parent.resolve()
    parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir=parent))
    machine = machine_facts(directory)
    bystanders = Bystanders()
    loads = Loads(directory)
    sections, beside = Sections(loads, plan), PeersSection(loads, plan, peers or tuple(PEERS))
    rows: list[Row] = []
    names = [name for name in SECTIONS if not only or name in only]

    def report() -> Report:
        busy = {"cores busy with other processes": f"{bystanders.cores():.2f}"}
        return Report(
            machine=machine | busy,
            settings=settings(plan),
            rows=rows,
            violations=loads.violations,
            notes=loads.notes,
            curves=beside.curves,
            outages=[*sections.outages, *beside.outages],
        )

    try:
        with Progress(names) as progress:
            for name in names:
                progress.begin(name)
                if name in ON_THEIR_OWN:
                    rows += loads.gathered(ON_THEIR_OWN[name](directory, quick))
                elif name == "peers":
                    rows += beside.measure(progress.tell)
                else:
                    rows += getattr(sections, name)()
                # After each: an hour's figures are not lost with the last of them.
                write(report(), parent)
    except BaseException:
        click.echo(f"the members' logs are in {directory}", err=True)
        raise
    shutil.rmtree(directory)
    busy = bystanders.cores()
    if busy > DISTURBING_CORES:
        loads.notes.append(f"other processes kept {busy:.1f} cores busy: run this again on a quiet machine")
    write(report(), parent)
    if as_json:
        click.echo((parent / "bench.json").read_text().rstrip())
    else:
        print_report(report())
    sys.exit(1 if loads.violations else 0)


def write(report: Report, parent: Path) -> None:
    """The report as bench.json, and as bench.html where it has something to plot."""
    (parent / "bench.json").write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    if drawn := page(report):
        (parent / "bench.html").write_text(drawn)


def settings(plan: Plan) -> dict[str, str]:
    """What was measured, and with which keys that are not the defaults."""
    return {
        "measured": f"{plan.repetitions} x {plan.seconds:g} s after {plan.warmup:g} s, medians; floors alternate with "
        f"the cluster; {plan.failover_rounds} failovers of each kind; three controllers on loopback, one disk",
        "beside peers": f"{plan.repetitions} x {plan.peer_seconds:g} s, in turn; {plan.peer_failover_rounds} failovers "
        "of each kind, in turn; each peer with three nodes on loopback, on the same disk",
        "keys raised on the controllers": ", ".join(_flattened(RAISED_OPTIONS)),
    }


def _flattened(options: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in options.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key} = {value:,}"


if __name__ == "__main__":
    run()
