from __future__ import annotations

from pathlib import Path

import msgspec
from click.testing import CliRunner

from bench.report import Report
from bench.run import run


def test_one_section_is_measured_printed_and_written(tmp_path: Path) -> None:
    result = CliRunner().invoke(run, ["--quick", "--only", "disk", "--dir", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "preallocated file" in result.output
    assert "limits.broker_allocations.per_second = 1,000,000" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]
    report = msgspec.json.decode((tmp_path / "bench.json").read_bytes(), type=Report)
    assert [row.section for row in report.rows] == ["disk", "disk"]
    assert all(row.measured > 0 and row.bar is None for row in report.rows)
    assert {"cores", "kernel", "python"} <= set(report.machine)
