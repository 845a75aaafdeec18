"""`pidkeeper audit` as its users run it: exit codes, what it prints, and what it says where something is missing."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.generate import Workload, write_workload
from pidkeeper.cli.local_cluster import free_ports
from pidkeeper.controller.storage.archive import AllocationArchive
from pidkeeper.pipeline import session
from pidkeeper.pipeline.engine.waiting import ALONE_BYTES
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.protocol.records import AllocateProducerIdsRecord
from tests.pipeline.conftest import REPOSITORY, why_no_spark
from tests.pipeline.member_faults import given_twice, in_the_archive
from tests.support.member_files import CLUSTER, MemberFiles
from tests.support.sound_quorum import block, records, write_log, write_quorum
from tests.support.spark_driver import write_defaults
from tests.support.terminal_program import CTRL_C, TerminalProgram

COMMAND_SECONDS = 280.0


def grow_logs(members: list[MemberFiles]) -> None:
    """One block more, in the log of every member."""
    new = block(90)
    more = AllocateProducerIdsRecord(new.broker_id, new.broker_epoch, new.last, new.first, 10, new.timestamp_ms)
    for member in members:
        for path in (member.path / "wal").iterdir():
            path.unlink()
        write_log(member, [*records(), more], commit=91)


@pytest.fixture(autouse=True, scope="module")
def _short_lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SPARK_CONF_DIR", str(write_defaults(tmp_path_factory.mktemp("spark") / "conf")))
        yield


def pidkeeper(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    known = os.environ | {"PYTHONPATH": str(REPOSITORY)} | environment
    command = [sys.executable, "-m", "pidkeeper.cli", "audit", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False, env=known, cwd=REPOSITORY
    )


def test_what_a_storm_is_can_be_said(tmp_path: Path) -> None:
    write_quorum(tmp_path / "data")

    def storms(out: str, *options: str) -> int:
        run = pidkeeper("run", str(tmp_path / "data"), "--engine", "local", "--out", str(tmp_path / out), *options)
        assert run.returncode == 0, run.stderr
        verdict = json.loads((tmp_path / out / "verdict.json").read_text())
        return int(verdict["checks"]["storm"]["warnings"])

    assert storms("as it is") == 0
    assert storms("strict", "--storm-blocks", "1") > 0


def test_a_violation_ends_with_5_and_stands_in_every_output(tmp_path: Path) -> None:
    if (reason := why_no_spark()) is not None:
        pytest.skip(reason)
    MemberFiles(tmp_path / "1").archive((0, 5))
    member = MemberFiles(tmp_path / "2", 2)
    again = AllocationArchive(member.files, member.path / "archive", CLUSTER)
    again.append([AllocatedBlock(25, 34, 8, 3, 9, 1_700_000_000_000)], 5, 10)
    out = tmp_path / "out"
    ran = pidkeeper(
        "run", str(tmp_path / "1"), str(tmp_path / "2"), "--out", str(out), "--master", "local[1]", "-o", "json"
    )
    assert ran.returncode == 5, ran.stderr
    verdict = json.loads(ran.stdout)
    assert verdict == json.loads((out / "verdict.json").read_text())
    assert (verdict["verdict"], verdict["blocks"]) == ("violations", 6)
    assert verdict["checks"]["overlap"]["violations"] > 0
    assert "IDs 25 to 29" in (out / "report.html").read_text()
    assert "WARN" not in ran.stderr
    assert "Traceback" not in ran.stderr
    assert_the_owners_are_told(out)


def test_where_nothing_is_there_the_audit_ends_with_6_and_says_what_it_did_not_see(tmp_path: Path) -> None:
    if (reason := why_no_spark()) is not None:
        pytest.skip(reason)
    (tmp_path / "1").mkdir()
    out = tmp_path / "out"
    ran = pidkeeper("run", str(tmp_path / "1"), "--out", str(out), "--master", "local[1]")
    assert ran.returncode == 6, ran.stderr
    assert "not seen: no file of a member told of any log offset" in ran.stderr
    assert json.loads((out / "verdict.json").read_text())["verdict"] == "incomplete"
    assert "Incomplete" in (out / "report.html").read_text()


def test_what_spark_submit_names_cannot_be_named_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    if (reason := why_no_spark()) is not None:
        pytest.skip(reason)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    for master, memory in (("local[1]", None), (None, "1g")):
        started = session.session(master, memory)
        with pytest.raises(session.SessionError, match="spark-submit has its own --master"), started:
            pass


def assert_the_owners_are_told(out: Path) -> None:
    """Of the audit above, whose member 2 has IDs 25 to 34 once more."""
    told = {producer_id: pidkeeper("owner", str(producer_id), "--out", str(out)) for producer_id in (24, 27, 34, 50)}
    codes = {producer_id: ran.returncode for producer_id, ran in told.items()}
    assert codes == {24: 0, 27: 5, 34: 5, 50: 1}, [ran.stderr for ran in told.values()]
    assert "20 to 29 (10 IDs)" in told[24].stdout
    assert "violation: 2 blocks hold producer ID 27" in told[27].stderr
    assert "violation: overlap: IDs 25 to 29" in told[27].stdout
    assert "the highest allocated ID is 49" in told[50].stderr


@pytest.mark.parametrize(("engine", "at_work"), [("spark", False), ("spark", True), ("local", False)])
def test_ctrl_c_ends_a_run_without_trace_java_or_verdict(engine: str, at_work: bool, tmp_path: Path) -> None:
    """While Spark starts, or once its tasks have left blocks; and in this process."""
    if engine == "spark" and (reason := why_no_spark()) is not None:
        pytest.skip(reason)
    # Of so much one process has something to do for a second and more.
    data, segments = write_workload(tmp_path / "data", Workload(blocks=300_000, batches=300_000))
    out = tmp_path / "out"
    arguments = ["-m", "pidkeeper.cli", "audit", "run", str(data), "--segments", str(segments), "--out", str(out)]
    arguments += ["--engine", engine]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "COLUMNS": "80"}
    program = TerminalProgram(arguments, REPOSITORY, environment)
    try:
        program.wait_for(r"reading files", COMMAND_SECONDS)
        deadline = time.monotonic() + COMMAND_SECONDS
        while at_work and not list((out / "blocks").glob("*.parquet")):
            assert time.monotonic() < deadline, "no task has written blocks"
            time.sleep(0.02)
        program.press(CTRL_C)
        assert program.wait(COMMAND_SECONDS) == 130, program.screen
        assert program.wait_for_all(COMMAND_SECONDS) == []
    finally:
        program.close()
    lines = program.screen.split("\r\n")
    assert lines[-2:] == ["interrupted", ""], program.screen
    assert "Traceback" not in program.screen
    assert not {"commits", "verdict.json", "report.html"} & {path.name for path in out.iterdir()}


def test_a_stream_tells_each_finding_once_and_ends_at_a_signal(tmp_path: Path) -> None:
    members = write_quorum(tmp_path / "data")
    out = tmp_path / "out"
    command = [sys.executable, "-m", "pidkeeper.cli", "audit", "stream", str(tmp_path / "data"), "--out", str(out)]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [*command, "--engine", "local", "--every", "2"], stdout=subprocess.PIPE, text=True, env=environment
    ) as stream:
        assert stream.stdout is not None
        try:
            # So long that what is changed after a look, file by file, is whole at the next one.
            assert stream.stdout.readline().startswith("looking every 2 s")
            assert stream.stdout.readline() == "87 more blocks, 87 in all, up to ID 869; 0 new findings\n"
            for member in members:
                in_the_archive(given_twice)(member)
            told = stream.stdout.readline()
            found = [stream.stdout.readline() for _ in range(int(told.split("; ")[1].split()[0]))]
            assert [line for line in found if "violation: overlap: IDs 190 to 199" in line], found
            grow_logs(members)
            assert stream.stdout.readline().startswith("1 more blocks, 88 in all")
        finally:
            stream.send_signal(signal.SIGTERM)
        rest = stream.stdout.read()
        assert stream.wait(COMMAND_SECONDS) == 5
    assert rest.splitlines()[-1].startswith("violations: ")
    assert "IDs 190 to 199" not in rest
    verdict = json.loads((out / "verdict.json").read_text())
    assert (verdict["verdict"], verdict["blocks"]) == ("violations", 88)


@pytest.mark.parametrize("options", [["--engine", "spark"], ["--master", "local[1]"], ["--memory", "1g"]])
def test_without_java_it_says_what_to_install(options: list[str], tmp_path: Path) -> None:
    MemberFiles(tmp_path / "1").archive((0, 50))
    command = ["run", str(tmp_path / "1"), "--out", str(tmp_path / "out")]
    ran = pidkeeper(*command, *options, PATH=str(tmp_path), JAVA_HOME="")
    assert ran.returncode == 1
    assert "Java 17 or newer" in ran.stderr and "--engine local needs none" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_without_java_little_is_audited_and_of_much_it_says_what_to_install(tmp_path: Path) -> None:
    MemberFiles(tmp_path / "1").archive((5, 50))
    command = ["run", str(tmp_path / "1"), "--out", str(tmp_path / "out")]
    ran = pidkeeper(*command, PATH=str(tmp_path), JAVA_HOME="")
    assert (ran.returncode, "not seen" in ran.stderr) == (6, True), ran.stderr
    with (tmp_path / "1" / "wal" / f"{1:020}.wal").open("wb") as file:
        file.truncate(ALONE_BYTES + 1)
    ran = pidkeeper(*command, PATH=str(tmp_path), JAVA_HOME="")
    assert ran.returncode == 1
    assert "Java 17 or newer" in ran.stderr and "--engine local needs none" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyarrow" else object())
    assert session.why_no_spark() == "the audit needs pyarrow: pip install 'pidkeeper[audit]'"


def test_a_path_that_is_not_there_is_told_before_spark_starts(tmp_path: Path) -> None:
    if (reason := why_no_spark()) is not None:
        pytest.skip(reason)
    ran = pidkeeper("run", str(tmp_path / "none"), "--engine", "spark", "--out", str(tmp_path / "out"))
    assert ran.returncode == 1
    assert f"{tmp_path / 'none'}" in ran.stderr and "Traceback" not in ran.stderr
    assert not (tmp_path / "out" / "spark.log").exists()


def test_nothing_to_audit_is_a_usage_error(tmp_path: Path) -> None:
    for name in ("run", "floor"):
        ran = pidkeeper(name)
        assert ran.returncode == 2
        assert "--cluster DIR or --segments PATH" in ran.stderr
    ran = pidkeeper("run", "--cluster", str(tmp_path))
    assert ran.returncode == 2
    assert "cluster.json: No such file or directory" in ran.stderr


def test_settings_and_places_that_are_none_are_usage_errors(tmp_path: Path) -> None:
    for arguments, reason in (
        (["--conf", "spark.executor.memory"], "'spark.executor.memory' is not NAME=VALUE"),
        (["--conf", "=4g"], "is not NAME=VALUE"),
        (["--conf", "fs.defaultFS=hdfs://h"], "spark.hadoop.fs.defaultFS"),
        (["--conf", "spark.sql.adaptive.enabled=true"], "the audit needs spark.sql.adaptive.enabled=false"),
        (["--engine", "local", "--master", "local[1]"], "are for --engine spark"),
        (["--out", "hdfs://"], "hdfs:// is not a URI"),
        (["--out", "://host/x"], "://host/x is not a URI"),
    ):
        ran = pidkeeper("run", str(tmp_path), *arguments)
        assert (ran.returncode, reason in ran.stderr) == (2, True), ran.stderr
        assert "Traceback" not in ran.stderr


def test_an_output_that_cannot_be_had_ends_with_1_and_its_address(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    out = f"webhdfs://127.0.0.1:{port}/audit"
    ran = pidkeeper("report", "--out", out, TMPDIR=str(tmp_path))
    assert ran.returncode == 1
    assert f"{out}/commits cannot be read" in ran.stderr and "refused" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_help_imports_no_spark() -> None:
    program = (
        "import sys, click.testing, cli.main as main\n"
        "for name in ('run', 'stream', 'report', 'floor', 'owner'):\n"
        "    ran = click.testing.CliRunner().invoke(main.cli, ['audit', name, '--help'])\n"
        "    assert ran.exit_code == 0, ran.output\n"
        "assert not {'pyspark', 'pyarrow', 'numpy', 'plotly', 'duckdb', 'pandas', 'jinja2'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=COMMAND_SECONDS, cwd=REPOSITORY)


def test_an_audit_without_spark_imports_no_pandas(tmp_path: Path) -> None:
    write_quorum(tmp_path / "quorum")
    program = (
        "import sys, click.testing, cli.main as main\n"
        f"ran = click.testing.CliRunner().invoke(main.cli, ['audit', 'run', {str(tmp_path / 'quorum')!r}, '--out', "
        f"{str(tmp_path / 'out')!r}])\n"
        "assert ran.exit_code == 0, ran.output\n"
        "assert 'pyarrow' in sys.modules and not {'pyspark', 'pandas'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=COMMAND_SECONDS, cwd=REPOSITORY)


def test_the_floor_is_a_number_and_a_command(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.log(50, 10)
    ran = pidkeeper("floor", str(member.path), "--margin", "100")
    assert ran.returncode == 0
    assert ran.stdout.splitlines()[-1].strip() == "pidkeeper ids raise-floor 600"
    answer = json.loads(pidkeeper("floor", str(member.path), "-o", "json").stdout)
    assert (answer["highest"], answer["floor"]) == (499, 1_000_500)
    nothing = pidkeeper("floor", str(tmp_path / "1" / "archive"))
    assert nothing.returncode == 1
