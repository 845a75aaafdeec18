"""`pidkeeper quorum`: what the members say of themselves and of each other."""

from __future__ import annotations

import click

from cli.controllers import Controllers, asks_controllers
from cli.failures import CommandError, ExitCode
from cli.output import output_option, print_facts, print_json, print_table
from protocol.messages import QuorumDescription


@click.group()
def quorum() -> None:
    """Describe the quorum and hand over its leadership."""


@quorum.command()
@click.option("--status", "view", flag_value="status", help="Only the quorum as a whole.")
@click.option("--replication", "view", flag_value="replication", help="Only the voters, one a row.")
@asks_controllers
@output_option
def describe(
    view: str | None,
    members: Controllers,
    output: str,
) -> None:
    """Leader, term, commit index, voters with their lag. Exits 10 when the quorum is not healthy."""
    description = describe_best(members)
    if output == "json":
        print_json(description)
    else:
        if view != "replication":
            print_facts(_status(description))
        if view != "status":
            print_table(
                ("NodeId", "State", "LogEndIndex", "Lag", "LastContactMs", "Http"),
                [(v.id, v.state, v.match_index, v.lag, v.last_contact_ms, v.http) for v in description.voters],
            )
    if not description.healthy:
        raise click.exceptions.Exit(ExitCode.UNHEALTHY)


@quorum.command()
@click.option("--to", "target", type=int, help="Voter that shall lead. Default: the most caught-up one.")
@asks_controllers
def transfer(target: int | None, members: Controllers) -> None:
    """Hand leadership over to another voter."""
    before = describe_best(members)
    members.ask(dict, "POST", "/v1/quorum/transfer", {"target": target})
    click.echo(
        f"member {before.leader_id} hands over to {target if target is not None else 'the most caught-up voter'}"
    )


def describe_best(members: Controllers) -> QuorumDescription:
    """The description by the leader if it answers, else by the member that knows most. Raises CommandError."""
    answers = [answer for answer in members.ask_each(QuorumDescription, "/v1/quorum").values() if answer is not None]
    if not answers:
        raise CommandError(f"none of {', '.join(members.urls)} answers", ExitCode.UNREACHABLE)
    return max(answers, key=lambda answer: (answer.term, answer.role == "leader", answer.commit_index))


def _status(description: QuorumDescription) -> list[tuple[str, object]]:
    return [
        ("ClusterId", description.cluster_id),
        ("LeaderId", description.leader_id),
        ("LeaderEpoch", description.term),
        ("CommitIndex", description.commit_index),
        ("SnapshotIndex", description.snapshot_index),
        ("NextProducerId", description.next_producer_id),
        ("BlockSize", description.block_size),
        ("CurrentVoters", ", ".join(str(voter.id) for voter in description.voters)),
        ("FailureTolerance", description.failure_tolerance),
        ("Healthy", "yes" if description.healthy else "no: " + "; ".join(description.reasons)),
    ]
