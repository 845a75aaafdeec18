"""`pidkeeper controller run` and `pidkeeper agent run`: one process each, configured by a file and the environment."""

from __future__ import annotations

from pathlib import Path

import click

from pidkeeper.cli.failures import CommandError, ExitCode
from pidkeeper.service.settings import SettingsError

CONFIG_OPTION = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Configuration file (TOML). Environment variables override its keys.",
)


@click.group()
def controller() -> None:
    """Run a member of the quorum."""


@controller.command("run")
@CONFIG_OPTION
def run_controller(config: Path | None) -> None:
    """Run one controller until SIGTERM. The variable PIDKEEPER__<KEY> overrides a key."""
    from pidkeeper.controller.config import load_config
    from pidkeeper.controller.server import run

    try:
        code = run(load_config(config))
    except SettingsError as error:
        raise CommandError(str(error), ExitCode.USAGE) from error
    raise click.exceptions.Exit(code)


@click.group()
def agent() -> None:
    """Run a broker agent."""


@agent.command("run")
@CONFIG_OPTION
def run_agent(config: Path | None) -> None:
    """Run one broker agent until SIGTERM. The variable PIDKEEPER_AGENT__<KEY> overrides a key."""
    from pidkeeper.broker_agent.config import load_config
    from pidkeeper.broker_agent.server import run

    try:
        code = run(load_config(config))
    except SettingsError as error:
        raise CommandError(str(error), ExitCode.USAGE) from error
    raise click.exceptions.Exit(code)
