"""`pidkeeper storage recover`: a quorum that lost most of its disks, or all, goes on above all that it handed out."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Final

import click
import msgspec

from pidkeeper.cli.controllers import STEP_SECONDS, Controllers, asks_controllers
from pidkeeper.cli.failures import CommandError, ExitCode, failure_at
from pidkeeper.cli.output import TABLE, output_option, print_document, print_facts
from pidkeeper.cli.quorum import FOUND_SECONDS, ask_to_found, voter_ids
from pidkeeper.cli.run import CONFIG_OPTION, configured_member
from pidkeeper.controller.state.producer_ids import check_floor
from pidkeeper.controller.storage.errors import DirectoryError, LogCorruption
from pidkeeper.controller.storage.restoring import Restored, restore_directory
from pidkeeper.disk.files import OsFiles
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.founding import UNKNOWN_FOUNDING, Succession, founding_name
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.messages import FoundQuorumRequest, QuorumDescription

SEE: Final = "pidkeeper quorum describe: Predecessor and Floor are these, and it is healthy once its agents were heard"
"""The last step of each recovery."""


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """What was read, what was decided, and what is left to do.

    `directory`, `node_id`, `known_next_id`: of the member that is left, and the lowest ID that its files do not know to
    be handed out; None if no directory is left. `founding_id`: of the quorum that goes on; None before it is one.
    `changed`: false of a plan, and where all was done before.
    """

    directory: str | None
    cluster_id: str
    node_id: int | None
    voters: list[int]
    known_next_id: int | None
    first_id: int
    founding_id: uuid.UUID | None
    predecessor: uuid.UUID
    changed: bool
    next_steps: list[str]


@click.command()
@click.option(
    "--at-least",
    required=True,
    metavar="N",
    type=click.IntRange(0, MAX_PRODUCER_ID),
    help="The first ID to hand out. Every ID that was ever handed out has to lie below it.",
)
@CONFIG_OPTION
@click.option(
    "--dir", "directory", type=click.Path(path_type=Path), help="The directory that is left, instead of --config."
)
@click.option(
    "--voters", metavar="ID,ID,…", help="No directory is left: the voters, all of which run with blank disks."
)
@click.option(
    "--predecessor",
    type=click.UUID,
    help="With --voters: the founding of the lost quorum, if known. Its agents go on with the IDs that they hold.",
)
@click.option("--dry-run", is_flag=True, help="Read and check everything, say what would be done, change nothing.")
@click.option("--force", is_flag=True, help="Also if more than 10^12 IDs are skipped. Takes the operators' token.")
@click.option(
    "--wait", default=FOUND_SECONDS, show_default=True, help="With --voters: seconds to wait for all of them."
)
@asks_controllers
@output_option
def recover(
    at_least: int,
    config: Path | None,
    directory: Path | None,
    voters: str | None,
    predecessor: uuid.UUID | None,
    dry_run: bool,
    force: bool,
    wait: float,
    members: Controllers,
    output: str,
) -> None:
    """Let the quorum go on from ID N, after most of its disks were lost, or all.

    Only forward: N may not lie below what the files that are left know.

    One data directory is left, or a copy: stop its member, and name it by --config or --dir. The other members start
    with blank disks, and join it. None is left: start all members with blank disks, and name them by --voters and
    --controllers.

    A minority of lost disks takes no recovery: those members join again with blank disks.
    """
    if [config, directory, voters].count(None) != 2:
        raise click.UsageError(
            "name what is left: --config or --dir for the data directory of one member; --voters 1,2,3 if there is none"
        )
    if voters is None:
        if predecessor is not None:
            raise click.UsageError("--predecessor goes with --voters: a directory names its own")
        recovery = _from_directory(config, directory, at_least, force=force, dry_run=dry_run)
    else:
        succession = Succession(predecessor or UNKNOWN_FOUNDING, at_least)
        request = FoundQuorumRequest(uuid.uuid4(), voter_ids(voters), succession, force)
        recovery = _from_none(request, succession, wait, members, dry_run=dry_run)
    _print(recovery, output, dry_run=dry_run)


def _from_directory(
    config: Path | None, directory: Path | None, at_least: int, *, force: bool, dry_run: bool
) -> Recovery:
    owner = None
    if directory is None:
        directory, cluster_id, node_id = configured_member(config)
        owner = (cluster_id, node_id)
    try:
        restored = restore_directory(OsFiles(), directory, at_least, owner=owner, forced=force, dry_run=dry_run)
    except (DirectoryError, LogCorruption, OSError) as error:
        raise CommandError(failure_at(directory, error), ExitCode.REFUSED) from error
    succession = restored.founding.succession
    assert succession is not None, f"{restored} takes nobody's place"
    return Recovery(
        directory=str(directory),
        cluster_id=restored.meta.cluster_id,
        node_id=restored.meta.node_id,
        voters=restored.voters,
        known_next_id=restored.next_producer_id,
        first_id=succession.floor,
        founding_id=None if dry_run and not restored.already else restored.founding.founding_id,
        predecessor=succession.predecessor,
        changed=not dry_run and not restored.already,
        next_steps=_steps_with(restored),
    )


def _steps_with(restored: Restored) -> list[str]:
    own = restored.meta.node_id
    others = [voter for voter in restored.voters if voter != own]
    if not others:
        return [f"start member {own}", SEE]
    blank = (
        f"members {_listed(others)}: see that each file names the voters {_listed(restored.voters)}, none with "
        "learner = true; move the data directory away, if there is one; `pidkeeper storage format`"
    )
    return [
        blank,
        f"start members {_listed(restored.voters)}: they elect a leader when all of them are up",
        SEE,
    ]


def _from_none(
    request: FoundQuorumRequest, succession: Succession, wait: float, members: Controllers, *, dry_run: bool
) -> Recovery:
    described = _described(request.voters, members, time.monotonic() + wait)
    already = _check_blank(described, succession)
    if already is None:
        _check_bounds(described, succession, forced=request.force)
        if not dry_run:
            ask_to_found(request, wait, members)
    founding_id = already or (None if dry_run else request.founding_id)
    return Recovery(
        directory=None,
        cluster_id=described[0].cluster_id,
        node_id=None,
        voters=sorted(set(request.voters)),
        known_next_id=None,
        first_id=succession.floor,
        founding_id=founding_id,
        predecessor=succession.predecessor,
        changed=not dry_run and already is None,
        next_steps=[SEE],
    )


def _described(voters: list[int], members: Controllers, deadline: float) -> list[QuorumDescription]:
    """What the members say. Raises CommandError if a voter gives no answer by the deadline."""
    while True:
        described = [one for _, one in members.described()]
        missing = sorted(set(voters) - {one.node_id for one in described})
        if not missing:
            return described
        if time.monotonic() > deadline:
            detail = f"no answer from voters {_listed(missing)} at any of {', '.join(members.urls)}"
            raise CommandError(f"{detail}: start them, and name all by --controllers", ExitCode.UNREACHABLE)
        time.sleep(STEP_SECONDS)


def _check_blank(described: list[QuorumDescription], succession: Succession) -> uuid.UUID | None:
    """The founding that took this place before, if one did. Raises CommandError if a member knows of another one."""
    for one in described:
        if one.founding_id is None:
            continue
        if one.succession == succession:
            return one.founding_id
        raise CommandError(
            f"the disk of member {one.node_id} is not blank, it is of founding {one.founding_id}: members with blank "
            "disks join it by themselves. Only if no leader comes of that, stop it and recover from its directory "
            "(--config or --dir). Nothing was changed",
            ExitCode.REFUSED,
        )
    return None


def _check_bounds(described: list[QuorumDescription], succession: Succession, *, forced: bool) -> None:
    """As the members will, but also before a plan."""
    try:
        check_floor(0, succession.floor, max(one.block_size for one in described), forced=forced)
    except RequestError as refusal:
        raise CommandError(refusal.detail, ExitCode.REFUSED) from refusal


def _listed(ids: list[int]) -> str:
    return ", ".join(map(str, ids))


def _print(recovery: Recovery, output: str, *, dry_run: bool) -> None:
    if output != TABLE:
        print_document(recovery, output)
        return
    known = recovery.known_next_id
    print_facts(
        [
            ("Directory", recovery.directory or "none is left"),
            ("ClusterId", recovery.cluster_id),
            *([] if recovery.node_id is None else [("NodeId", recovery.node_id)]),
            ("Voters", _listed(recovery.voters)),
            ("Predecessor", founding_name(recovery.predecessor)),
            *([] if known is None else [("KnownNextId", known)]),
            ("FirstId", recovery.first_id),
            *([] if known is None else [("Skipped", recovery.first_id - known)]),
            ("FoundingId", recovery.founding_id or "a new one"),
        ]
    )
    if dry_run:
        click.echo("\nNothing was changed (--dry-run). Next: the same without --dry-run; then")
    elif recovery.changed:
        click.echo("\nDone. Next:")
    else:
        click.echo("\nDone before, nothing was changed. Next:")
    for number, step in enumerate(recovery.next_steps, 1):
        click.echo(f"{number}. {step}")
