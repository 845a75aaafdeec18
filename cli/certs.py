"""`pidkeeper certs`: certificates for trying TLS out."""

from __future__ import annotations

from pathlib import Path

import click

from pidkeeper.cli.failures import CommandError

DEFAULT_HOSTS = ("localhost", "127.0.0.1", "::1")


@click.group()
def certs() -> None:
    """Make certificates to try TLS out. For a cluster that matters, have them from a CA whose key is kept safe."""


@certs.command()
@click.option("--dir", "directory", required=True, type=click.Path(path_type=Path, file_okay=False), help="Where to.")
@click.option("--cluster-id", required=True, help="The cluster that the certificates are of.")
@click.option("--controllers", default=3, show_default=True, type=click.IntRange(0, 99), help="Controllers 1 to N.")
@click.option("--agents", default=2, show_default=True, type=click.IntRange(0, 999), help="Agents of brokers 1 to N.")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    default=DEFAULT_HOSTS,
    show_default=True,
    help="Name or address under which they are reached; may be given several times.",
)
@click.option("--days", default=365, show_default=True, type=click.IntRange(1, 3650), help="How long they are valid.")
def dev(directory: Path, cluster_id: str, controllers: int, agents: int, hosts: tuple[str, ...], days: int) -> None:
    """Make a CA and certificates of controllers, agents, an operator, a viewer and a producer.

    A second run keeps the CA and makes all others anew: processes that use them take the new ones within a second.
    """
    from pidkeeper.cli.dev_certificates import issue_for_cluster

    try:
        files = issue_for_cluster(
            directory,
            cluster_id,
            controllers=range(1, controllers + 1),
            brokers=range(1, agents + 1),
            hosts=hosts,
            days=days,
        )
    except OSError as error:
        raise CommandError(f"{directory}: {error.strerror or error}") from error
    click.echo(f"{directory}/ca.pem, and .pem and .key of {', '.join(files)}")
