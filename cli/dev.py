"""`pidkeeper dev`: a local cluster of real processes in the foreground."""

from __future__ import annotations

import http.client
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from pidkeeper.cli.controllers import CERTIFICATES
from pidkeeper.cli.dev_user import USER
from pidkeeper.cli.failures import OF_A_MEMBER, OF_KAFKA, CommandError, ExitCode, check_not_anothers, failure_at
from pidkeeper.cli.local_cluster import LocalCluster, Member, member_name
from pidkeeper.controller.migration.connect_string import check_connect
from pidkeeper.controller.storage.errors import DirectoryError
from pidkeeper.disk.files import OsFiles
from pidkeeper.service.settings import SettingsError

RESTART_SECONDS: Final = 1.0
"""Pause before a member that died is started again; doubled while it keeps dying, up to sixteen times."""

STEADY_SECONDS: Final = 60.0
"""A member that lived for so long does not keep dying: its next pause is the first one again."""


@click.command()
@click.option(
    "--dir",
    "directory",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of the cluster.",
)
@click.option(
    "--controllers", default=3, show_default=True, type=click.Choice(["1", "3", "5"]), help="Number of controllers."
)
@click.option("--agents", default=2, show_default=True, type=click.IntRange(0, 50), help="Number of broker agents.")
@click.option("--base-port", type=click.IntRange(1024, 65000), help="First port to use. Default: free ports.")
@click.option(
    "--zookeeper",
    "connect",
    metavar="HOST:PORT/CHROOT",
    help="Start with ZooKeeper as the authority (migration phase `bridge`). Later runs on the same DIR keep this.",
)
@click.option(
    "--secure",
    is_flag=True,
    help="TLS and certificates on every listener, and a user for Kafka clients. Later runs on the same DIR keep this.",
)
@click.option(
    "--transport",
    default="http",
    show_default=True,
    type=click.Choice(["http", "kafka"]),
    help="How agents ask the controllers: over HTTP, or in Kafka's protocol (KIP-730).",
)
@click.option(
    "--data/--no-data",
    default=True,
    show_default=True,
    help="Whether agents keep partition logs, in DIR/store, or hand out IDs alone.",
)
@click.option("--restart/--no-restart", default=True, show_default=True, help="Restart a process that dies.")
def dev(
    directory: Path,
    controllers: str,
    agents: int,
    base_port: int | None,
    connect: str | None,
    secure: bool,
    transport: str,
    data: bool,
    restart: bool,
) -> None:
    """Run a local cluster until SIGINT or SIGTERM.

    Prints one line when every process is ready. DIR/cluster.json then has the addresses of all of them. A second run on
    the same DIR resumes the same cluster with the same members. With --zookeeper, the znode /latest_producer_id_block
    must exist under the chroot; a Kafka broker creates it when it starts.
    """
    connect = _checked(connect)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        check_not_anothers(directory, OF_KAFKA | OF_A_MEMBER)
        _lock(directory)
        cluster = LocalCluster(
            directory,
            controllers=int(controllers),
            agents=agents,
            base_port=base_port,
            zookeeper=connect,
            secure=secure,
            agent_options={"transport": transport},
            data=data,
        )
    except (DirectoryError, OSError) as error:
        raise CommandError(failure_at(directory, error), ExitCode.REFUSED) from error
    try:
        _check_that_none_runs(cluster)
        client = cluster.add_user() if cluster.layout.secure else None
        cluster.start()
        cluster.wait_ready()
        layout = cluster.layout
        click.echo(
            f"ready: cluster {layout.cluster_id}, {len(layout.controllers)} controllers "
            f"({', '.join(c.http for c in layout.controllers)}), {len(layout.agents)} agents "
            f"({', '.join(a.kafka for a in layout.agents)}); see {cluster.directory / 'cluster.json'}"
        )
        if client is not None:
            click.echo(
                f"certificates are in {cluster.directory / CERTIFICATES}: commands with --cluster {directory} use the "
                f"operator's by themselves; Kafka clients take {client}, which logs in as user {USER}, or ca.pem, "
                "producer.pem and producer.key"
            )
        Supervisor(cluster, restart=restart).run(stop)
    except (DirectoryError, OSError) as error:
        raise CommandError(str(error), ExitCode.REFUSED) from error
    finally:
        codes = cluster.stop()
        if unclean := {name: code for name, code in codes.items() if code != 0}:
            click.echo(f"did not stop cleanly: {unclean}", err=True)


def _checked(connect: str | None) -> str | None:
    try:
        return None if connect is None else check_connect(connect)
    except SettingsError as error:
        raise click.BadParameter(str(error), param_hint="--zookeeper") from error


def _lock(directory: Path) -> None:
    """Take `directory` for this process alone, until it ends. Raises CommandError if another one has it."""
    directory.mkdir(parents=True, exist_ok=True)
    try:
        OsFiles().lock(directory / "lock")
    except BlockingIOError as error:
        raise CommandError(
            f"{directory} is in use by another `pidkeeper dev`: stop that one, or use another --dir", ExitCode.REFUSED
        ) from error


def _check_that_none_runs(cluster: LocalCluster) -> None:
    """Raises CommandError if a member is there already: one that outlived a run that was killed, or a stranger."""
    for member in cluster.members():
        try:
            cluster.get(member, "/livez")
        except (OSError, http.client.HTTPException):
            continue
        raise CommandError(
            f"another process already answers at {member.http}, the address of {member_name(member)}: stop it first "
            f"(an earlier run may have left it behind, with pid {member.pid})",
            ExitCode.REFUSED,
        )


class Supervisor:
    """Tells of members that die, and starts them again."""

    def __init__(self, cluster: LocalCluster, *, restart: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._restart = restart
        self._clock = clock
        self._began = clock()
        self._started: dict[str, float] = {}
        self._reported: set[str] = set()
        self._pause: dict[str, float] = {}
        self._due: dict[str, float] = {}

    def run(self, stop: threading.Event) -> None:
        """Watch until `stop` is set."""
        while not stop.wait(0.1):
            for member in self._cluster.dead():
                self.attend(member)

    def attend(self, member: Member) -> None:
        """Tell that `member` is dead, once; start it again when its pause is over."""
        name, now = member_name(member), self._clock()
        if name not in self._reported:
            self._reported.add(name)
            steady = now - self._started.get(name, self._began) >= STEADY_SECONDS
            before = 0.0 if steady else self._pause.get(name, 0.0)
            self._pause[name] = min(max(2 * before, RESTART_SECONDS), 16 * RESTART_SECONDS)
            self._due[name] = now + self._pause[name]
            action = f"; starting it again in {self._pause[name]:g} s" if self._restart else ""
            click.echo(f"{name} died{action}", err=True)
        elif self._restart and now >= self._due[name]:
            self._reported.discard(name)
            self._cluster.start(member)
            self._started[name] = now
