"""Copies of members' archives are whole, verified, and never overwritten, wherever they go and whatever is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pidkeeper.cli.failures import ExitCode
from pidkeeper.cli.main import cli
from pidkeeper.controller.storage.archive import MAX_SMALL_FILES
from pidkeeper.pipeline.files.finding import find_files
from pidkeeper.pipeline.files.location import Location, locate, system_of
from pidkeeper.pipeline.formats.archive import Piece, read_span, read_whole, spans
from pidkeeper.pipeline.shipping import Failed, Options, Round, Shipped, Shipper
from tests.support.member_files import MemberFiles
from tests.support.name_node import NameNode
from tests.support.s3 import BUCKET, LOCKED, S3

PATIENCE_SECONDS = 60.0


@pytest.fixture(params=["path", "webhdfs", "s3"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Location]:
    """Where to, on each kind of file system."""
    if request.param == "path":
        yield locate(tmp_path / "target")
    elif request.param == "webhdfs":
        node: NameNode = request.getfixturevalue("node")
        yield locate(f"{node.uri}/target")
    else:
        bucket: S3 = request.getfixturevalue("bucket")
        yield locate(f"s3://{BUCKET}/{tmp_path.name}{bucket.query}")


@pytest.fixture
def members(tmp_path: Path) -> list[MemberFiles]:
    """Two of one cluster, with two archive files and a snapshot each."""
    found = [MemberFiles(tmp_path / "data" / str(node), node) for node in (1, 2)]
    for member in found:
        member.archive((0, 40), (40, 80))
        member.snapshot(80, 80)
    return found


def as_argument(target: Location) -> str:
    """As somebody writes it on a command line."""
    query = target.root.partition("?")[2]
    return str(target) + (f"?{query}" if query else "")


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli, ["archive", "ship", *arguments])


def ship(target: Location, *members: MemberFiles, options: tuple[str, ...] = ()) -> tuple[int, dict[str, Any]]:
    """The exit code, and the figures."""
    done = run(*(str(member.path) for member in members), "--to", as_argument(target), "-o", "json", *options)
    return done.exit_code, json.loads(done.stdout)


def folder(target: Location, member: MemberFiles) -> Location:
    return target / member.meta.cluster_id / f"{member.meta.node_id}-{member.meta.directory_id}"


def copies(target: Location) -> dict[str, bytes]:
    """All that is at the target."""
    return {one.name: (target / one.name).read() for one in target.below()} if target.exists() else {}


def originals(*members: MemberFiles) -> dict[str, bytes]:
    """What is to be there."""
    return {
        f"{member.meta.cluster_id}/{member.meta.node_id}-{member.meta.directory_id}/{name}": (
            member.path / name
        ).read_bytes()
        for member in members
        for name in ("meta.json", *(str(file.relative_to(member.path)) for file in shipped_files(member)))
    }


def shipped_files(member: MemberFiles) -> list[Path]:
    return [*member.found("archive"), *member.found("snapshots")]


def spoil(file: Path, change: Callable[[bytes], bytes]) -> None:
    file.write_bytes(change(file.read_bytes()))


def flipped(data: bytes, at: int = 200) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_everything_is_shipped_once(target: Location, members: list[MemberFiles]) -> None:
    for member in members:
        member.log(5, 4)
        (member.path / "archive" / "x.arc.tmp").write_bytes(b"unfinished")
    code, done = ship(target, *members)
    for member in members:
        (member.path / "archive" / "x.arc.tmp").unlink()
    assert code == ExitCode.GOOD
    assert copies(target) == originals(*members)
    sizes = sum(map(len, copies(target).values()))
    assert [done[name] for name in ("shipped", "present", "failed", "bytes")] == [8, 0, 0, sizes]
    assert done["members"][1]["target"] == str(folder(target, members[1]))
    before = {one.name: one.stamp for one in target.below()}
    code, done = ship(target, *members)
    assert (code, done["shipped"], done["present"], done["bytes"]) == (ExitCode.GOOD, 0, 8, 0)
    members[0].archive((80, 90))
    code, done = ship(target, *members)
    (file,) = done["members"][0]["shipped"]
    assert file["target"] == str(folder(target, members[0]) / "archive" / members[0].found("archive")[-1].name)
    assert (code, done["shipped"], done["present"], copies(target)) == (ExitCode.GOOD, 1, 8, originals(*members))
    assert before.items() <= {one.name: one.stamp for one in target.below()}.items(), "nothing was written again"


def test_the_copies_are_read_as_the_members_are(target: Location, members: list[MemberFiles]) -> None:
    ship(target, *members)
    target_of_all = as_argument(target / members[0].meta.cluster_id / "*")
    done = CliRunner().invoke(cli, ["audit", "floor", target_of_all, "-o", "json"])
    assert done.exit_code == ExitCode.GOOD, done.output
    told = json.loads(done.stdout)
    there = {one["kind"]: (one["files"], one["highest"]) for one in told["evidence"]}
    assert (there["archive files"], there["snapshots"], told["unread"]) == ((4, 799), (2, 799), [])


def test_files_that_were_merged_stay_and_the_widest_counts(target: Location, tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    rows = []
    for offset in range(1, 30):
        rows += member.archive((offset, offset + 1))
        if offset in {MAX_SMALL_FILES, 20, 25}:
            assert ship(target, member)[0] == ExitCode.GOOD
    code, _ = ship(target, member)
    there = folder(target, member) / "archive"
    assert code == ExitCode.GOOD
    assert len(there.names()) > len(member.found("archive"))
    found = [
        piece
        for span in spans(there.names())
        for piece in read_span(
            span, there.names, lambda name: read_whole(name, (there / name).read(), member.meta.cluster_id)
        )
    ]
    pieces = [piece for piece in found if isinstance(piece, Piece)]
    assert len(pieces) == len(found) < len(there.names())
    assert sum(piece.to_offset - piece.from_offset for piece in pieces) == len(rows)


def test_what_is_merged_away_meanwhile_is_shipped_in_the_file_that_it_went_into(tmp_path: Path) -> None:
    member, target = MemberFiles(tmp_path / "1"), locate(tmp_path / "target")
    member.archive(*((offset, offset + 1) for offset in range(1, MAX_SMALL_FILES + 1)))
    member.snapshot(MAX_SMALL_FILES, MAX_SMALL_FILES)
    told: list[Shipped | Failed] = []

    def merge(file: Shipped | Failed) -> None:
        told.append(file)
        if len(told) == 4:  # meta.json and three files
            member.archive((MAX_SMALL_FILES + 1, MAX_SMALL_FILES + 2))

    done = Shipper(target, Options(), merge).ship([member.path], lambda: False)
    (merged,) = member.found("archive")
    assert (done.failed, done.members[0].gone, done.shipped, done.present) == (0, MAX_SMALL_FILES - 3, 6, 0)
    assert told[-1] == Shipped(
        str(merged), str(folder(target, member) / "archive" / merged.name), merged.stat().st_size
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (flipped, "bad_crc at byte 128: the checksum of the rows does not match"),
        (lambda data: data[:-48], "torn at byte 2000: 40 rows end at byte 2048"),
        (lambda data: data + b"x", "malformed at byte 2048: 1 bytes follow"),
        (lambda data: b"", "empty at byte 0"),
    ],
    ids=["flipped", "short", "long", "empty"],
)
def test_a_damaged_file_is_named_and_the_others_are_shipped(
    target: Location, members: list[MemberFiles], change: Callable[[bytes], bytes], reason: str
) -> None:
    bad = members[0].found("archive")[1]
    spoil(bad, change)
    code, done = ship(target, *members)
    assert code == ExitCode.FAILED
    (failed,) = done["members"][0]["failed"]
    assert failed["source"] == str(bad) and reason in failed["reason"]
    due = originals(*members)
    assert [name for name in due if name not in copies(target)] == [
        name for name in due if name.endswith(bad.name) and "/1-" in name
    ]


def test_what_is_not_of_this_member_is_not_shipped(tmp_path: Path, members: list[MemberFiles]) -> None:
    stranger = MemberFiles(tmp_path / "stranger", 1, "cluster-b")
    stranger.archive((80, 90))
    stranger.snapshot(90, 90)
    member, target = members[0], locate(tmp_path / "target")
    due = originals(member)
    for name in ("archive", "snapshots"):
        (file,) = stranger.found(name)
        (member.path / name / file.name).write_bytes(file.read_bytes())
    first, second = member.found("archive")[:2]
    (member.path / "archive" / f"{100:020d}-{140:020d}.arc").write_bytes(first.read_bytes())
    (member.path / "archive" / "notes.arc").write_bytes(second.read_bytes())
    (snapshot,) = [file for file in member.found("snapshots") if "80-" in file.name]
    (member.path / "snapshots" / snapshot.name.replace("80-", "81-")).write_bytes(snapshot.read_bytes())
    spoil(snapshot, flipped)
    code, done = ship(target, member)
    reasons = {Path(one["source"]).name: one["reason"] for one in done["members"][0]["failed"]}
    told = {
        stranger.found("archive")[0].name: "it is of cluster cluster-b, not of cluster-a",
        stranger.found("snapshots")[0].name: "it is of cluster cluster-b, not of cluster-a",
        f"{100:020d}-{140:020d}.arc": f"by its header this is {first.name}",
        "notes.arc": "no archive file is called so",
        snapshot.name: "the checksum does not match",
        snapshot.name.replace("80-", "81-"): "it holds the state at 80 of term 1",
    }
    assert code == ExitCode.FAILED
    assert reasons.keys() == told.keys()
    assert all(reason in reasons[name] for name, reason in told.items())
    assert copies(target) == {name: data for name, data in due.items() if not name.endswith(".snap")}


@pytest.mark.parametrize("change", [flipped, lambda data: data[:-1], lambda data: data + b"x", lambda data: b""])
def test_a_copy_with_other_bytes_is_named_and_stays(
    target: Location, members: list[MemberFiles], change: Callable[[bytes], bytes]
) -> None:
    ship(target, *members)
    file = members[1].found("archive")[0]
    copy = folder(target, members[1]) / "archive" / file.name
    copy.write(change(file.read_bytes()))
    for options in ((), ("--quick",)) if len(copy.read()) != file.stat().st_size else ((),):
        code, done = ship(target, *members, options=options)
        (failed,) = done["members"][1]["failed"]
        assert (code, failed["source"], failed["target"]) == (ExitCode.FAILED, str(file), str(copy))
        assert f"{copy} is there already with other bytes, from byte " in failed["reason"]
        assert done["present"] == 7
        assert copy.read() == change(file.read_bytes())


def test_what_appears_meanwhile_is_not_overwritten(target: Location, members: list[MemberFiles]) -> None:
    first, second = members[0].found("archive")
    place = folder(target, members[0]) / "archive"
    told: list[Shipped | Failed] = []

    def meanwhile(file: Shipped | Failed) -> None:
        told.append(file)
        if file.target == str(place / first.name):
            (place / second.name).write(b"of somebody else")

    done = Shipper(target, Options(), meanwhile).ship([members[0].path], lambda: False)
    (failed,) = done.members[0].failed
    assert (failed.source, (place / second.name).read()) == (str(second), b"of somebody else")
    assert f"{place / second.name} is there already with other bytes, from byte 0 on" in failed.reason


def test_what_grows_meanwhile_is_no_whole_file(tmp_path: Path, members: list[MemberFiles]) -> None:
    first, second = members[0].found("archive")

    def meanwhile(file: Shipped | Failed) -> None:
        if file.source == str(first):
            spoil(second, lambda data: data + bytes(48))

    done = Shipper(locate(tmp_path / "target"), Options(), meanwhile).ship([members[0].path], lambda: False)
    (failed,) = done.members[0].failed
    assert (failed.source, "malformed at byte 2048" in failed.reason) == (str(second), True)


def test_a_quick_run_compares_what_the_checksums_are_in(tmp_path: Path, members: list[MemberFiles]) -> None:
    target = locate(tmp_path / "target")
    ship(target, *members)
    rows, header = (folder(target, members[0]) / "archive" / file.name for file in members[0].found("archive"))
    rows.write(flipped(rows.read()))
    assert ship(target, *members, options=("--quick",))[0] == ExitCode.GOOD
    header.write(flipped(header.read(), 117))
    snapshot = folder(target, members[1]) / "snapshots" / members[1].found("snapshots")[0].name
    snapshot.write(flipped(snapshot.read(), snapshot.entry().size - 1))
    code, done = ship(target, *members, options=("--quick",))
    assert code == ExitCode.FAILED
    assert [one["target"] for member in done["members"] for one in member["failed"]] == [str(header), str(snapshot)]


def test_what_the_target_kept_otherwise_is_noticed_at_once(
    node: NameNode, members: list[MemberFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = node.put
    monkeypatch.setattr(node, "put", lambda path, data: real(path, flipped(data) if ".arc" in path else data))
    code, done = ship(locate(f"{node.uri}/target"), members[0])
    assert code == ExitCode.FAILED
    reasons = [one["reason"] for one in done["members"][0]["failed"]]
    assert len(reasons) == 2
    assert all("has other bytes than were written, from byte 200 on" in reason for reason in reasons)


def test_files_go_to_no_other_members_place(tmp_path: Path, members: list[MemberFiles]) -> None:
    target = locate(tmp_path / "target")
    place = folder(target, members[0])
    meta = json.loads((members[0].path / "meta.json").read_bytes())
    for other, reason in (
        (
            json.dumps(meta | {"cluster_id": "cluster-b"}).encode(),
            "names another member: node 1 of cluster cluster-b, ",
        ),
        (json.dumps(meta | {"node_id": 3}).encode(), "names another member: node 3 of cluster cluster-a, "),
        (b"{", "is malformed: "),
    ):
        (place / "meta.json").write(other)
        code, done = ship(target, *members)
        (failed,) = done["members"][0]["failed"]
        assert code == ExitCode.FAILED
        assert (failed["target"], reason in failed["reason"]) == (str(place / "meta.json"), True)
        assert place.names() == ["meta.json"] and (place / "meta.json").read() == other
    (place / "meta.json").write(json.dumps(meta).encode())
    assert ship(target, *members)[0] == ExitCode.GOOD, "written otherwise, and of the same member"


@pytest.mark.parametrize("cluster", ["a/b", "..", ".", "a b*?[c]", "50%", "../../x"])
def test_any_cluster_id_is_the_name_of_one_directory(tmp_path: Path, cluster: str) -> None:
    member, target = MemberFiles(tmp_path / "1", 1, cluster), locate(tmp_path / "deep" / "target")
    member.archive((1, 4))
    code, _ = ship(target, member)
    (name,) = target.names()
    assert code == ExitCode.GOOD
    assert (locate(tmp_path).names(), locate(tmp_path / "deep").names()) == (["1", "deep"], ["target"])
    assert re.fullmatch(r"[\w%.-]+", name)
    (file,) = find_files(f"{target}/{name}/*", ".arc")
    assert file.location.read() == member.found("archive")[0].read_bytes()


def test_what_is_no_members_directory_is_named_and_the_others_are_shipped(
    tmp_path: Path, members: list[MemberFiles]
) -> None:
    target = locate(tmp_path / "target")
    bad = {
        "none": (None, "is no member's data directory: it has no meta.json"),
        "empty": ({}, "it is malformed: Object missing required field"),
        "newer": ({"format_version": 2, "cluster_id": "c", "node_id": 1, "directory_id": "0" * 32}, "format version 2"),
    }
    for name, (meta, _) in bad.items():
        if meta is not None:
            (tmp_path / name).mkdir()
            (tmp_path / name / "meta.json").write_text(json.dumps(meta))
    done = run(*(str(tmp_path / name) for name in bad), str(members[0].path), "--to", str(target))
    assert done.exit_code == ExitCode.FAILED
    for name, (_, reason) in bad.items():
        assert re.search(f"failed: {tmp_path / name}/meta.json: .*{reason}", done.stderr), name
    assert "Error: 3 files of 7 failed" in done.stderr
    assert copies(target) == originals(members[0])


def test_people_see_a_line_for_each_file_and_a_table(tmp_path: Path, members: list[MemberFiles]) -> None:
    done = run(*(str(member.path) for member in members), "--to", str(tmp_path / "target"))
    assert done.exit_code == ExitCode.GOOD
    lines = done.stdout.splitlines()
    shipped = [line for line in lines if line.startswith("shipped ")]
    assert shipped[1].endswith(f"/archive/{members[0].found('archive')[0].name}  2,048 bytes")
    assert len(shipped) == 8
    assert any(re.search(r"cluster-a +2 +4 +[\d,]+ +0 +0", line) for line in lines)


def test_snapshots_may_stay_where_they_are(tmp_path: Path, members: list[MemberFiles]) -> None:
    code, done = ship(locate(tmp_path / "target"), members[0], options=("--no-snapshots",))
    assert (code, done["shipped"], folder(locate(tmp_path / "target"), members[0]).names()) == (
        ExitCode.GOOD,
        3,
        ["archive", "meta.json"],
    )


def test_a_target_that_cannot_be_used_is_named(bucket: S3, members: list[MemberFiles]) -> None:
    system_of.cache_clear()
    for target, reason in (
        ("webhdfs://127.0.0.1:1/x", "Connection refused"),
        (f"s3://{LOCKED}/x{bucket.query}", "ACCESS_DENIED.*AWS_PROFILE"),
        (f"s3://no-bucket/x{bucket.query}", "bucket does not exist"),
        ("nothing://x/y", "no file system is known for nothing://"),
    ):
        done = run(str(members[0].path), "--to", target)
        assert done.exit_code == ExitCode.FAILED
        place = target.partition("?")[0]
        assert re.search(f"failed: {members[0].path}/meta.json: {place}.* cannot be .*{reason}", done.stderr), target
    done = run(str(members[0].path), "--to", "webhdfs://me:secret@host/x")
    assert (done.exit_code, "secret" in done.output) == (ExitCode.USAGE, False)


def test_a_second_round_reads_nothing_again(node: NameNode, members: list[MemberFiles]) -> None:
    target = locate(f"{node.uri}/target")
    told: list[Shipped | Failed] = []
    shipper = Shipper(target, Options(), told.append)

    def round_() -> Round:
        node.calls.clear()
        return shipper.ship([member.path for member in members], lambda: False)

    round_()
    assert round_().present == 8
    assert {path.rpartition("/")[2] for call, path in node.calls if call in {"OPEN", "CREATE"}} == {"meta.json"}
    copy = folder(target, members[0]) / "archive" / members[0].found("archive")[0].name
    copy.write(flipped(copy.read()))
    assert round_().failed == 1, "it was written, so it was compared again"
    assert isinstance(told[-1], Failed) and told[-1].target == str(copy)


def test_a_stop_is_between_files(tmp_path: Path, members: list[MemberFiles]) -> None:
    told: list[Shipped | Failed] = []
    shipper = Shipper(locate(tmp_path / "target"), Options(), told.append)
    done = shipper.ship([member.path for member in members], lambda: len(told) >= 3)
    assert (done.interrupted, done.shipped, len(done.members)) == (True, 3, 1)
    done = shipper.ship([member.path for member in members], lambda: False)
    assert (done.interrupted, done.shipped, done.present) == (False, 5, 3)


# Processes.


def command(*arguments: str, patch: str = "") -> list[str]:
    code = f"{patch}\nfrom pidkeeper.cli.main import main\nmain()"
    return [sys.executable, "-c", code, "archive", "ship", *arguments]


KILLED_AT = """
import os, signal
steps = {steps}
def after(name):
    real = getattr(os, name)
    def call(*arguments, **named):
        global steps
        result = real(*arguments, **named)
        steps -= 1
        if steps == 0:
            os.kill(os.getpid(), signal.{signal})
        return result
    setattr(os, name, call)
