"""`python -m bench.audit`: the audit at scale, beside a plain read, one process without Spark, and Kafka's own tool."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from bench.generate import Workload, write_workload
from bench.machine import Bystanders, machine_facts
from bench.process_tree import Usage, run_measured
from bench.raw_read import RawRead
from bench.report import Report, Row, print_report
from bench.single_reader import Found
from bench.spark_cluster import SparkCluster
from pidkeeper.cli.local_cluster import import_root
from pidkeeper.pipeline.session import DEFAULT_MEMORY, why_no_spark

LOCAL: Final = "local[2]"
KAFKA: Final = import_root() / ".tools" / "kafka"
RUN_SECONDS: Final = 4 * 3600.0
"""When a run is given up. A million of each took four minutes on two busy cores."""
WORKER_MIB: Final = 512.0
"""Bar for a Python worker: an archive file (48 MiB) as read, as rows, as columns and as Arrow, and the interpreter with
numpy and pyarrow; a segment takes less, 4 MiB and 65,536 headers at a time."""
HEAP_MIB: Final = 1024.0 * int(DEFAULT_MEMORY.removesuffix("g"))
BESIDES_MIB: Final = HEAP_MIB + 512.0
"""What Java may take besides its heap: buffers outside of it, which the JVM bounds by the heap's size unless it is told
otherwise (MaxDirectMemorySize), and classes, compiled code and threads."""
WORKERS: Final = 2
DISTURBING_CORES: Final = 0.2
_UNEQUAL: Final = frozenset({"wall_seconds"})


class AuditBench:
    """Measures in `directory`. What it finds gathers in `rows`, `violations` and `notes`, its time in `cpu_seconds`."""

    def __init__(self, directory: Path, load: Workload) -> None:
        self.rows: list[Row] = []
        self.violations: list[str] = []
        self.notes: list[str] = []
        self.cpu_seconds = 0.0
        self._directory = directory
        self._load = load
        self._quorum, self._kafka = write_workload(directory / "whole", load)

    def measure(self, *, half: bool, cluster: bool) -> None:
        """Everything, the whole audit first."""
        whole, verdict = self._audit("audit", self._quorum, self._kafka)
        self._judge(verdict)
        self._memory(whole)
        self._against("read by Spark alone", whole, self._raw_read())
        self._against("one process without Spark", whole, self._single_reader())
        self._dump_tool(whole)
        if half:
            self._half(whole)
        if cluster:
            self._cluster(whole, verdict)

    def _audit(
        self, name: str, quorum: Path, kafka: Path, master: str = LOCAL, spark: SparkCluster | None = None
    ) -> tuple[Usage, dict[str, Any]]:
        out = self._directory / name
        command = [*_python("cli"), "audit", "run", str(quorum), "--segments", str(kafka)]
        command += ["--master", master, "--memory", DEFAULT_MEMORY, "--out", str(out), "--output", "json"]
        env = dict(os.environ) if spark is None else spark.environment()
        beside = [] if spark is None else spark.pids
        click.echo(f"measuring: {name}", err=True)
        usage = self._measured(command, env, beside, accepted=(0, 5, 6))
        shutil.rmtree(out)
        return usage, msgspec.json.decode(usage.output)

    def _judge(self, verdict: dict[str, Any]) -> None:
        read = (verdict["blocks"], verdict["batches"])
        if read != (self._load.blocks, self._load.batches):
            self.violations.append(f"the audit read {read} blocks and batches of {self._load}")
        if verdict["verdict"] != "clean":
            unseen = "; ".join(verdict["coverage"]["unseen"])
            self.violations.append(f"the verdict is {verdict['verdict']}, {verdict['violations']} violations; {unseen}")

    def _memory(self, usage: Usage) -> None:
        remark = f"heap {DEFAULT_MEMORY}, and what Java needs besides it"
        for name, measured, bar, told in (
            ("Java of the audit", usage.java_mib, HEAP_MIB + BESIDES_MIB, remark),
            ("largest Python worker", usage.worker_mib, WORKER_MIB, ""),
        ):
            row = _row("memory", f"{name}, peak resident", "MiB", measured, remark=told)
            self.rows.append(msgspec.structs.replace(row, bar=f"<= {bar:g}", met=measured <= bar))

    def _against(self, name: str, whole: Usage, floor: Usage) -> None:
        remark = f"{floor.own_mib:,.0f} MiB in its own process" if not floor.java_mib else ""
        self.rows.append(
            _row("audit", f"wall time; floor: {name}", "s", whole.wall_seconds, floor.wall_seconds, remark)
        )
        self.rows.append(_row("audit", f"processor time; floor: {name}", "s", whole.cpu_seconds, floor.cpu_seconds))

    def _raw_read(self) -> Usage:
        usage = self._run("bench.raw_read")
        seconds = msgspec.json.decode(usage.output, type=RawRead)
        rows = self._load.blocks * self._load.members
        for name, count, took in (
            ("blocks of all members", rows, seconds.archive_seconds),
            ("batches", self._load.batches, seconds.segment_seconds),
        ):
            self.rows.append(_row("read", f"{name}, read by Spark alone", "rows/s", count / took))
        return usage

    def _single_reader(self) -> Usage:
        usage = self._run("bench.single_reader")
        found = msgspec.json.decode(usage.output, type=Found)
        if found != Found(blocks=self._load.blocks, batches=self._load.batches):
            self.violations.append(f"the single process found {found}")
        return usage

    def _run(self, module: str) -> Usage:
        click.echo(f"measuring: {module}", err=True)
        command = [*_python(module), str(self._quorum), str(self._kafka)]
        return self._measured(command, os.environ)

    def _measured(
        self, command: list[str], env: Mapping[str, str], beside: Sequence[int] = (), accepted: Sequence[int] = (0,)
    ) -> Usage:
        usage = run_measured(command, RUN_SECONDS, cwd=import_root(), env=env, beside=beside, accepted=accepted)
        self.cpu_seconds += usage.cpu_seconds
        return usage

    def _dump_tool(self, whole: Usage) -> None:
        if (reason := _why_no_dump_tool()) is not None:
            self.notes.append(f"not compared with Kafka's dump tool: {reason}")
            return
        segment = min(self._kafka.glob("*-*/*.log"))
        tool = ["java", "-Xmx256m", "-cp", f"{KAFKA}/*", "org.apache.kafka.tools.DumpLogSegments"]
        click.echo("measuring: Kafka's dump tool", err=True)
        # What it prints would be more than the headers themselves: to a file, as anybody would.
        command = ["sh", "-c", 'exec "$@" >/dev/null', "dump", *tool, "--files", str(segment)]
        usage = self._measured(command, os.environ)
        total = sum(path.stat().st_size for path in self._kafka.glob("*-*/*.log"))
        scale = total / segment.stat().st_size
        remark = f"read {segment.stat().st_size >> 20} of {total >> 20} MiB, times {scale:.1f}; checks nothing but CRCs"
        name = "processor time; floor: Kafka's dump tool, of the segments alone"
        self.rows.append(_row("audit", name, "s", whole.cpu_seconds, usage.cpu_seconds * scale, remark))

    def _half(self, whole: Usage) -> None:
        load = msgspec.structs.replace(self._load, blocks=self._load.blocks // 2, batches=self._load.batches // 2)
        directory = self._directory / "half"
        usage, _ = self._audit("audit-of-half", *write_workload(directory, load))
        shutil.rmtree(directory)
        remark = "the floor is twice the time of half of the data"
        for name, all_of_it, one_half in (
            ("wall time", whole.wall_seconds, usage.wall_seconds),
            ("processor time", whole.cpu_seconds, usage.cpu_seconds),
        ):
            self.rows.append(_row("scale", f"{name} of the whole", "s", all_of_it, 2 * one_half, remark))

    def _cluster(self, whole: Usage, expected: dict[str, Any]) -> None:
        with SparkCluster(self._directory / "cluster", workers=WORKERS, memory=DEFAULT_MEMORY) as spark:
            usage, verdict = self._audit("audit-on-cluster", self._quorum, self._kafka, spark.master, spark)
            tasks = spark.tasks()
        different = [name for name in expected if name not in _UNEQUAL and verdict[name] != expected[name]]
        if different:
            self.violations.append(f"the verdict of the cluster differs in {', '.join(different)}")
        if len(tasks) != WORKERS:
            self.violations.append(f"not all workers did tasks: {tasks}")
        done = ", ".join(f"{name} {count}" for name, count in sorted(tasks.items()))
        remark = f"two standalone workers of one core; tasks: {done}"
        self.rows.append(
            _row("cluster", f"wall time; floor: {LOCAL}", "s", usage.wall_seconds, whole.wall_seconds, remark)
        )
        self.rows.append(_row("cluster", "largest executor or driver, peak resident", "MiB", usage.java_mib))


def _python(module: str) -> list[str]:
    return [sys.executable, "-m", module]


def _row(section: str, name: str, unit: str, measured: float, floor: float | None = None, remark: str = "") -> Row:
    """A figure without a bar; the ratio is how much of the floor's speed is reached."""
    ratio = None if floor is None else floor / measured
    return Row(section=section, name=name, unit=unit, measured=measured, floor=floor, ratio=ratio, remark=remark)


