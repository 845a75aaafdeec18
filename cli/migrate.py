"""`pidkeeper migrate`: from ZooKeeper to the quorum (KIP-730), step by step, with a look before and after each."""

from __future__ import annotations

import sys
import textwrap
import time
from typing import Any, Final

import click

from pidkeeper.cli import migration_plan as plan_of
from pidkeeper.cli.controllers import Controllers, asks_controllers
from pidkeeper.cli.failures import CommandError, ExitCode, NobodyError
from pidkeeper.cli.output import TABLE, output_option, print_document, print_facts
from pidkeeper.cli.watch import watch_option
from pidkeeper.controller.migration.live_brokers import BEHIND_THE_SEAL, listed
from pidkeeper.protocol.messages import MigrationDescription, MigrationOrderResponse

ROOT: Final = "/v1/migration/zookeeper"
ATTEMPT_SECONDS: Final = 4.5
"""For one answer: ZooKeeper is asked twice at most, 2 s each by default. Another member can be asked within 5 s."""
STEP_SECONDS: Final = 0.1
"""Pause between two looks at a step under way: the leader looks as often."""
MAX_SHOWN: Final = 4096
"""Characters of the znode's data that are shown; a block takes about 200."""

WIDTH: Final = 100
"""Characters of a line of a plan."""

UNDER_WAY: Final = {"start": "import", "finalize": "finalizing", "rollback": "rolling_back"}
DONE: Final = {
    "start": {"dual_write", "finalizing", "finalized"},
    "finalize": {"finalized"},
    "rollback": {"rolled_back"},
}
"""Phases in which nothing is left to wait for after an order."""


@click.group()
def migrate() -> None:
    """Move the allocation of producer IDs from ZooKeeper to the quorum."""


@migrate.group()
def zookeeper() -> None:
    """Plan, start, watch, finalise or roll back the migration from ZooKeeper.

    The sequence is plan, start, (rollback, start, ...), finalize. Every command can be repeated; a step that is done is
    not done again. The leader carries out an order even if this command ends. After a change of the leader, the next
    leader continues.
    """


def _wait_option(command: Any) -> Any:
    return click.option(
        "--wait",
        default=60.0,
        show_default=True,
        type=click.FloatRange(0, 3600),
        metavar="SECONDS",
        help="How long to wait for the step to be done.",
    )(command)


@zookeeper.command()
@asks_controllers
@output_option
def plan(members: Controllers, output: str) -> None:
    """Show what the next order would do. Changes nothing.

    Exits 0 if an order is possible now, or if none is needed any more. Exits 5 if the next order would be refused, or
    if a problem blocks it. Only `start` checks whether ZooKeeper permits the controllers to write the znode.
    """
    migration = _describe(members)
    steps, blockers = plan_of.steps(migration), plan_of.blockers(migration)
    if output != TABLE:
        print_document({**_status(migration, blockers), "steps": steps}, output)
    else:
        _show(migration)
        for step in steps:
            _show_step(step)
        if (waits := plan_of.waits(migration)) is not None:
            click.echo(f"\n{waits}")
        elif not steps:
            click.echo("\nnothing is left to do")
    if blockers or (steps and all(step.refusal is not None for step in steps)):
        raise click.exceptions.Exit(ExitCode.REFUSED)


@zookeeper.command()
@asks_controllers
@output_option
@watch_option
def status(members: Controllers, output: str) -> None:
    """Show the phase of the migration, what the znode holds, and which brokers are still in ZooKeeper.

    Exits 10 if a step cannot continue, if ZooKeeper is needed and cannot be used, or if the znode is behind the quorum.
    """
    migration = _describe(members)
    blockers = plan_of.blockers(migration)
    if output != TABLE:
        print_document(_status(migration, blockers), output)
    else:
        _show(migration)
    if blockers or plan_of.behind(migration) is not None:
        raise click.exceptions.Exit(ExitCode.UNHEALTHY)


@zookeeper.command()
@_wait_option
@asks_controllers
@output_option
def start(wait: float, members: Controllers, output: str) -> None:
    """Start the migration: import the next ID from ZooKeeper, and claim every block there first.

    From then on the log of the quorum has all that ZooKeeper handed out. Exits 5 if the order is refused, 1 if it is
    not done within --wait; the leader then continues by itself.
    """
    before = _before(members, output)
    _send(members, "start", {})
    _finish("start", before, members, wait, output)


