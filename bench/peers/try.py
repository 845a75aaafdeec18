"""`python -m bench.peers.try NAME`: one peer alone, to see that it works.

Figures that count come from bench.run, which alternates them with pidkeeper's.
"""

from __future__ import annotations

import random
import signal
import tempfile
from pathlib import Path
from typing import Final

import click

from bench.figures import repeats
from bench.peers.failover import PeerFailover
from bench.peers.interface import Peer, Scheme
from bench.peers.registry import PEERS
from pidkeeper.cli.local_cluster import import_root

SIGNALS: Final = (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM)


def measure(scheme: Scheme, callers: int, seconds: float, warmup: float) -> None:
    """One load, and a line about it."""
    result = scheme.load(callers, seconds, warmup)
    refused = {status: count for status, count in result.statuses.items() if status != "200"}
    repeated = f", {repeats(result.starts)} numbers twice"
    click.echo(
        f"{scheme.name}, {callers} callers: {result.rate:,.0f}/s, "
        f"p50 {result.p50_ms:.2f} ms, p99 {result.p99_ms:.2f} ms, client {result.client_cpu:.0%} of a core, "
        f"others {refused}{repeated}, failures {result.failures[:3]}"
    )


def fail_over(peer: Peer, rounds: int) -> None:
    """Each signal, and a line about it."""
    bench = PeerFailover(peer, random.Random())
    try:
        for number in SIGNALS:
            times = ", ".join(f"{one:.0f}" for one in bench.measure(number, rounds).times_ms)
            click.echo(f"{peer.name}, {number.name} of the leader: {times} ms until another node allocates")
    except TimeoutError as error:
        # It is not brought back from there, so the other signals are not asked either.
        click.echo(f"{peer.name}, {number.name} of the leader: {error}")
    click.echo(f"{peer.name}: {repeats(bench.numbers)} of {len(bench.numbers)} numbers twice")


@click.command()
@click.argument("name", type=click.Choice(sorted(PEERS)))
@click.option("--callers", multiple=True, type=int, default=(1,), show_default=True, help="May be given again.")
@click.option("--seconds", default=2.0, show_default=True)
@click.option("--warmup", default=0.5, show_default=True)
@click.option("--only", default="", help="Schemes whose name contains this.")
@click.option("--failovers", default=0, show_default=True, help="Rounds of each signal.")
def run(name: str, callers: tuple[int, ...], seconds: float, warmup: float, only: str, failovers: int) -> None:
    """Start a peer, load it, and kill, pause and end its leader."""
    kind = PEERS[name]
    if (why := kind.why_unavailable()) is not None:
        raise click.ClickException(why)
    # Not where temporary files go as a rule: that may be memory.
    build = import_root() / "build"
    build.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=build) as directory, kind(Path(directory)) as peer:
        click.echo(f"{peer.name}: {peer.leader().name} leads")
        for scheme in peer.schemes:
            for count in callers if only in scheme.name else ():
                measure(scheme, count, seconds, warmup)
        if failovers:
            fail_over(peer, failovers)


if __name__ == "__main__":
    run()
