"""`pidkeeper acls`: rules of who may use which transactional id, in the file that `acls_file` names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from pidkeeper.broker_agent.security.acls import ALLOW, DENY, EVERYBODY, TRANSACTIONAL_ID, Acl, allows, read_acls
from pidkeeper.cli.failures import CommandError, ExitCode
from pidkeeper.cli.listed_files import change_listed, read_listed
from pidkeeper.cli.output import TABLE, output_option, print_document, print_table

FILE = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
EFFECT = click.argument("effect", type=click.Choice([ALLOW, DENY]))
PRINCIPAL = click.option("--principal", required=True, help=f"Who, as the log names it; {EVERYBODY} for everybody.")


def _pattern(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--transactional-id", "pattern", required=True, help="Which; with * at the end, all that begin so."
    )(command)


@click.group()
def acls() -> None:
    """Add, list, remove and try out rules for transactional ids.

    FILE is what `acls_file` names in the configuration of agents. An agent reads it again within a second. What is
    denied is denied, whatever is allowed besides; what no rule allows is not allowed.
    """


@acls.command()
@FILE
@EFFECT
@PRINCIPAL
@_pattern
def add(file: Path, effect: str, principal: str, pattern: str) -> None:
    """Add a rule to FILE."""
    acl = _acl(effect, principal, pattern)
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
@_pattern
def remove(file: Path, effect: str, principal: str, pattern: str) -> None:
    """Remove a rule from FILE."""
    acl = _acl(effect, principal, pattern)

    def without(known: list[Acl]) -> list[Acl]:
        if acl not in known:
            raise CommandError(f"{file} has no rule {acl.line}", ExitCode.REFUSED)
        return [other for other in known if other != acl]

    change_listed(file, read_acls, without)
    click.echo(f"removed {acl.line}")


@acls.command()
@FILE
@PRINCIPAL
@click.option("--transactional-id", "name", required=True, help="Which.")
def check(file: Path, principal: str, name: str) -> None:
    """Say whether FILE allows a principal a transactional id. Exits 1 if not."""
    allowed = allows(read_listed(file, read_acls), principal, TRANSACTIONAL_ID, name)
    click.echo(f"{principal} {'may' if allowed else 'may not'} use transactional id {name}")
    if not allowed:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _acl(effect: str, principal: str, pattern: str) -> Acl:
    for text, option in ((principal, "--principal"), (pattern, "--transactional-id")):
        if not text or not text.isprintable():
            raise click.BadParameter(f"{text!r} is empty, or has characters that cannot be printed", param_hint=option)
    return Acl(effect, principal, TRANSACTIONAL_ID, pattern)