@zookeeper.command()
@click.option(
    "--yes", is_flag=True, help="Do not ask for confirmation: no broker uses ZooKeeper any more. This cannot be undone."
)
@click.option(
    "--force",
    is_flag=True,
    help="Even if brokers are still in ZooKeeper, or nobody can tell. Takes the operators' --token-file.",
)
@_wait_option
@asks_controllers
@output_option
def finalize(yes: bool, force: bool, wait: float, members: Controllers, output: str) -> None:
    """End the migration: seal the znode, and allocate without ZooKeeper. This cannot be undone.

    Brokers that use ZooKeeper get no more producer IDs; while there are any, --force is needed. Asks for confirmation;
    without a terminal --yes is needed. Exits 5 if the order is refused or not confirmed, 1 if it is not done within
    --wait; the leader then continues by itself.
    """
    before = _before(members, output)
    if before.phase not in {UNDER_WAY["finalize"], *DONE["finalize"]}:
        _check_agreed(before, yes, force)
        # A leader of an older build does not know `force`, and refuses a body with what it does not know.
        _send(members, "finalize", {"agreed": True, "force": True} if force else {"agreed": True})
    _finish("finalize", before, members, wait, output)


@zookeeper.command()
@_wait_option
@asks_controllers
@output_option
def rollback(wait: float, members: Controllers, output: str) -> None:
    """Roll the migration back: set the znode to the next free ID, and return to the state before `start`.

    Possible until the znode is sealed. Exits 5 if the order is refused, 1 if it is not done within --wait; the leader
    then continues by itself.
    """
    before = _before(members, output)
    _send(members, "rollback", {})
    _finish("rollback", before, members, wait, output)


def _show_step(step: plan_of.Step) -> None:
    click.echo(f"\n{step.order} " + ("would do this:" if step.refusal is None else "would be refused:"))
    if step.refusal is not None:
        click.echo(_wrapped(step.refusal, "  "))
    elif not step.would:
        click.echo(_wrapped("The leader would begin as soon as the znode can be read again.", "  "))
    else:
        for number, would in enumerate(step.would, 1):
            click.echo(_wrapped(would, f"  {number}. "))


def _wrapped(text: str, start: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=start, subsequent_indent=" " * len(start), break_long_words=False)


def at_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty()


def _describe(members: Controllers) -> MigrationDescription:
    return members.ask(MigrationDescription, "GET", ROOT, attempt_seconds=ATTEMPT_SECONDS)


def _send(members: Controllers, order: str, body: dict[str, bool]) -> None:
    members.ask(MigrationOrderResponse, "POST", f"{ROOT}/{order}", body, attempt_seconds=ATTEMPT_SECONDS)


def _before(members: Controllers, output: str) -> MigrationDescription:
    migration = _describe(members)
    if output == TABLE:
        click.echo("before:")
        _show(migration)
        click.echo("")
    return migration


def _check_agreed(before: MigrationDescription, yes: bool, force: bool) -> None:
    """Raises CommandError (REFUSED) if the order makes no sense now, or if nobody agrees to it.

    What force overcomes only the leader knows.
    """
    if not force and (refusal := plan_of.why_not("finalize", before)) is not None:
        raise CommandError(refusal, ExitCode.REFUSED)
    if yes:
        return
    if not at_terminal():
        raise CommandError(
            "not confirmed: brokers that use ZooKeeper get no producer ID any more, and there is no way back; "
            "add --yes once no such broker is left",
            ExitCode.REFUSED,
        )
    click.echo(f"{BEHIND_THE_SEAL} There is no way back.", err=True)
    if not click.confirm("Finalise now? Answer yes only if no broker uses ZooKeeper any more", err=True):
        raise CommandError("not confirmed: nothing was changed", ExitCode.REFUSED)


def _finish(order: str, before: MigrationDescription, members: Controllers, wait: float, output: str) -> None:
    """Wait until the step is done, and tell how it ended. Raises CommandError (FAILED) if it takes too long."""
    after = _wait(order, before, members, wait)
    done = after.phase in DONE[order]
    if output != TABLE:
        print_document({"order": order, "done": done, "before": before, "after": after}, output)
    else:
        click.echo("after:")
        _show(after)
    if not done:
        raise CommandError(_unfinished(order, after, wait))
    if output == TABLE:
        click.echo("\n" + _done(order, before, after))


