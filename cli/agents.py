"""`pidkeeper agents`: the broker agents, by what the quorum knows of them and by what they say themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from pidkeeper.broker_agent.api.models import AgentStatus
from pidkeeper.broker_agent.security.fingerprints import NO_FILE
from pidkeeper.cli.brokers import ago, registered
from pidkeeper.cli.controllers import AGENT_STATUS, Controllers, asks_controllers, base_urls, in_cluster
from pidkeeper.cli.failures import CommandError, ExitCode, NobodyError
from pidkeeper.cli.output import TABLE, output_option, print_document, print_facts, print_table
from pidkeeper.cli.watch import watch_option
from pidkeeper.protocol.ids import MAX_BROKER_ID
from pidkeeper.protocol.messages import BrokerDescription

ASKED_AT_ONCE: Final = 16
"""Agents: those that do not answer take two seconds each."""

READY: Final = "ready"
NOT_ASKED: Final = "registered"


class Agent(msgspec.Struct, frozen=True):
    """One agent. `status`: by the agent at `http`; null if it was not asked, or gave none for the reason in `problem`.

    `registered`: whether the quorum has a `registration` of it; null if no controller answered.
    """

    broker_id: int | None
    http: str | None = None
    status: AgentStatus | None = None
    problem: str | None = None
    registered: bool | None = None
    registration: BrokerDescription | None = None

    @property
    def state(self) -> str:
        """How it is, in a word or two; READY and NOT_ASKED alone are no trouble."""
        if self.problem is not None:
            return "no answer"
        if self.registered is False:
            return "not registered"
        if self.registration is not None and self.registration.fenced:
            return "fenced"
        return NOT_ASKED if self.status is None else READY if self.status.ready else "not ready"

    @property
    def trouble(self) -> str | None:
        """Why it is not as it should be, as far as is known."""
        if self.state in {READY, NOT_ASKED}:
            return None
        reasons = [] if self.status is None else self.status.reasons
        return "; ".join([self.problem or self.state, *reasons])


@click.group()
def agents() -> None:
    """List and describe the broker agents.

    The quorum tells which brokers are registered. The agents tell the rest, where their addresses are known: from
    cluster.json (--cluster), or given (--agents).
    """


def _agents_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--agents",
        "urls",
        envvar="PIDKEEPER_AGENTS",
        show_envvar=True,
        help="Base URLs of agents to ask, separated by commas. Default: those in cluster.json, with --cluster.",
    )(command)


@agents.command("list")
@_agents_option
@asks_controllers
@output_option
@watch_option
@click.pass_context
def list_(ctx: click.Context, urls: str | None, members: Controllers, output: str) -> None:
    """List the agents, one a row. Exits 10 if one is not ready, fenced or gives no answer, 3 if no controller does."""
    found, failure = _found(members, _places(ctx, urls))
    if output != TABLE:
        print_document(found, output)
    else:
        columns = ("BrokerId", "State", "Epoch", "ReserveIds", "Claims/s", "Version", "Http")
        print_table(columns, [_row(one) for one in found])
        for difference in _differences(found):
            click.echo(f"warning: {difference}", err=True)
    _end(found, failure, output)


@agents.command()
@click.argument("broker_id", metavar="ID", type=click.IntRange(0, MAX_BROKER_ID))
@_agents_option
@asks_controllers
@output_option
@click.pass_context
def describe(ctx: click.Context, broker_id: int, urls: str | None, members: Controllers, output: str) -> None:
    """Describe the agent of broker ID. Exits 10 if it is not ready, fenced or gives no answer, 5 if there is none."""
    found, failure = _found(members, _places(ctx, urls))
    own = [one for one in found if one.broker_id == broker_id]
    if not own:
        nameless = "".join(f"; {one.problem}" for one in found if one.broker_id is None)
        if failure is not None:
            raise failure
        detail = f"broker {broker_id} is not registered, and no agent that was asked is its{nameless}"
        raise CommandError(detail, ExitCode.REFUSED)
    # Two processes of one id are told by both.
    for one in own:
        if output != TABLE:
            print_document(one, output, one_of_many=len(own) > 1)
        else:
            print_facts(_facts(one))
    _end(own, failure, output)


def _places(ctx: click.Context, urls: str | None) -> list[tuple[int | None, str]]:
    """Where agents are, each with the id of its broker if that is known."""
    cluster: Path | None = ctx.params.get("cluster")
    if urls is not None:
        return [(None, url) for url in dict.fromkeys(base_urls(urls, "--agents"))]
    return [] if cluster is None else in_cluster(cluster, "agents")


def _found(members: Controllers, places: list[tuple[int | None, str]]) -> tuple[list[Agent], CommandError | None]:
    """The agents by broker id, last those that nobody knows; and why no controller told any, if none did."""
    registrations, failure = None, None
    try:
        registrations = {one.broker_id: one for one in registered(members)}
    except NobodyError as error:
        if not places:
            raise
        failure = error
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        found = list(pool.map(lambda place: _asked(members, *place), places))
    told = {one.broker_id for one in found}
    found += [Agent(broker_id) for broker_id in registrations or () if broker_id not in told]
    return sorted((_joined(one, registrations) for one in found), key=_place), failure


def _asked(members: Controllers, broker_id: int | None, url: str) -> Agent:
    try:
        status = members.ask_one(url, AgentStatus, AGENT_STATUS)
    except CommandError as error:
        return Agent(broker_id, url, problem=error.message)
    return Agent(status.broker_id, url, status)


def _joined(one: Agent, registrations: dict[int, BrokerDescription] | None) -> Agent:
    if registrations is None or one.broker_id is None:
        return one
    registration = registrations.get(one.broker_id)
    return msgspec.structs.replace(one, registered=registration is not None, registration=registration)


def _place(one: Agent) -> tuple[bool, int, str]:
    return one.broker_id is None, one.broker_id or 0, one.http or ""


def _row(one: Agent) -> tuple[object, ...]:
    known, status = one.registration, one.status
    return (
        one.broker_id,
        one.state,
        None if known is None else known.broker_epoch,
        None if status is None else status.reserve_ids,
        None if status is None else status.claim_rate,
        None if status is None else status.version,
        one.http,
    )


def _facts(one: Agent) -> Iterable[tuple[str, object]]:
    known, status = one.registration, one.status
    yield "BrokerId", one.broker_id
    yield "State", one.state
    yield "Http", one.http
    if known is not None:
        yield "Kafka", known.kafka
        yield "BrokerEpoch", known.broker_epoch
        yield "LastContact", ago(known)
        yield "Incarnation", known.incarnation_id
    if status is None:
        yield "Status", one.problem or "not asked: its HTTP address is not known; see --agents"
        return
    yield "ReserveIds", f"{status.reserve_ids:,} of {status.reserve_target_ids:,}, in {status.reserve_blocks} blocks"
    yield "Claims/s", status.claim_rate
    yield "Claimed", f"{status.claimed:,}, and {status.claim_errors:,} refused"
    yield "HighestHeld", status.highest_held
    yield "FoundingId", status.founding_id
    yield "Leader", status.leader
    yield "Version", status.version
    yield "Users", None if status.users_fingerprint is None else _file(status.users_fingerprint)
    yield "Acls", None if status.acls_fingerprint is None else _file(status.acls_fingerprint)
    yield "Quotas", None if status.quotas_fingerprint is None else _file(status.quotas_fingerprint)


def _differences(found: list[Agent]) -> Iterable[str]:
    """Of the files that all agents should have alike, those that they have not, and who has what."""
    for kind in ("users", "acls", "quotas"):
        brokers: dict[str, list[str]] = {}
        for one in found:
            fingerprint = None if one.status is None else getattr(one.status, f"{kind}_fingerprint")
            if fingerprint is not None:
                brokers.setdefault(fingerprint, []).append(str(one.broker_id))
        if len(brokers) > 1:
            told = "; ".join(f"{_file(one)}: {', '.join(ids)}" for one, ids in brokers.items())
            yield f"agents differ in {kind}_file, by broker: {told}"


def _file(fingerprint: str) -> str:
    return "no file" if fingerprint == NO_FILE else fingerprint


def _end(found: list[Agent], failure: CommandError | None, output: str) -> None:
    """Raises what the command exits with, if all is not well."""
    troubles = [(one.broker_id, one.trouble) for one in found if one.trouble is not None]
    if output == TABLE:
        for broker_id, trouble in troubles:
            click.echo(trouble if broker_id is None else f"broker {broker_id}: {trouble}", err=True)
    if failure is not None:
        raise failure
    if troubles:
        raise click.exceptions.Exit(ExitCode.UNHEALTHY)
