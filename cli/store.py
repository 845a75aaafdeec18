"""`pidkeeper store`: what is in the object store, and what is deleted from it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from pidkeeper.broker_agent.data.store_report import REPORT_SECONDS, StoreReport, Tally, UnnamedObjects
from pidkeeper.cli.controllers import Controllers, asks_controllers, base_urls, in_cluster
from pidkeeper.cli.failures import NobodyError
from pidkeeper.cli.output import TABLE, output_option, print_document, print_facts, print_table
from pidkeeper.protocol.segment_messages import (
    KeptObjectsPage,
    ReleaseCollectionRequest,
    ReleaseCollectionResponse,
)
from pidkeeper.protocol.segments import MAX_FOUNDINGS

PATH: Final = "/v1/store/report"
SPARE_SECONDS: Final = 10.0
"""Beside those that an agent takes for a report."""


def _agent_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--agent",
        help="Base URL of the agent that looks at the store. Default: one of cluster.json, with --cluster.",
    )(command)


@click.group()
def store() -> None:
    """Report what is in the object store, and say what may be deleted from it."""


@store.command()
@_agent_option
@asks_controllers
@output_option
@click.pass_context
def report(ctx: click.Context, agent: str | None, members: Controllers, output: str) -> None:
    """Report what is in the store that no log names, and what logs name that is not there.

    Nothing is deleted. An agent looks at every object, for two minutes at most. Objects are counted by their names: a
    segment and its index are two.
    """
    urls = _agents(ctx, agent)
    if not urls:
        raise click.UsageError("say which agent looks at the store: --agent, or --cluster for one of a cluster.json")
    found = _report(members, urls)
    if output != TABLE:
        print_document(found, output)
        return
    print_facts(_facts(found))
    if found.unnamed:
        print_table(
            ("Founding", "Deleted", "DeadObjects", "DeadBytes", "LivingObjects", "LivingBytes"),
            [_row(one) for one in found.unnamed],
            title="Objects that no log names",
        )
    for what, tally in _examples(found):
        for name in tally.names:
            click.echo(f"{what}: {name}")


@store.command()
@click.option(
    "--founding",
    "foundings",
    type=click.UUID,
    multiple=True,
    required=True,
    help="A founding whose unneeded objects are deleted from now on; once for each. That of the quorum has to be one.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation. What no log needs will be gone.")
@_agent_option
@asks_controllers
@output_option
@click.pass_context
def release(
    ctx: click.Context,
    foundings: tuple[uuid.UUID, ...],
    yes: bool,
    agent: str | None,
    members: Controllers,
    output: str,
) -> None:
    """Have the objects of some foundings deleted that no log needs.

    After a restore nothing is deleted before that: the logs are those of a copy, and objects that are newer than it
    may be all that is left of some records. Look at `store report` first. Foundings that are not named are not
    collected any more.
    """
    chosen = list(dict.fromkeys(foundings))
    if len(chosen) > MAX_FOUNDINGS:
        raise click.BadParameter(f"{MAX_FOUNDINGS} foundings at most, not {len(chosen)}", param_hint="--founding")
    known = members.ask(KeptObjectsPage, "GET", "/v1/objects?after=-1&limit=1")
    urls = _agents(ctx, agent)
    _tell(known, chosen, _report(members, urls) if urls else None)
    if not yes:
        click.confirm("Delete what no log needs of these foundings?", abort=True, err=True)
    answer = members.ask(ReleaseCollectionResponse, "POST", "/v1/objects/release", ReleaseCollectionRequest(chosen))
    if output != TABLE:
        print_document(answer, output)
    else:
        click.echo(f"collected from now on: {_listed(answer.foundings)}")


def _agents(ctx: click.Context, agent: str | None) -> list[str]:
    """The agents that may be asked, one after another until one answers."""
    cluster: Path | None = ctx.params.get("cluster")
    if agent is not None:
        return base_urls(agent, "--agent")
    return [] if cluster is None else [url for _, url in in_cluster(cluster, "agents")]


def _report(members: Controllers, urls: list[str]) -> StoreReport:
    failure: NobodyError | None = None
    for url in urls:
        try:
            one = members.only(url, REPORT_SECONDS + SPARE_SECONDS)
            return one.ask_one(url, StoreReport, PATH, attempt_seconds=REPORT_SECONDS + SPARE_SECONDS)
        except NobodyError as error:
            failure = error
    assert failure is not None, "there is an agent"
    raise failure


def _facts(found: StoreReport) -> list[tuple[str, object]]:
    missing = "not found out" if found.missing is None else found.missing.objects
    return [
        ("Founding", found.founding_id),
        ("Collected", _listed(found.foundings)),
        ("Held", "yes: nothing is deleted before `pidkeeper store release`" if found.held else "no"),
        ("Complete", "yes" if found.complete else "no: there was no time to look at everything"),
        ("Objects", f"{found.listed.objects:,} of {found.listed.bytes:,} bytes"),
        ("UnknownNames", f"{found.unknown.objects:,} of {found.unknown.bytes:,} bytes"),
        ("Missing", missing),
    ]


def _row(one: UnnamedObjects) -> tuple[object, ...]:
    founding = "others" if one.founding_id is None else str(one.founding_id)
    dead, living = one.dead, one.living
    return founding, "no" if one.held else "yes", dead.objects, dead.bytes, living.objects, living.bytes


def _examples(found: StoreReport) -> list[tuple[str, Tally]]:
    """The first names of each kind."""
    kinds = [("missing", Tally() if found.missing is None else found.missing), ("unknown", found.unknown)]
    for one in found.unnamed:
        kinds += [("dead", one.dead), ("living", one.living)]
    return kinds


def _tell(known: KeptObjectsPage, chosen: list[uuid.UUID], found: StoreReport | None) -> None:
    """What is collected, and what will be."""
    click.echo(f"the quorum is of founding {known.founding_id}; collected now: {_listed(known.foundings)}", err=True)
    unnamed = {} if found is None else {one.founding_id: one for one in found.unnamed}
    for founding in chosen:
        tally = unnamed[founding].dead if founding in unnamed else Tally()
        detail = "" if found is None else f": {tally.objects:,} objects of {tally.bytes:,} bytes that no log names"
        click.echo(f"will be collected: {founding}{detail}", err=True)
    for founding in known.foundings:
        if founding not in chosen:
            click.echo(f"will not be collected any more: {founding}", err=True)


def _listed(foundings: list[uuid.UUID]) -> str:
    return ", ".join(map(str, foundings)) or "none"