def _wait(order: str, before: MigrationDescription, members: Controllers, wait: float) -> MigrationDescription:
    """The first description in which the step is done; the last one if that does not happen in time."""
    deadline, said, latest = time.monotonic() + wait, before.phase, before
    while True:
        try:
            latest = _describe(members)
            now = ": ".join([latest.phase, *plan_of.blockers(latest)])
        except NobodyError as error:
            # An election, or a member that was killed; the order stands.
            now = str(error)
        else:
            if latest.phase in DONE[order]:
                return latest
        if now != said:
            click.echo(now, err=True)
            said = now
        if time.monotonic() >= deadline:
            return latest
        time.sleep(STEP_SECONDS)


def _unfinished(order: str, after: MigrationDescription, wait: float) -> str:
    if after.phase != UNDER_WAY[order]:
        return f"{order} is not done after {wait:g} s; the migration is now in the phase {after.phase}: run plan"
    reasons = "; ".join(plan_of.blockers(after)) or "the leader is working on it"
    return (
        f"{order} is not done after {wait:g} s: {reasons}. The leader continues by itself; "
        "run the command again to wait for it"
    )


def _done(order: str, before: MigrationDescription, after: MigrationDescription) -> str:
    if before.phase in DONE[order]:
        return f"nothing had to be done for {order}: the migration is in the phase {after.phase} already"
    if order == "start":
        return "started: every block is claimed in ZooKeeper first; finalize ends the migration, rollback undoes it"
    if order == "finalize":
        return f"finalised: the quorum hands out IDs by itself, from {after.next_producer_id} on; ZooKeeper is sealed"
    return f"rolled back: ZooKeeper continues from {plan_of.zookeeper_next(after)}; start begins the migration again"


def _status(migration: MigrationDescription, blockers: list[str]) -> dict[str, Any]:
    return {"migration": migration, "in_the_way": blockers, "warnings": _warnings(migration)}


def _warnings(migration: MigrationDescription) -> list[str]:
    found = plan_of.behind(migration), plan_of.alive(migration), plan_of.left_behind(migration)
    return [one for one in found if one is not None]


def _show(migration: MigrationDescription) -> None:
    blockers = plan_of.blockers(migration)
    facts: list[tuple[str, object]] = [
        ("Phase", f"{migration.phase}: {plan_of.STATES.get(migration.phase, 'unknown here')}"),
        ("NextProducerId", migration.next_producer_id),
        *_znode(migration, blockers),
        ("Brokers", _brokers(migration)),
        *(("InTheWay", reason) for reason in blockers),
        *(("Warning", warning) for warning in _warnings(migration)),
    ]
    print_facts(facts)
    if migration.znode is not None:
        data = migration.znode.data
        click.echo("(nothing was ever stored in the znode)" if data is None else _shown(data))


def _znode(migration: MigrationDescription, blockers: list[str]) -> list[tuple[str, object]]:
    znode = migration.znode
    if znode is None:
        reason = "cannot be read" if migration.zookeeper in blockers else f"not read: {migration.zookeeper}"
        return [("Znode", reason)]
    after: object = znode.next_producer_id
    if plan_of.sealed_by_this_quorum(migration):
        after = "none: the znode is sealed"
    elif znode.problem is not None:
        after = "unknown" if znode.problem in blockers else f"none: {znode.problem}"
    return [
        ("Znode", f"{znode.path}, version {znode.version}, written by {_writer(migration) or 'nobody'}"),
        ("ZnodeNextId", after),
    ]


def _brokers(migration: MigrationDescription) -> str:
    brokers = migration.brokers
    if brokers is None:
        return "unknown: the leader's build does not look"
    if brokers.problem is not None:
        return "cannot be read" if migration.zookeeper == brokers.problem else f"unknown: {brokers.problem}"
    foreign = f"; {brokers.foreign} of its children are no broker's id" if brokers.foreign else ""
    return f"{listed(brokers.ids) or 'none'} in {brokers.path}{foreign}"


def _writer(migration: MigrationDescription) -> str | None:
    assert migration.znode is not None, "there is no znode to tell the writer of"
    ours = migration.claimed_by is not None and migration.znode.written_by == migration.claimed_by
    return "this quorum" if ours else migration.znode.written_by


def _shown(data: str) -> str:
    """The data on one line, without what a terminal would obey."""
    line = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in data[:MAX_SHOWN])
    return line if len(data) <= MAX_SHOWN else f"{line}... ({len(data)} characters)"
