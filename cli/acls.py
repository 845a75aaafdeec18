"""`pidkeeper acls`: rules of who may use which transactional id and topic, in the file that `acls_file` names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click

from pidkeeper.broker_agent.security.acls import (
    ALLOW,
    DENY,
    EVERYBODY,
    TOPIC,
    TOPIC_CREATE,
    TOPIC_DELETE,
    TOPIC_DESCRIBE,
    TOPIC_READ,
    TOPIC_WRITE,
    TRANSACTIONAL_ID,
    Acl,
    allows,
    read_acls,
)
from pidkeeper.cli.failures import CommandError, ExitCode
from pidkeeper.cli.listed_files import change_listed, read_listed
from pidkeeper.cli.output import TABLE, output_option, print_document, print_table

FILE = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
EFFECT = click.argument("effect", type=click.Choice([ALLOW, DENY]))
PRINCIPAL = click.option("--principal", required=True, help=f"Who, as the log names it; {EVERYBODY} for everybody.")


ALL = "all"
OPERATIONS = {
    ALL: TOPIC,
    "read": TOPIC_READ,
    "write": TOPIC_WRITE,
    "create": TOPIC_CREATE,
    "delete": TOPIC_DELETE,
    "describe": TOPIC_DESCRIBE,
}
"""Of topics, as in Kafka; who may read, write or delete one may describe it."""


class Resource(NamedTuple):
    """What a rule or a question is about. `option`: how it was given."""

    kind: str
    name: str
    option: str


def _resource(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say what it is about: a transactional id, or an operation of a topic."""

    @click.option("--transactional-id", help="Which; with * at the end, all that begin so.")
    @click.option("--topic", help="Which; with * at the end, all that begin so.")
    @click.option(
        "--operation", type=click.Choice([*OPERATIONS]), help=f"What can be done to the topic.  [default: {ALL}]"
    )
    @functools.wraps(command)
    def with_resource(
        *args: Any, transactional_id: str | None, topic: str | None, operation: str | None, **options: Any
    ) -> Any:
        if (transactional_id is None) == (topic is None):
            raise click.UsageError("give one of --transactional-id and --topic")
        if topic is None and operation is not None:
            raise click.UsageError("--operation is of a --topic")
        if topic is None:
            assert transactional_id is not None, "it is one of the two"
            resource = Resource(TRANSACTIONAL_ID, transactional_id, "--transactional-id")
        else:
            resource = Resource(OPERATIONS[operation or ALL], topic, "--topic")
        return command(*args, resource=resource, **options)

    return with_resource


@click.group()
def acls() -> None:
    """Add, list, remove and try out rules for transactional ids and topics.

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
    """Say whether FILE allows a principal a transactional id, or a topic. Exits 1 if not.

    All that can be done to a topic is allowed if each of its operations is.
    """
    known = read_listed(file, read_acls)
    kinds = [*OPERATIONS.values()][1:] if resource.kind == TOPIC else [resource.kind]
    allowed = all(allows(known, principal, kind, resource.name) for kind in kinds)
    may = "may" if allowed else "may not"
    if resource.kind == TRANSACTIONAL_ID:
        click.echo(f"{principal} {may} use transactional id {resource.name}")
    else:
        operation = next(name for name, kind in OPERATIONS.items() if kind == resource.kind)
        does = "do everything with" if operation == ALL else operation
        click.echo(f"{principal} {may} {does} topic {resource.name}")
    if not allowed:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _acl(effect: str, principal: str, resource: Resource) -> Acl:
    for text, option in ((principal, "--principal"), (resource.name, resource.option)):
        if not text or not text.isprintable():
            raise click.BadParameter(f"{text!r} is empty, or has characters that cannot be printed", param_hint=option)
    return Acl(effect, principal, resource.kind, resource.name)
