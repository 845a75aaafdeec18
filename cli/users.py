"""`pidkeeper users`: users of SASL for the Kafka listeners of agents, in the file that `users_file` names."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import click

from pidkeeper.broker_agent.security.user_list import (
    DEFAULT_ITERATIONS,
    MAX_ITERATIONS,
    MECHANISMS,
    MIN_ITERATIONS,
    User,
    make_verifier,
    read_users,
)
from pidkeeper.cli.failures import CommandError, ExitCode
from pidkeeper.cli.listed_files import change_listed, read_listed
from pidkeeper.cli.output import TABLE, output_option, print_document, print_table
from pidkeeper.service.token_list import NAME

PASSWORD_BYTES = 24
MAX_PASSWORD_CHARACTERS = 128
FILE = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


@click.group()
def users() -> None:
    """Create, list and delete users of SASL/PLAIN and SASL/SCRAM.

    FILE is what `users_file` names in the configuration of agents. It has verifiers alone, no passwords. An agent looks
    at it whenever somebody logs in, and cuts off who is gone from it within seconds.
    """


@users.command()
@FILE
@click.option("--name", required=True, help="What the user is called: letters, digits and ._- alone.")
@click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(list(MECHANISMS)),
    multiple=True,
    default=list(MECHANISMS),
    help="Of SCRAM, may be given several times. Default: both. PLAIN is possible with either.",
)
@click.option(
    "--password-file",
    type=click.File("r"),
    help="Where the password stands, - for the standard input. Default: a new one, which is printed.",
)
@click.option(
    "--iterations",
    type=click.IntRange(MIN_ITERATIONS, MAX_ITERATIONS),
    default=DEFAULT_ITERATIONS,
    show_default=True,
    help="How often the password is hashed.",
)
def create(file: Path, name: str, mechanisms: Sequence[str], password_file: IO[str] | None, iterations: int) -> None:
    """Add a user to FILE, or give it a new password: whoever is logged in with the old one is cut off."""
    if NAME.fullmatch(name) is None:
        reason = f"{name!r} has others than letters, digits and ._-, or is too long"
        raise click.BadParameter(reason, param_hint="--name")
    password = new_password() if password_file is None else _given(password_file)
    put_user(file, name, password, mechanisms, iterations)
    if password_file is None:
        click.echo(password)


def new_password() -> str:
    """One that nobody guesses."""
    return secrets.token_urlsafe(PASSWORD_BYTES)


def put_user(
    file: Path,
    name: str,
    password: str,
    mechanisms: Sequence[str] = tuple(MECHANISMS),
    iterations: int = DEFAULT_ITERATIONS,
) -> None:
    """Add a user to `file`, in place of one of that name. Raises CommandError."""
    added = [User(name, make_verifier(password, mechanism, iterations)) for mechanism in dict.fromkeys(mechanisms)]
    change_listed(file, read_users, lambda known: [*(user for user in known if user.name != name), *added], new=True)


@users.command("list")
@FILE
@output_option
def list_users(file: Path, output: str) -> None:
    """List the users, and how they may log in."""
    known = read_listed(file, read_users)
    rows = [(user.name, user.verifier.mechanism, user.verifier.iterations) for user in known]
    if output != TABLE:
        print_document([dict(zip(("name", "mechanism", "iterations"), row, strict=True)) for row in rows], output)
    else:
        print_table(("Name", "Mechanism", "Iterations"), rows)


@users.command()
@FILE
@click.option("--name", required=True, help="Of the user.")
def delete(file: Path, name: str) -> None:
    """Remove a user from FILE."""

    def without(known: list[User]) -> list[User]:
        kept = [user for user in known if user.name != name]
        if len(kept) == len(known):
            raise CommandError(f"{file} has no user {name!r}", ExitCode.REFUSED)
        return kept

    change_listed(file, read_users, without)
    click.echo(f"deleted {name}")


def _given(file: IO[str]) -> str:
    password = file.read(MAX_PASSWORD_CHARACTERS + 2).removesuffix("\n")
    if not 1 <= len(password) <= MAX_PASSWORD_CHARACTERS or not (password.isascii() and password.isprintable()):
        # Clients differ in how they prepare other characters (RFC 4013).
        reason = f"a password has 1 to {MAX_PASSWORD_CHARACTERS} printable characters of ASCII, in one line"
        raise click.BadParameter(reason, param_hint="--password-file")
    return password
