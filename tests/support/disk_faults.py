"""Disks that fail on demand. What needs a right or a tool that is not there is skipped, with the reason."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import wait_until


@contextlib.contextmanager
def small_disk(path: Path, size: str) -> Iterator[Path]:
    """A tmpfs of `size` (like `6m`) mounted at `path`."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs takes root")
    path.mkdir(parents=True, exist_ok=True)
    mounted = _run("mount", "-t", "tmpfs", "-o", f"size={size}", "pidkeeper-test", str(path))
    if mounted.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        # Lazily: a member that is still ending may hold a file of it.
        _run("umount", "--lazy", str(path))


def remount(path: Path, option: str) -> None:
    """Remount with `option`, `ro` or `rw`."""
    result = _run("mount", "-o", f"remount,{option}", str(path))
    assert result.returncode == 0, result.stderr


def fill(path: Path, *, leave: int) -> Path:
    """Fill the file system of `path` up to `leave` bytes; returns the file that does it."""
    filler = path / "filler"
    free = shutil.disk_usage(path).free - leave
    assert free > 0, f"only {free + leave} bytes are free in {path}"
    filler.write_bytes(bytes(free))
    return filler


@contextlib.contextmanager
def failing_sync(pid: int, trace: Path, *, when: str) -> Iterator[None]:
    """Let fdatasync of process `pid` return EIO, at the calls that strace's `when` names (`3`, or `1+` for all)."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed: no fdatasync can be made to fail")
    command = ["strace", "-f", "-qq", "-o", str(trace), "-e", "trace=fdatasync"]
    command += ["-e", f"inject=fdatasync:error=EIO:when={when}", "-p", str(pid)]
    tracer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        tasks = Path(f"/proc/{pid}/task")
        wait_until(lambda: tracer.poll() is not None or _all_traced(tasks), f"strace to attach to all of {pid}")
        if tracer.poll() is not None and tracer.stderr is not None:
            pytest.skip(f"strace cannot attach: {tracer.stderr.read().decode().strip()}")
        yield
    finally:
        tracer.terminate()
        tracer.communicate()


def _all_traced(tasks: Path) -> bool:
    return all("TracerPid:\t0\n" not in (task / "status").read_text() for task in tasks.iterdir())


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
