"""The options of commands that ask an agent in Kafka's protocol: which one, and as whom."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from pidkeeper.cli.controllers import Controllers

if TYPE_CHECKING:
    from pidkeeper.cli.kafka_client import KafkaClient
    from pidkeeper.cli.log_source import Login


class AgentChoice(NamedTuple):
    """The listener that was named, if any, and the user of SASL, if one was given."""

    url: str | None
    login: Login | None

    def connect(self, members: Controllers) -> KafkaClient:
        """A connection that serves what partition logs need. Raises CommandError, NobodyError if nobody answers."""
        from pidkeeper.cli.log_source import connected, places

        return connected(members, places(members, self.url), self.login)


def asks_agent(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--agent`, `--user` and `--password-file`, which become the argument `agent`."""

    @functools.wraps(command)
    def asking(*args: Any, agent: str | None, user: str | None, password_file: Path | None, **rest: Any) -> Any:
        return command(*args, agent=AgentChoice(agent, _login(user, password_file)), **rest)

    for option in (
        click.option(
            "--password-file",
            type=click.Path(path_type=Path, exists=True, dir_okay=False),
            help="Password, with --user.",
        ),
        click.option("--user", help="With --password-file: user of SASL. The password is sent over TLS alone."),
        click.option(
            "--agent",
            metavar="URL",
            help="Kafka listener of the agent to ask: kafka://HOST:PORT, or kafka+ssl:// for TLS. Default: of the "
            "agents that the controllers name, the first one that answers; with TLS if the controllers speak it.",
        ),
    ):
        asking = option(asking)
    return asking


def _login(user: str | None, password_file: Path | None) -> Login | None:
    if (user is None) != (password_file is None):
        raise click.UsageError("--user and --password-file must be given together")
    if user is None or password_file is None:
        return None
    from pidkeeper.cli.log_source import Login

    return Login.of(user, password_file)
