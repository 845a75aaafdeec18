"""`pidkeeper health`: one verdict for scripts and probes."""

from __future__ import annotations

import time

import click

from pidkeeper.cli.controllers import Controllers, asks_controllers
from pidkeeper.cli.failures import CommandError, ExitCode
from pidkeeper.cli.output import TABLE, output_option, print_document
from pidkeeper.cli.quorum import describe_best
from pidkeeper.cli.watch import watch_option


@click.command()
@click.option("--wait", is_flag=True, help="Wait up to --timeout for the cluster to become healthy.")
@asks_controllers
@output_option
@watch_option
def health(wait: bool, members: Controllers, output: str) -> None:
    """Report whether the quorum is healthy. Exits 0 if it is, 10 if it is not, 3 if no controller answers."""
    deadline = time.monotonic() + members.timeout
    while True:
        try:
            description = describe_best(members)
            if description.healthy:
                break
        except CommandError:
            if not wait or time.monotonic() >= deadline:
                raise
        else:
            if not wait or time.monotonic() >= deadline:
                break
        time.sleep(0.1)
    if output != TABLE:
        verdict = {
            "healthy": description.healthy,
            "reasons": description.reasons,
            "warnings": description.warnings,
        }
        print_document(verdict, output)
    else:
        click.echo("healthy" if description.healthy else "unhealthy: " + "; ".join(description.reasons))
        for warning in description.warnings:
            click.echo(f"warning: {warning}")
    if not description.healthy:
        raise click.exceptions.Exit(ExitCode.UNHEALTHY)
