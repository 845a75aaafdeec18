"""`pidkeeper log`: the two kinds of logs that a cluster has."""

from __future__ import annotations

import click

from pidkeeper.cli.log_read import read
from pidkeeper.cli.offline import dump


@click.group()
def log() -> None:
    """Read one of two kinds of logs.

    `dump` prints the quorum's own log, from the files of a member. `read` prints the records of a topic's partition.
    """


log.add_command(dump)
log.add_command(read)
