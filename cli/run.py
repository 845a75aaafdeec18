"""`pidkeeper controller` and `pidkeeper agent`: one process each, configured by a file and the environment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from pidkeeper.cli.failures import CommandError, ExitCode
from pidkeeper.service.settings import SettingsError

CONFIG_OPTION = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Configuration file (TOML). Environment variables override its keys.",
)


def configured_member(config: Path | None) -> tuple[Path, str, int]:
    """Data directory, cluster id and node id of a member by its configuration. Raises CommandError (USAGE)."""
    from pidkeeper.controller.config import load_config

    try:
        settings = load_config(config).member_settings()
    except SettingsError as error:
        raise CommandError(str(error), ExitCode.USAGE) from error
    return Path(settings.data_dir), settings.cluster_id, settings.node_id


@click.group()
def controller() -> None:
    """Run a member of the quorum, or show how it is configured."""


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


@controller.command("config")
@CONFIG_OPTION
def show_controller(config: Path | None) -> None:
    """Print the settings that `run` would take, as TOML: defaults, the file, and the environment above it.

    It shows the paths of secrets, and none of them.
    """
    from pidkeeper.controller.config import load_config

    _print_settings(lambda: load_config(config))


@click.group()
def agent() -> None:
    """Run a broker agent, or show how it is configured."""


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


@agent.command("config")
@CONFIG_OPTION
def show_agent(config: Path | None) -> None:
    """Print the settings that `run` would take, as TOML: defaults, the file, and the environment above it.

    It shows the paths of secrets, and none of them.
    """
    from pidkeeper.broker_agent.config import load_config

    _print_settings(lambda: load_config(config))


def _print_settings(load: Callable[[], msgspec.Struct]) -> None:
    try:
        settings = load()
    except SettingsError as error:
        raise CommandError(str(error), ExitCode.USAGE) from error
    import tomli_w

    click.echo(tomli_w.dumps(_without_none(msgspec.to_builtins(settings))), nl=False)


def _without_none(value: Any) -> Any:
    """TOML has no null: a key that is not set is not there."""
    if isinstance(value, dict):
        return {key: _without_none(one) for key, one in value.items() if one is not None}
    return [_without_none(one) for one in value] if isinstance(value, list | tuple) else value
