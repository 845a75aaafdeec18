"""`python -m bench.audit`: what an audit costs, beside one process that does the same without Spark.

The single process has the same readers and the same DuckDB kernels (`--engine local`). Both run with their start, on
the same two cores, one after the other, on files that nobody but them has read before.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from bench.generate import Workload, grow_workload, write_workload
from bench.machine import Bystanders, machine_facts
from bench.process_tree import Usage, run_measured
from bench.report import Report, Row, print_report
from bench.spark_cluster import SparkCluster
from pidkeeper.cli.local_cluster import import_root
from pidkeeper.pipeline.session import DEFAULT_MEMORY, why_no_spark

CORES: Final = 2
MASTER: Final = f"local[{CORES}]"
RUN_SECONDS: Final = 2 * 3600.0
"""When a run is given up."""
SMALL: Final = Workload(blocks=3_000, batches=1_000)
"""About what the demo leaves."""
GROWTH: Final = 0.01
START_TIMES: Final = 2.0
CPU_TIMES: Final = {10_000_000: 4.0, 1_000_000: 10.0}
"""By blocks, how many times the processor time of the single process an audit by Spark may take."""
WALL_TIMES: Final = {10_000_000: 3.0}
TWICE: Final = 2.1
AGAIN: Final = 0.1
JAVA_MIB: Final = 1300.0
WORKER_MIB: Final = 1250.0
OWN_MIB: Final = 480.0
ALONE_MIB: Final = 1080.0
"""Bars for the largest JVM, the largest Python worker, the command, and the single process: a quarter above what ten
million took."""
DISTURBING_CORES: Final = 0.2
VERDICTS: Final = (0, 5, 6)
"""Exit codes of audits that came to their end."""


class AuditBench:
    """Measures in `directory`. What it finds gathers in `rows`, `violations` and `notes`."""

    def __init__(self, directory: Path) -> None:
        self.rows: list[Row] = []
        self.violations: list[str] = []
        self.notes: list[str] = []
        self.cpu_seconds = 0.0
        self._directory = directory
        self._whole: dict[Workload, Usage] = {}

    def start(self) -> None:
        """Spark's own start and end, and an audit of next to nothing."""
        click.echo("measuring: Spark's own start", err=True)
        bare = self._measured([sys.executable, "-m", "bench.spark_start", MASTER])
        write_workload(self._directory / "small", SMALL)
        small, _ = self._audit("small", ["--master", MASTER])
        ratio = small.wall_seconds / bare.wall_seconds
        self._row("small", "an audit of 3,000 blocks; floor: Spark's own start", "s", small, bare, START_TIMES, ratio)

    def load(self, load: Workload, *, cluster: bool) -> None:
        """A first audit by Spark and by the single process, and one more over a hundredth of new data.

        The latter as by default: of so little it starts no Spark.
        """
        name = f"{load.blocks // 1000}k{'-skewed' if load.skewed else ''}"
        directory = self._directory / name
        write_workload(directory, load)
        spark, verdict = self._audit(name, ["--master", MASTER])
        self._judge(name, load, verdict)
        self._memory("Java", name, spark.java_mib, JAVA_MIB)
        self._memory("the largest Python worker", name, spark.worker_mib, WORKER_MIB)
        self._memory("the command itself", name, spark.own_mib, OWN_MIB)
        local, same = self._audit(name, ["--engine", "local"], out="local")
        self._memory("the single process", name, local.own_mib, ALONE_MIB)
        if _facts(verdict) != _facts(same):
            self.violations.append(f"{name}: the engines differ")
        section = f"{load.blocks:,}{', skewed' if load.skewed else ''}"
        for what, one, other, bars in (
            ("processor time", spark.cpu_seconds, local.cpu_seconds, CPU_TIMES),
            ("wall time", spark.wall_seconds, local.wall_seconds, WALL_TIMES),
        ):
            self._figure(section, f"{what}; floor: one process", one, other, bars.get(load.blocks))
        self._whole[load] = spark
        if cluster:
            self._cluster(name, spark, verdict)
        grown = grow_workload(directory, load, GROWTH)
        again, verdict = self._audit(name, [], keep=False)
        self._judge(f"{name}, grown", grown, verdict)
        for what, one, other in (
            ("processor time", again.cpu_seconds, spark.cpu_seconds),
            ("wall time", again.wall_seconds, spark.wall_seconds),
        ):
            self._figure(section, f"{what} with 1 % more; floor: the first audit", one, other, AGAIN)
        shutil.rmtree(directory)

    def scale(self) -> None:
        """Twice the data against once, where both were measured."""
        for load, whole in self._whole.items():
            half = msgspec.structs.replace(load, blocks=load.blocks // 2, batches=load.batches // 2)
            if half in self._whole:
                name = f"processor time of {load.blocks:,}{', skewed' if load.skewed else ''}; floor: of half of it"
                self._figure("scale", name, whole.cpu_seconds, self._whole[half].cpu_seconds, TWICE)

    def _audit(
        self, name: str, options: Sequence[str], out: str = "out", *, keep: bool = True, beside: Sequence[int] = ()
    ) -> tuple[Usage, dict[str, Any]]:
        directory = self._directory / name
        command = [sys.executable, "-m", "pidkeeper.cli", "audit", "run", str(directory / "quorum"), "-o", "json"]
        command += ["--segments", str(directory / "kafka"), "--out", str(directory / out), *options]
        click.echo(f"measuring: {name} {' '.join(options)}", err=True)
        usage = self._measured(command, beside=beside)
        if not keep or out != "out":
            shutil.rmtree(directory / out)
        return usage, msgspec.json.decode(usage.output)

    def _measured(self, command: list[str], beside: Sequence[int] = ()) -> Usage:
        held = ["taskset", "-c", f"0-{CORES - 1}", *command]
        usage = run_measured(held, RUN_SECONDS, cwd=import_root(), env=os.environ, beside=beside, accepted=VERDICTS)
        self.cpu_seconds += usage.cpu_seconds
        return usage

    def _judge(self, name: str, load: Workload, verdict: dict[str, Any]) -> None:
        read = (verdict["blocks"], verdict["batches"])
        if read != (load.blocks, load.batches):
            self.violations.append(f"{name}: the audit read {read} blocks and batches of {load}")
        if verdict["verdict"] != "clean":
            unseen = "; ".join(verdict["coverage"]["unseen"])
            self.violations.append(f"{name}: {verdict['verdict']}, {verdict['violations']} violations; {unseen}")

    def _memory(self, what: str, name: str, measured: float, bar: float) -> None:
        row = Row(section="memory", name=f"{what} at {name}, peak resident", unit="MiB", measured=measured)
        self.rows.append(msgspec.structs.replace(row, bar=f"<= {bar:g}", met=measured <= bar))

    def _row(self, section: str, name: str, unit: str, one: Usage, other: Usage, bar: float, ratio: float) -> None:
        row = Row(section=section, name=name, unit=unit, measured=one.wall_seconds, floor=other.wall_seconds)
        self.rows.append(msgspec.structs.replace(row, ratio=ratio, bar=f"<= {bar:g} times", met=ratio <= bar))

    def _figure(self, section: str, name: str, one: float, other: float, bar: float | None) -> None:
        row = Row(section=section, name=name, unit="s", measured=one, floor=other, ratio=one / other)
        if bar is not None:
            row = msgspec.structs.replace(row, bar=f"<= {bar:g} times", met=one / other <= bar)
        self.rows.append(row)

    def _cluster(self, name: str, whole: Usage, expected: dict[str, Any]) -> None:
        with SparkCluster(self._directory / "cluster", workers=CORES, memory=DEFAULT_MEMORY) as spark:
            os.environ.update(spark.environment())
            usage, verdict = self._audit(name, ["--master", spark.master], out="there", beside=spark.pids)
            tasks = spark.tasks()
        if _facts(verdict) != _facts(expected):
            self.violations.append(f"{name}: the verdict of the cluster differs")
        if len(tasks) != CORES:
            self.violations.append(f"not all workers did tasks: {tasks}")
        self._figure("cluster", f"wall time of {name}; floor: {MASTER}", usage.wall_seconds, whole.wall_seconds, None)


def _facts(verdict: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in verdict.items() if name not in {"wall_seconds", "files_read_anew"}}


@click.command()
@click.option("--sizes", default="1,5,10", show_default=True, help="Millions of blocks and of batches, by comma.")
@click.option("--skewed/--no-skewed", default=True, help="Whether to measure skewed data of each size too.")
@click.option("--cluster/--no-cluster", default=True, help="Whether to run the first size on a standalone cluster too.")
@click.option("--out", default=import_root() / "build" / "bench-audit.json", type=click.Path(path_type=Path))
def run(sizes: str, skewed: bool, cluster: bool, out: Path) -> None:
    """Measure the audit on generated files. Ends with 1 if it found what is not there, or missed a row."""
    if (missing := why_no_spark()) is not None:
        raise click.ClickException(missing)
    out.parent.mkdir(parents=True, exist_ok=True)
    bystanders, started = Bystanders(), time.monotonic()
    counts = [int(float(size) * 1_000_000) for size in sizes.split(",")]
    with tempfile.TemporaryDirectory(prefix="bench-audit-", dir=out.parent) as scratch:
        machine = machine_facts(Path(scratch))
        bench = AuditBench(Path(scratch))
        bench.start()
        for uneven in (False, True) if skewed else (False,):
            for count in counts:
                load = Workload(blocks=count, batches=count, skewed=uneven)
                bench.load(load, cluster=cluster and not uneven and count == counts[0])
        bench.scale()
    # Nobody waits for the JVM of a session, so the bystanders have its time too.
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    unwaited = max(0.0, bench.cpu_seconds - children.ru_utime - children.ru_stime)
    busy = max(0.0, bystanders.cores() - unwaited / (time.monotonic() - started))
    if busy > DISTURBING_CORES:
        bench.notes.append(f"other processes kept {busy:.1f} cores busy: compare ratios, and processor time above all")
    spark = f"pyspark {version('pyspark')}, duckdb {version('duckdb')}, {_java()}"
    what = "blocks in the archives of three members, and as many batches of Kafka"
    report = Report(
        machine=machine | {"spark": spark, "cores busy with other processes": f"{busy:.2f}"},
        settings={"measured": f"{what}; one run each, one after the other; {MASTER}, heap {DEFAULT_MEMORY}"},
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
