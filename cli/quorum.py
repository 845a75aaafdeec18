"""`pidkeeper quorum`: found it, describe it, transfer its leadership, check, add, remove and resize its voters."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from typing import Final

import click
import msgspec

from pidkeeper.cli.controllers import STEP_SECONDS, Controllers, asks_controllers
from pidkeeper.cli.failures import CommandError, ExitCode, NobodyError
from pidkeeper.cli.output import TABLE, described_succession, output_option, print_document, print_facts, print_table
from pidkeeper.cli.resize import Place, Resize, make_voter, remove_member
from pidkeeper.cli.watch import watch_option
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.messages import (
    AddVoterRequest,
    DismissEvidenceRequest,
    DismissEvidenceResponse,
    FoundQuorumRequest,
    FoundQuorumResponse,
    QuorumDescription,
)
from pidkeeper.protocol.records import MemberId
from pidkeeper.protocol.releases import may_meet
from pidkeeper.service.build import build_version

FOUND_SECONDS: Final = 30.0
"""For how long a founding waits for its voters by default: until processes that start now have connected."""


@click.group()
def quorum() -> None:
    """Found the quorum, describe it, transfer its leadership, check, add, remove and resize its voters."""


@quorum.command()
@click.option("--voters", required=True, metavar="ID,ID,…", help="The ids in [[voters]] of every member's file.")
@click.option(
    "--founding-id",
    type=click.UUID,
    help="A uuid to know the quorum by. Given again, with the same voters, it changes nothing. Default: a new one.",
)
@click.option(
    "--wait", default=FOUND_SECONDS, show_default=True, help="Seconds to wait until all voters are connected."
)
@asks_controllers
def found(voters: str, founding_id: uuid.UUID | None, wait: float, members: Controllers) -> None:
    """Found a new quorum of members with blank disks. Once in its life, and never to mend one.

    The new quorum hands out IDs from 0. A quorum of one that a build without foundings began goes on where it was. A
    member whose disk was lost needs no founding: it joins by itself. Where all disks were lost, `pidkeeper storage
    recover` goes on above all that was handed out.
    """
    answer = ask_to_found(FoundQuorumRequest(founding_id or uuid.uuid4(), voter_ids(voters)), wait, members)
    click.echo(f"founded quorum {answer.founding_id} of the voters {', '.join(map(str, answer.voters))}")


def ask_to_found(request: FoundQuorumRequest, wait: float, members: Controllers) -> FoundQuorumResponse:
    """Have the voter with the lowest id found a quorum. Raises CommandError if it refuses, or not within `wait` s."""
    deadline = time.monotonic() + wait
    url = _url_of(min(request.voters), members, deadline)
    founder = members.only(url, max(deadline - time.monotonic(), members.timeout))
    return founder.ask(FoundQuorumResponse, "POST", "/v1/quorum/found", request)


@quorum.command()
@click.option("--status", "view", flag_value="status", help="Only the quorum as a whole.")
@click.option("--replication", "view", flag_value="replication", help="Only the voters and learners, one per row.")
@asks_controllers
@output_option
@watch_option
def describe(
    view: str | None,
    members: Controllers,
    output: str,
) -> None:
    """Show leader, term, commit index, and the lag of each voter. Exits 10 if the quorum is not healthy."""
    description = describe_best(members)
    if output != TABLE:
        print_document(description, output)
    else:
        if view != "replication":
            print_facts(_status(description))
        if view != "status":
            print_table(
                ("NodeId", "State", "LogEndIndex", "Lag", "LastContactMs", "Release", "Http"),
                [
                    (v.id, v.state, v.match_index, v.lag, v.last_contact_ms, v.release, v.http)
                    for v in [*description.voters, *description.learners]
                ],
            )
    if not description.healthy:
        raise click.exceptions.Exit(ExitCode.UNHEALTHY)


@quorum.command("check-voters")
@click.option("--among", required=True, metavar="ID,ID,…", help="The members that stay.")
@asks_controllers
def check_voters(among: str, members: Controllers) -> None:
    """Refuse, with exit code 5, if a voter is not among these members: before all others are stopped for good.

    So it does if a member's release is further than one minor from that of this command, which the chart runs from the
    image of the upgrade, before it. A founded quorum counts its voters, whatever its members' files say. Exits 3 if no
    leader is known.
    """
    stay = voter_ids(among, "--among")
    described = describe_best(members)
    if described.founding_id is None and described.commit_index == 0:
        click.echo("nobody has founded the quorum yet: no member is a voter")
        return
    _check_releases(described)
    voters = sorted(voter.id for voter in _with_leader(described).voters)
    if left_out := [voter for voter in voters if voter not in stay]:
        raise CommandError(
            f"voters are {_listed(voters)}, and only {_listed(stay)} would stay: the quorum would count "
            f"{_listed(left_out)} for ever. Remove them first, one after the other: pidkeeper quorum remove-voter ID",
            ExitCode.REFUSED,
        )
    click.echo(f"voters {_listed(voters)} are among {_listed(stay)}")


@quorum.command()
@click.option("--to", "target", type=int, help="Node id of the next leader. Default: the lowest that keeps up.")
@asks_controllers
def transfer(target: int | None, members: Controllers) -> None:
    """Transfer leadership to another voter."""
    before = describe_best(members)
    members.ask(dict, "POST", "/v1/quorum/transfer", {"target": target})
    click.echo(
        f"member {before.leader_id} transfers leadership to "
        f"{target if target is not None else 'the lowest id that keeps up'}"
    )


@quorum.command("dismiss-evidence")
@click.argument("broker_id", metavar="BROKER", type=click.IntRange(0, 2**31 - 1))
@click.option(
    "--highest", type=click.IntRange(0, MAX_PRODUCER_ID), help="The ID that it names; if that is another one, refuse."
)
@asks_controllers
def dismiss_evidence(broker_id: int, highest: int | None, members: Controllers) -> None:
    """Judge that BROKER does not hold the IDs that it says it holds, so that the quorum hands out again.

    If it does hold them, the quorum has lost what it handed out, and the floor must be raised instead.
    """
    request = DismissEvidenceRequest(broker_id, highest)
    answer = members.ask(DismissEvidenceResponse, "POST", "/v1/quorum/evidence/dismiss", request)
    if not answer.dismissed:
        raise CommandError(f"broker {broker_id} has left no evidence that is open", ExitCode.REFUSED)
    click.echo(f"the evidence of broker {broker_id} is dismissed: that broker is refused until it is started anew")


@quorum.command("add-voter")
@click.option("--id", "member_id", type=click.IntRange(1, 2**31 - 1), required=True, help="Node id of the new member.")
@click.option("--peer", required=True, help="Peer address of the new member, host:port.")
@click.option("--http", required=True, help="Base URL of the new member.")
@click.option("--directory-id", help="Expected uuid of its data directory; another one is refused.")
@click.option("--wait", default=60.0, show_default=True, help="Seconds to wait for the new member to catch up.")
@asks_controllers
def add_voter(
    member_id: int, peer: str, http: str, directory_id: str | None, wait: float, members: Controllers
) -> None:
    """Add a running member to the quorum: first as a learner; as a voter once it has caught up."""
    make_voter(AddVoterRequest(member_id, peer, http, directory_id), members, time.monotonic() + wait)
    click.echo(f"member {member_id} is a voter")


@quorum.command("remove-voter")
@click.argument("member_id", metavar="ID", type=click.IntRange(1, 2**31 - 1))
@asks_controllers
def remove_voter(member_id: int, members: Controllers) -> None:
    """Remove a voter or a learner from the quorum. Stop its process afterwards."""
    remove_member(member_id, members)
    click.echo(f"member {member_id} is removed: stop its process now")


@quorum.command()
@click.option("--voters", required=True, metavar="ID,ID,…", help="Who is to vote, and nobody else.")
@click.option("--member", "places", multiple=True, metavar="ID=HOST:PORT,URL", help="Where a new member is reached.")
@click.option("--remove-only", is_flag=True, help="Add nobody: before the processes of others are stopped.")
@click.option("--wait", default=60.0, show_default=True, help="Seconds to wait for new members to answer and catch up.")
@asks_controllers
def resize(voters: str, places: tuple[str, ...], remove_only: bool, wait: float, members: Controllers) -> None:
    """Make the voters those that are listed: add who is missing, then remove who is too many, one after the other.

    New members must run, --controllers must name them, too, and nobody is added before all of them answer. Removed ones
    may be stopped afterwards. Done twice, it changes nothing the second time.
    """
    deadline = time.monotonic() + wait
    described = _led(members)
    change = Resize(described, voter_ids(voters))
    if remove_only:
        # Before an upgrade, as `check-voters` is.
        _check_releases(described)
    else:
        known = dict(map(_place, places))
        for one in change.additions:
            if one not in known:
                raise click.UsageError(f"--member {one}=HOST:PORT,URL is missing: where is member {one} reached?")
            _url_of(one, members, deadline)
        change.add(members, known, deadline, click.echo)
    change.remove(members, click.echo)
    click.echo(f"voters are {_listed(sorted(voter.id for voter in _led(members).voters))}")


def _led(members: Controllers) -> QuorumDescription:
    """As `describe_best`, with a leader: one that leaves has a successor soon. Raises NobodyError if not in time."""
    deadline = time.monotonic() + members.timeout
    while True:
        try:
            return _with_leader(describe_best(members))
        except NobodyError:
            if time.monotonic() > deadline:
                raise
        time.sleep(STEP_SECONDS)


def _with_leader(described: QuorumDescription) -> QuorumDescription:
    """The same; raises NobodyError if it names no leader."""
    if described.leader_id is None:
        raise NobodyError("no member that answers knows a leader, so who votes is not known for sure: ask again")
    return described


def _check_releases(described: QuorumDescription) -> None:
    """Raise CommandError, REFUSED, if members of this build would not be let in: a roll would stop at the first one."""
    mine = build_version()
    for member in [*described.voters, *described.learners]:
        if member.release is not None and not may_meet(mine, member.release):
            raise CommandError(
                f"member {member.id} runs release {member.release}, this is {mine}: members may be one minor release "
                "apart, so upgrade, or go back, by one at a time",
                ExitCode.REFUSED,
            )


def _place(text: str) -> tuple[int, Place]:
    """The id and the addresses in 4=host:9090,http://host:8080. Raises BadParameter."""
    member, _, addresses = text.partition("=")
    peer, _, http = addresses.partition(",")
    if not (peer and http):
        raise click.BadParameter(f"{text!r} is not like 4=host:9090,http://host:8080", param_hint="--member")
    ids = voter_ids(member, "--member")
    if len(ids) != 1:
        raise click.BadParameter(f"{text!r} names {len(ids)} members: one for each --member", param_hint="--member")
    return ids[0], Place(peer, http)


