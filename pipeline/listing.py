"""What an audit reads: the files of members and brokers, listed, numbered and measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from pidkeeper.pipeline.files.location import Location
from pidkeeper.pipeline.findings import FINDINGS
from pidkeeper.pipeline.formats.archive import file_name, within
from pidkeeper.pipeline.gathering import AuditPlan, cost
from pidkeeper.pipeline.ledger import Commit, Registry, Run
from pidkeeper.pipeline.limits import Limits
from pidkeeper.pipeline.partition_logs.store import ListedStore, list_store
from pidkeeper.pipeline.paths import AuditPaths, LoadingError
from pidkeeper.pipeline.quorum.gathering import QuorumPlan
from pidkeeper.pipeline.quorum.loading import load
from pidkeeper.pipeline.quorum.members import MemberFile, Members, list_members
from pidkeeper.pipeline.segments.listing import ListedSegments, list_and_plan
from pidkeeper.pipeline.segments.plan import FILES


class Inputs(NamedTuple):
    """What was found, and what is read of it."""

    members: Members
    segments: ListedSegments | None
    plan: AuditPlan
    bytes_new: int
    store: ListedStore | None


def list_inputs(
    paths: AuditPaths, out: Location, last: Commit | None, run: Run, registry: Registry, *, anew: bool, limits: Limits
) -> Inputs:
    """Everything at the paths, and what of it is read; `out`, `last`, `run`: the ledger. Raises LoadingError."""
    first_new = registry.next_file
    try:
        # Before the members' files: what is in it by then, these tell of.
        store = None if paths.store is None else list_store(paths.store)
        members = list_members(paths, registry) if paths.data else Members([], [])
        before = None if last is None or anew else last.segments
        segments = list_and_plan(paths.segments, registry.next_file, out, run.name, before) if paths.segments else None
    except OSError as error:
        raise LoadingError(str(error)) from error
    sizes = {file.file_id: file.found.size for file in members.files}
    stamps = {file.file_id: file.found.stamp for file in members.files}
    shards = [] if last is None else last.shards
    quorum = QuorumPlan(members.members, sizes, stamps, out, run.name, shards, anew=anew, limits=limits)
    new, price = _measured(members.files, segments, 0 if anew else first_new)
    plan = AuditPlan(quorum if paths.data else None, None if segments is None else segments.plan, price)
    return Inputs(members, segments, plan, new, store)


def _measured(files: Sequence[MemberFile], segments: ListedSegments | None, first_new: int) -> tuple[int, int]:
    """Bytes of new archives and segments, and the price of the audit. first_new: the number of the first new file."""
    archives = [file for file in files if file.source == "archive"]
    known = sum(file.found.size for file in archives if file.file_id < first_new)
    new = sum(file.found.size for file in archives) - known
    others = sum(file.found.size for file in files) - known - new
    if segments is not None:
        new += segments.bytes_read
        known += segments.bytes_known
    return new, cost(new + others, known)


def name_inputs(con: Any, registry: Registry, inputs: Inputs) -> None:
    """The tables `members`, `files` and `archive_listing`, and `findings` without rows."""
    names = {member.member_id: member.name for member in registry.members}
    listed = {file.file_id: file.found.size for file in inputs.members.files}
    rows = [
        {
            "file_id": file.file_id,
            "source": file.source,
            "member": names[file.member_id],
            "path": file.path,
            "bytes": listed.get(file.file_id),
            "listed": file.file_id in listed,
        }
        for file in registry.files
    ]
    if inputs.segments is not None:
        rows += [file | {"listed": True} for file in inputs.segments.rows()]
    _make(con, "files", rows, _FILES)
    _make(con, "members", [{"member_id": number, "member": name} for number, name in names.items()], _MEMBERS)
    _make(con, "archive_listing", _archives(inputs.members), _ARCHIVES)
    _make(con, "findings", [], FINDINGS)


def _archives(members: Members) -> list[dict[str, Any]]:
    rows = []
    for member in members.members:
        for files in member.archives:
            covers = {name: file for name in files.names if (file := file_name(name)) is not None}
            for name, file in covers.items():
                wider = any(within(file, other) for other in covers.values() if other != file)
                bounds = {"from_offset": file.from_offset, "to_offset": file.to_offset, "superseded": wider}
                rows.append({"file_id": files.names[name], "member_id": member.member_id} | bounds)
    return rows


_FILES: Final = FILES.append(pa.field("listed", pa.bool_()))
_MEMBERS: Final = pa.schema([("member_id", pa.int32()), ("member", pa.string())])
_ARCHIVES: Final = pa.schema(
    [
        ("file_id", pa.int32()),
        ("member_id", pa.int32()),
        ("from_offset", pa.int64()),
        ("to_offset", pa.int64()),
        ("superseded", pa.bool_()),
    ]
)


def _make(con: Any, name: str, rows: Sequence[dict[str, Any]], schema: Any) -> None:
    load(con, [(name, batch) for batch in pa.Table.from_pylist(list(rows), schema).to_batches()], {name: schema})
