"""`pidkeeper acls`: rules of who may use which transactional id, topic and group, in the file of `acls_file`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click

from pidkeeper.broker_agent.security.acls import ALLOW, DENY, EVERYBODY, Acl, allows, read_acls
from pidkeeper.broker_agent.security.resources import (
    GROUP,
    GROUP_DELETE,
    GROUP_DESCRIBE,
    GROUP_READ,
    TOPIC,
    TOPIC_CREATE,
    TOPIC_DELETE,
    TOPIC_DESCRIBE,
    TOPIC_READ,
    TOPIC_WRITE,
    TRANSACTIONAL_ID,
)
from pidkeeper.cli.failures import CommandError, ExitCode
from pidkeeper.cli.listed_files import change_listed, read_listed
from pidkeeper.cli.output import TABLE, output_option, print_document, print_table

FILE = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
EFFECT = click.argument("effect", type=click.Choice([ALLOW, DENY]))
PRINCIPAL = click.option("--principal", required=True, help=f"Who, as the log names it; {EVERYBODY} for everybody.")


ALL = "all"
OPERATIONS = {
    TOPIC: {
        ALL: TOPIC,
        "read": TOPIC_READ,
        "write": TOPIC_WRITE,
        "create": TOPIC_CREATE,
        "delete": TOPIC_DELETE,
        "describe": TOPIC_DESCRIBE,
    },
    GROUP: {ALL: GROUP, "read": GROUP_READ, "delete": GROUP_DELETE, "describe": GROUP_DESCRIBE},
}
"""Of topics and consumer groups, as in Kafka; who may read, write or delete one may describe it."""


class Resource(NamedTuple):
    """What a rule or a question is about: `operation` of a topic or a group; None of a transactional id."""

    of: str
    name: str
    operation: str | None = None

    @property
    def kind(self) -> str:
        """As a rule names it."""
        return self.of if self.operation is None else OPERATIONS[self.of][self.operation]


def _resource(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say what it is about: a transactional id, or an operation of a topic or a group."""

    @click.option("--transactional-id", help="Which; with * at the end, all that begin so.")
    @click.option("--topic", help="Which; with * at the end, all that begin so.")
    @click.option("--group", help="Which consumer group; with * at the end, all that begin so.")
    @click.option(
        "--operation",
        type=click.Choice([*OPERATIONS[TOPIC]]),
        help=f"What can be done to the topic or the group.  [default: {ALL}]",
    )
    @functools.wraps(command)
    def with_resource(
        *args: Any,
        transactional_id: str | None,
        topic: str | None,
        group: str | None,
        operation: str | None,
        **options: Any,
    ) -> Any:
        named = {TRANSACTIONAL_ID: transactional_id, TOPIC: topic, GROUP: group}
        found = [(of, name) for of, name in named.items() if name is not None]
        if len(found) != 1:
            raise click.UsageError("give one of --transactional-id, --topic and --group")
        ((of, name),) = found
        if of not in OPERATIONS:
            if operation is not None:
                raise click.UsageError("--operation is of a --topic or a --group")
        elif operation is None:
            operation = ALL
        elif operation not in OPERATIONS[of]:
            raise click.UsageError(f"nobody can {operation} a {of}")
        return command(*args, resource=Resource(of, name, operation), **options)

    return with_resource


@click.group()
def acls() -> None:
    """Add, list, remove and try out rules for transactional ids, topics and consumer groups.

    FILE is what `acls_file` names in the configuration of agents. An agent reads it again within a second. What is
    denied is denied, whatever is allowed besides; what no rule allows is not allowed.
    """


@acls.command()
@FILE
@EFFECT
@PRINCIPAL
@_resource
def add(file: Path, effect: str, principal: str, resource: Resource) -> None:
    """Add a rule to FILE."""
    acl = _acl(effect, principal, resource)
    change_listed(file, read_acls, lambda known: [*(other for other in known if other != acl), acl], new=True)
    click.echo(f"added {acl.line}")


@acls.command("list")
@FILE
@output_option
def list_acls(file: Path, output: str) -> None:
    """List the rules."""
    known = read_listed(file, read_acls)
    if output != TABLE:
        print_document([acl._asdict() for acl in known], output)
    else:
        print_table(("Effect", "Principal", "Resource", "Pattern"), known)


@acls.command()
@FILE
@EFFECT
@PRINCIPAL
@_resource
def remove(file: Path, effect: str, principal: str, resource: Resource) -> None:
    """Remove a rule from FILE."""
    acl = _acl(effect, principal, resource)

    def without(known: list[Acl]) -> list[Acl]:
        if acl not in known:
            raise CommandError(f"{file} has no rule {acl.line}", ExitCode.REFUSED)
        return [other for other in known if other != acl]

    change_listed(file, read_acls, without)
    click.echo(f"removed {acl.line}")


@acls.command()
@FILE
@PRINCIPAL
@_resource
def check(file: Path, principal: str, resource: Resource) -> None:
    """Say whether FILE allows a principal a transactional id, a topic or a consumer group. Exits 1 if not.

    All that can be done to one is allowed if each of its operations is.
    """
    known = read_listed(file, read_acls)
    kinds = [*OPERATIONS[resource.of].values()][1:] if resource.operation == ALL else [resource.kind]
    allowed = all(allows(known, principal, kind, resource.name) for kind in kinds)
    may = "may" if allowed else "may not"
    if resource.operation is None:
        click.echo(f"{principal} {may} use transactional id {resource.name}")
    else:
        does = "do everything with" if resource.operation == ALL else resource.operation
        click.echo(f"{principal} {may} {does} {resource.of} {resource.name}")
    if not allowed:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _acl(effect: str, principal: str, resource: Resource) -> Acl:
    for text, option in ((principal, "--principal"), (resource.name, f"--{resource.of}")):
        if not text or not text.isprintable():
            raise click.BadParameter(f"{text!r} is empty, or has characters that cannot be printed", param_hint=option)
    return Acl(effect, principal, resource.kind, resource.name)
