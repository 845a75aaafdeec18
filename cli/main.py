"""The entry point: a tree of commands, each imported only when it runs, so that `--help` stays fast."""

from __future__ import annotations

import importlib
import sys
from typing import Final

import click
from click.shell_completion import CompletionItem

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "dev": ("dev:dev", "Run a local cluster of real processes in the foreground."),
    "demo": ("demo.command:demo", "Run a local cluster under load, kill its leaders, and check every ID."),
    "controller": ("run:controller", "Run a member of the quorum."),
    "agent": ("run:agent", "Run a broker agent."),
    "storage": ("storage:storage", "Format, inspect, verify, back up and recover a member's data directory."),
    "quorum": ("quorum:quorum", "Describe the quorum, transfer its leadership, add and remove voters."),
    "ids": ("ids:ids", "Allocate blocks, find the owner of an ID, list blocks, raise the floor."),
    "brokers": ("brokers:brokers", "List the registered brokers, fence one."),
    "agents": ("agents:agents", "List and describe the broker agents."),
    "transactions": ("transactions:transactions", "List, describe and abort transactions; find hanging ones."),
    "topics": ("topics:topics", "Create, list, describe and delete topics."),
    "groups": ("groups:groups", "List, describe and delete consumer groups; reset their offsets."),
    "store": ("store:store", "Report what is in the object store, and say what is deleted from it."),
    "migrate": ("migrate:migrate", "Move the allocation of producer IDs from ZooKeeper to the quorum."),
    "log": ("log:log", "Read a member's write-ahead log, or the records of a topic's partition."),
    "snapshot": ("offline:snapshot", "List, inspect and verify a member's snapshots."),
    "tokens": ("tokens:tokens", "Create, list and revoke bearer tokens."),
    "users": ("users:users", "Create, list and delete users of SASL at the agents' Kafka listeners."),
    "acls": ("acls:acls", "Say who may use which transactional id."),
    "certs": ("certs:certs", "Make certificates to try TLS out."),
    "archive": ("archive:archive", "Ship members' archives to a bucket, to HDFS or to another disk."),
    "audit": ("audit:audit", "Audit the allocated IDs from files; find a safe floor after a disaster."),
    "health": ("health:health", "Report whether the quorum is healthy, and why not."),
    "debug": ("debug:debug", "Gather what is needed to find out what is wrong, in one file."),
    "completion": ("completion:completion", "Print a script that lets a shell complete commands and options."),
}


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(f"pidkeeper.cli.{module}"), attribute)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """What may stand in place of `incomplete`. The names come from the table, so that no command is imported."""
        named = [
            CompletionItem(name, help=summary) for name, (_, summary) in COMMANDS.items() if name.startswith(incomplete)
        ]
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pidkeeper")
def cli() -> None:
    """Allocate Kafka producer IDs: no ID twice, nothing acknowledged lost.

    Exit codes: 0 good, 1 failed, 2 usage, 3 unreachable, 4 not authorised, 5 refused, 10 reachable but unhealthy,
    130 interrupted.
    """


def main() -> None:
    """Run the command line; an interrupt ends it with 130, and nothing with a stack trace but a fault of ours."""
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Exit as end:
        code = end.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        code = 130
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except OSError as error:
        # The last net: a disk that is full, also below what is printed; a file that went away meanwhile.
        from pidkeeper.cli.failures import told

        click.echo(f"Error: {told(error)}", err=True)
        code = 1
    sys.exit(code if isinstance(code, int) else 0)