for name in ("fsync", "link"):
    after(name)
"""


def test_a_kill_at_any_step_leaves_no_half_file_under_its_name(tmp_path: Path) -> None:
    member, target = MemberFiles(tmp_path / "1"), locate(tmp_path / "target")
    member.archive((0, 40), (40, 80))
    due = originals(member)
    killed = 0
    while True:
        patch = KILLED_AT.format(steps=killed + 1, signal="SIGKILL")
        done = subprocess.run(
            command(str(member.path), "--to", str(target), patch=patch), check=False, timeout=60, capture_output=True
        )
        if done.returncode == ExitCode.GOOD:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        found = {name: data for name, data in copies(target).items() if not name.rpartition("/")[2].startswith(".")}
        assert found.items() <= due.items()
        killed += 1
        target.delete()
    assert killed == 9, "of three files: what is in it, its name, its directory"
    assert copies(target) == due


def test_what_was_killed_is_gone_on_with(tmp_path: Path, members: list[MemberFiles]) -> None:
    target = locate(tmp_path / "target")
    patch = KILLED_AT.format(steps=7, signal="SIGKILL")
    subprocess.run(command(str(members[0].path), "--to", str(target), patch=patch), check=False, timeout=60)
    code, done = ship(target, *members)
    assert (code, done["shipped"], done["present"], done["failed"]) == (ExitCode.GOOD, 6, 2, 0)
    left = {name: data for name, data in copies(target).items() if name.rpartition("/")[2].startswith(".")}
    assert len(left) == 1, "which no audit takes for a file"
    assert find_files(str(target), "") and len(find_files(str(target), ".arc")) == 4


def test_a_kill_before_a_file_has_its_name_on_hdfs_leaves_none(node: NameNode, members: list[MemberFiles]) -> None:
    target = locate(f"{node.uri}/target")
    patch = (
        "import os, signal\n"
        "from pidkeeper.pipeline.files.web_hdfs import CheckedWebHdfs\n"
        "real = CheckedWebHdfs.rename\n"
        "def rename(self, source, target, *, replace):\n"
        "    if target.endswith('.arc'):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    real(self, source, target, replace=replace)\n"
        "CheckedWebHdfs.rename = rename\n"
    )
    done = subprocess.run(command(str(members[0].path), "--to", str(target), patch=patch), check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert [one.location.name for one in find_files(str(target), "")][-1] == "meta.json"
    assert find_files(str(target), ".arc") == []
    assert ship(target, *members)[0] == ExitCode.GOOD
    assert len(find_files(str(target), ".arc")) == 4


def test_a_signal_lets_the_file_at_work_end(tmp_path: Path, members: list[MemberFiles]) -> None:
    target = locate(tmp_path / "target")
    patch = KILLED_AT.format(steps=4, signal="SIGINT")
    done = subprocess.run(
        command(str(members[0].path), "--to", str(target), patch=patch), check=False, timeout=60, capture_output=True
    )
    assert done.returncode == ExitCode.INTERRUPTED, done.stderr
    due = originals(members[0])
    assert copies(target) == {name: due[name] for name in list(due)[:2]}


def test_a_watch_ships_what_comes_until_it_is_told_to_end(tmp_path: Path, members: list[MemberFiles]) -> None:
    target = locate(tmp_path / "target")
    lines = tmp_path / "lines"
    bad = members[1].found("archive")[0]
    good = bad.read_bytes()
    spoil(bad, flipped)

    def rounds() -> list[dict[str, Any]]:
        return [json.loads(line) for line in lines.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert watching.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)

    paths = [str(member.path) for member in members]
    arguments = [*paths, "--to", str(target), "--watch", "--every", "0.5", "-o", "json"]
    with lines.open("wb") as out, (tmp_path / "err").open("wb") as err:
        watching = subprocess.Popen(command(*arguments), stdout=out, stderr=err)
    try:
        until(lambda: len(rounds()) >= 2)
        assert [done["failed"] for done in rounds()] == [1] * len(rounds())
        members[0].archive((80, 90))
        bad.write_bytes(good)
        until(lambda: copies(target) == originals(*members))
        until(lambda: rounds()[-1]["failed"] == 0)
    finally:
        watching.send_signal(signal.SIGTERM)
    assert watching.wait(PATIENCE_SECONDS) == ExitCode.GOOD
    assert sum(done["shipped"] for done in rounds()) == 9
    told = (tmp_path / "err").read_text().splitlines()
    assert told[0] == f"shipping 2 directories to {target} every 0.5 s, until Ctrl-C or SIGTERM"
    assert len(told) == 2 and told[1].startswith(f"failed: {bad}: bad_crc at byte 128"), "once, for all rounds"


def test_shipping_to_a_disk_needs_no_library(tmp_path: Path, members: list[MemberFiles]) -> None:
    patch = (
        "import sys\nfor name in ('fsspec', 'pyarrow', 'numpy', 'pyspark', 'requests'):\n    sys.modules[name] = None"
    )
    arguments = (str(members[0].path), "--to", str(tmp_path / "target"))
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(
        command(*arguments, patch=patch), check=False, timeout=60, capture_output=True, env=environment
    )
    assert done.returncode == ExitCode.GOOD, done.stderr
