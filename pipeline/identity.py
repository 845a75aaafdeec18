"""Whose files these are: members of one cluster, of one founding. Others are named once, and left out of all else.

Files of two quorums differ at each offset that both have, and none of those findings says what is wrong.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pidkeeper.pipeline.checks.quorum.history import committed
from pidkeeper.pipeline.findings import FINDINGS, VIOLATION
from pidkeeper.pipeline.inputs import AuditInputs

NAME: Final = "identity"
_FOUNDING_RECORD: Final = "FoundingRecord"
_MEMBER: Final = ("member", "cluster_id")
_OF_MEMBERS: Final = ("archive_blocks", "archive_files", "snapshots", "log_records", "log_files")


class Member(NamedTuple):
    """Whose files: members of two clusters may have one name."""

    name: str
    cluster: str


class Foreign(msgspec.Struct, frozen=True):
    """One whose files do not belong to the others', and why."""

    member: Member
    detail: str


Known = Mapping[Member, Sequence[tuple[int, str]]]
"""Of each whose files were read: as of which log index which founding was known."""


def foreign_members(known: Known) -> list[Foreign]:
    """Who is not of the cluster that most members are of, or not of the founding that most of these are of.

    A member that is behind may know an older founding, whose place the newer one took: what it knew by an index at
    which others had none newer is no difference.
    """
    cluster = _most([member.cluster for member in known])
    found = [
        Foreign(member, f"these are files of cluster {member.cluster}, and cluster {cluster} is audited")
        for member in known
        if member.cluster != cluster
    ]
    kin = {member: foundings for member, foundings in known.items() if member.cluster == cluster and foundings}
    newest = {member: max(foundings) for member, foundings in kin.items()}
    founding = _most([name for _, name in newest.values()])
    since = min((index for foundings in kin.values() for index, name in foundings if name == founding), default=0)
    found += [
        Foreign(member, f"by index {index:,} it is of founding {name}, and founding {founding} is audited")
        for member, (index, name) in newest.items()
        if name != founding and index >= since
    ]
    return sorted(found, key=lambda one: one.member)


def known_of(inputs: AuditInputs) -> dict[Member, list[tuple[int, str]]]:
    """A few rows are collected: of each member its clusters, its foundings, and its snapshots."""
    columns = (*_MEMBER, "index", "founding_id")
    logged = committed(inputs).where(F.col("record_type") == _FOUNDING_RECORD)
    told = logged.select(*columns).unionByName(inputs.snapshots.select(*columns))
    for frame in (inputs.archive_files, inputs.log_files):
        told = told.unionByName(frame.select(*_MEMBER), allowMissingColumns=True)
    known: dict[Member, list[tuple[int, str]]] = {}
    for row in told.where("cluster_id is not null").distinct().collect():
        foundings_of = known.setdefault(Member(row["member"], row["cluster_id"]), [])
        if row["founding_id"] is not None:
            foundings_of.append((row["index"], row["founding_id"]))
    return known


def without(inputs: AuditInputs, foreign: Sequence[Foreign]) -> AuditInputs:
    """`inputs` without the files of these, but for what is wrong with them."""
    if not foreign:
        return inputs
    theirs = F.lit(False)
    for one in foreign:
        theirs |= (F.col("member") == one.member.name) & (F.col("cluster_id") == one.member.cluster)
    kept = {name: getattr(inputs, name).where(F.coalesce(~theirs, F.lit(True))) for name in _OF_MEMBERS}
    return dataclasses.replace(inputs, **kept)


def findings_of(inputs: AuditInputs, foreign: Sequence[Foreign]) -> DataFrame:
    """One violation for each: by FINDINGS."""
    rows = [
        {
            "check": NAME,
            "severity": VIOLATION,
            "subject": f"member {one.member.name}",
            "member": one.member.name,
            "detail": f"{one.detail}: it was left out, audit it apart",
        }
        for one in foreign
    ]
    return inputs.problems.sparkSession.createDataFrame(
        [{**dict.fromkeys(FINDINGS.names), **row} for row in rows], FINDINGS
    )


def _most(names: Sequence[str]) -> str | None:
    """The one that is there most often; of several the first by name."""
    counted = Counter(names)
    return min(counted, key=lambda name: (-counted[name], name), default=None)