def _listed(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids))


def voter_ids(text: str, option: str = "--voters") -> list[int]:
    """The ids in a list such as 1,2,3. Raises BadParameter."""
    try:
        return msgspec.convert(text.split(","), list[MemberId], strict=False)
    except msgspec.ValidationError as error:
        raise click.BadParameter(f"{text!r} is no list of ids like 1,2,3: {error}", param_hint=option) from error


def _url_of(member_id: int, members: Controllers, deadline: float) -> str:
    """Where a member answers. Raises CommandError if it does not by the deadline."""
    while True:
        described = {one.node_id: url for url, one in members.described()}
        if member_id in described:
            return described[member_id]
        if time.monotonic() > deadline:
            urls = ", ".join(members.urls)
            raise NobodyError(f"no answer from member {member_id} at any of {urls}")
        time.sleep(STEP_SECONDS)


def describe_best(members: Controllers) -> QuorumDescription:
    """The description by the leader if it answers, else by the member that knows most, with the warnings of all.

    Raises CommandError.
    """
    known = [description for _, description in members.described()]
    if not known:
        raise members.nobody()
    # A member knows its own configuration file alone.
    return msgspec.structs.replace(
        known[0], warnings=list(dict.fromkeys(warning for one in known for warning in one.warnings))
    )


def _status(description: QuorumDescription) -> list[tuple[str, object]]:
    return [
        ("ClusterId", description.cluster_id),
        ("FoundingId", description.founding_id),
        *described_succession(description.succession),
        ("LeaderId", description.leader_id),
        ("LeaderEpoch", description.term),
        ("CommitIndex", description.commit_index),
        ("SnapshotIndex", description.snapshot_index),
        ("NextProducerId", description.next_producer_id),
        ("BlockSize", description.block_size),
        ("MetadataVersion", description.metadata_version),
        ("CurrentVoters", ", ".join(str(voter.id) for voter in description.voters)),
        ("CurrentLearners", ", ".join(str(learner.id) for learner in description.learners)),
        ("FailureTolerance", description.failure_tolerance),
        ("Healthy", "yes" if description.healthy else "no: " + "; ".join(description.reasons)),
        *(("Warning", warning) for warning in description.warnings),
    ]