def _why_no_dump_tool() -> str | None:
    if shutil.which("java") is None:
        return "there is no java on PATH"
    if not list(KAFKA.glob("kafka_2.13-*.jar")):
        return ".tools/kafka is empty; tools/fetch-jars kafka fills it with Maven"
    return None


@click.command()
@click.option("--blocks", default=10_000_000, show_default=True, type=click.IntRange(1000))
@click.option("--batches", default=10_000_000, show_default=True, type=click.IntRange(1000))
@click.option("--members", default=3, show_default=True, type=click.IntRange(1, 9), help="Each has all blocks.")
@click.option("--half/--no-half", default=True, help="Whether to run with half of the data too.")
@click.option("--cluster/--no-cluster", default=True, help="Whether to run on a standalone cluster too.")
@click.option("--out", default=import_root() / "build" / "bench-audit.json", type=click.Path(path_type=Path))
def run(blocks: int, batches: int, members: int, half: bool, cluster: bool, out: Path) -> None:
    """Measure the audit on generated files. Ends with 1 if it found what is not there, or missed a row."""
    if (missing := why_no_spark()) is not None:
        raise click.ClickException(missing)
    out.parent.mkdir(parents=True, exist_ok=True)
    bystanders, started = Bystanders(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-audit-", dir=out.parent) as scratch:
        machine = machine_facts(Path(scratch))
        bench = AuditBench(Path(scratch), Workload(blocks=blocks, batches=batches, members=members))
        bench.measure(half=half, cluster=cluster)
    # Nobody waits for the JVM of a session, so the bystanders have its time too.
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    unwaited = max(0.0, bench.cpu_seconds - children.ru_utime - children.ru_stime)
    busy = max(0.0, bystanders.cores() - unwaited / (time.monotonic() - started))
    if busy > DISTURBING_CORES:
        bench.notes.append(f"other processes kept {busy:.1f} cores busy: compare ratios, and processor time above all")
    spark = f"pyspark {version('pyspark')}, {_java()}"
    what = f"{blocks:,} blocks in the archives of {members} members, {batches:,} batches of Kafka"
    report = Report(
        machine=machine | {"spark": spark, "cores busy with other processes": f"{busy:.2f}"},
        settings={"measured": f"{what}; one run each, one after the other; {LOCAL}, heap {DEFAULT_MEMORY}"},
        rows=bench.rows,
        violations=bench.violations,
        notes=bench.notes,
    )
    out.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    print_report(report)
    sys.exit(1 if report.violations else 0)


def _java() -> str:
    banner = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=30.0, check=False).stderr
    return banner.partition("\n")[0]


if __name__ == "__main__":
    run()
