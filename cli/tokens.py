"""`pidkeeper tokens`: bearer tokens for callers of controllers and agents, in the file that `tokens_file` names."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from pidkeeper.cli.failures import CommandError, ExitCode
from pidkeeper.cli.listed_files import change_listed, read_listed
from pidkeeper.cli.output import TABLE, output_option, print_document, print_table
from pidkeeper.service.token_hashes import digest_of
from pidkeeper.service.token_list import NAME, ListedToken, is_role, read_tokens

TOKEN_BYTES = 32
FILE = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


@click.group()
def tokens() -> None:
    """Create, list and revoke bearer tokens.

    FILE is what `tokens_file` names in the configuration of controllers or agents. It has hashes alone. A service reads
    it again within a second.
    """


@tokens.command()
@FILE
@click.option("--name", required=True, help="Whose it is: letters, digits and ._- alone.")
@click.option(
    "--role",
    "roles",
    required=True,
    multiple=True,
    help="operator, viewer, producer, broker:ID, or broker for any; may be given several times.",
)
def create(file: Path, name: str, roles: tuple[str, ...]) -> None:
    """Add a token to FILE, and print it: it cannot be had again. Those of the same name stay good."""
    if NAME.fullmatch(name) is None:
        reason = f"{name!r} has others than letters, digits and ._-, or is too long"
        raise click.BadParameter(reason, param_hint="--name")
    for role in roles:
        if not is_role(role):
            raise click.BadParameter(f"{role!r} is none", param_hint="--role")
    token = secrets.token_urlsafe(TOKEN_BYTES)
    _change(file, lambda known: [*known, ListedToken(name, roles, digest_of(token.encode()))], new=True)
    click.echo(token)


@tokens.command("list")
@FILE
@output_option
def list_tokens(file: Path, output: str) -> None:
    """List whose tokens there are, and what these may do."""
    known = read_listed(file, read_tokens)
    if output != TABLE:
        print_document([{"name": token.name, "roles": token.roles} for token in known], output)
    else:
        print_table(("Name", "Roles"), [(token.name, ", ".join(token.roles)) for token in known])


@tokens.command()
@FILE
@click.option("--name", required=True, help="Whose tokens.")
@click.option("--but-the-newest", is_flag=True, help="Keep the one that was created last: the end of a change.")
def revoke(file: Path, name: str, but_the_newest: bool) -> None:
    """Remove the tokens of one name from FILE."""

    def without(known: list[ListedToken]) -> list[ListedToken]:
        own = [token for token in known if token.name == name]
        if not own:
            raise CommandError(f"{file} has no token of {name!r}", ExitCode.REFUSED)
        gone = own[:-1] if but_the_newest else own
        click.echo(f"revoked {len(gone)} of {len(own)} tokens of {name}")
        return [token for token in known if token not in gone]

    _change(file, without)


def _change(file: Path, change: Callable[[list[ListedToken]], Sequence[ListedToken]], *, new: bool = False) -> None:
    change_listed(file, read_tokens, change, new=new)
