"""What is preloaded: where connections go, and what syncs come to, in real processes that know nothing of it."""

from __future__ import annotations

import contextlib
import errno
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.shim import build
from tests.chaos.shim.build import why_no_shim
from tests.chaos.shim.control import Effect, SyncFault
from tests.chaos.shim.preload import CONTROL, Shim
from tests.chaos.stage import preloaded
from tests.support.cluster import wait_until

HOST = "127.0.0.1"
NOBODY = 9
"""The port `discard`, on which nobody listens."""

pytestmark = pytest.mark.skipif(why_no_shim() is not None, reason=str(why_no_shim()))

PROGRAM = """
import ctypes, errno, json, os, socket, subprocess, sys, threading, time

def connected(family, host, port, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as one:
        one.settimeout(10)
        error = one.connect_ex((host, port))
        return [error, one.getpeername()[1] if error == 0 else 0]

def connected_without_waiting(host, port):
    with socket.socket() as one:
        one.setblocking(False)
        first = one.connect_ex((host, port))
        import select
        select.select([], [one], [], 10)
        return [first, one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), one.getpeername()[1]]

def synced(call, path):
    handle = os.open(path, os.O_RDONLY)
    try:
        begun = time.monotonic()
        call(handle)
        return time.monotonic() - begun
    except OSError as error:
        return error.errno
    finally:
        os.close(handle)

def written(path, *flags):
    handle = os.open(path, os.O_RDWR)
    try:
        return os.pwritev(handle, [b"synced ", b"data"], 0, *flags)
    except OSError as error:
        return -error.errno
    finally:
        os.close(handle)

def removed(path):
    try:
        os.unlink(path)
    except OSError as error:
        return error.errno
    return 0

def in_fork(call):
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, json.dumps(call()).encode())
        os._exit(0)
    os.wait()
    return json.loads(os.read(reader, 4096))

def at_once(count, call):
    found = []
    threads = [threading.Thread(target=lambda: found.append(call())) for _ in range(count)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return found

for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)
"""


class Process:
    """A Python process that evaluates what it is told, with the library preloaded."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            [*command, sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, expression: str) -> Any:
        self.begin(expression)
        return self.answer()

    def begin(self, expression: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(expression + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process ended"
        return json.loads(line)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def started(command: list[str]) -> Iterator[Process]:
    process = Process(command)
    try:
        yield process
    finally:
        process.end()


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Shim:
    return Shim(tmp_path_factory.mktemp("shim"))


@pytest.fixture(scope="module")
def process(shim: Shim) -> Iterator[Process]:
    with started(preloaded("one", (shim,))) as found:
        yield found


@pytest.fixture
def listener() -> Iterator[int]:
    """A port on which somebody listens."""
    with socket.create_server((HOST, 0), backlog=64) as server:
        yield server.getsockname()[1]


def routed(shim: Shim, port: int, to: int) -> int:
    """Route the process; returns how many connects it made there before."""
    shim.control("one").route(port, to)
    return shim.control("one").connects(port)


@pytest.mark.parametrize(("family", "host"), [("AF_INET", HOST), ("AF_INET6", "::1"), ("AF_INET6", "::ffff:127.0.0.1")])
def test_a_connect_goes_where_its_port_is_routed_to(
    shim: Shim, process: Process, listener: int, family: str, host: str
) -> None:
    if family == "AF_INET6" and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    before = routed(shim, NOBODY, listener)
    assert process.ask(f"connected(socket.{family}, {host!r}, {NOBODY})") == [0, listener]
    assert shim.control("one").connects(NOBODY) == before + 1


def test_a_route_may_change_and_end_while_the_process_runs(shim: Shim, process: Process, listener: int) -> None:
    routed(shim, NOBODY, listener)
    assert process.ask(f"connected(socket.AF_INET, {HOST!r}, {NOBODY})")[0] == 0
    before = routed(shim, NOBODY, 0)
    assert process.ask(f"connected(socket.AF_INET, {HOST!r}, {NOBODY})") == [errno.ECONNREFUSED, 0]
    assert shim.control("one").connects(NOBODY) == before


def test_a_connect_that_does_not_wait_still_does_not(shim: Shim, process: Process, listener: int) -> None:
    routed(shim, NOBODY, listener)
    assert process.ask(f"connected_without_waiting({HOST!r}, {NOBODY})") == [errno.EINPROGRESS, 0, listener]


def test_other_hosts_and_datagrams_go_where_they_always_went(shim: Shim, process: Process, listener: int) -> None:
    before = routed(shim, NOBODY, listener)
    assert process.ask(f"connected(socket.AF_INET, '127.0.0.2', {NOBODY})") == [errno.ECONNREFUSED, 0]
    assert process.ask(f"connected(socket.AF_INET, {HOST!r}, {NOBODY}, socket.SOCK_DGRAM)") == [0, NOBODY]
    assert shim.control("one").connects(NOBODY) == before


def test_children_go_the_same_way_forked_or_executed(shim: Shim, process: Process, listener: int) -> None:
    before = routed(shim, NOBODY, listener)
    here = f"connected(socket.AF_INET, {HOST!r}, {NOBODY})"
    assert process.ask(f"in_fork(lambda: {here})") == [0, listener]
    child = f"import socket; print(socket.create_connection(({HOST!r}, {NOBODY})).getpeername()[1])"
    assert process.ask(f"subprocess.run([sys.executable, '-c', {child!r}], capture_output=True).stdout.decode()") == (
        f"{listener}\n"
    )
    assert shim.control("one").connects(NOBODY) == before + 2


def test_every_process_has_its_own_routes(shim: Shim, process: Process, listener: int) -> None:
    routed(shim, NOBODY, listener)
    with started(preloaded("other", (shim,))) as other:
        assert other.ask(f"connected(socket.AF_INET, {HOST!r}, {NOBODY})") == [errno.ECONNREFUSED, 0]


def test_a_process_that_comes_again_finds_what_it_was_told(shim: Shim, listener: int) -> None:
    shim.control("again").route(NOBODY, listener)
    for count in (1, 2):
        with started(preloaded("again", (shim,))) as again:
            assert again.ask(f"connected(socket.AF_INET, {HOST!r}, {NOBODY})") == [0, listener]
        assert shim.control("again").connects(NOBODY) == count


@pytest.mark.parametrize("content", [None, b"", b"torn", bytes(393_320)], ids=["none", "empty", "torn", "no magic"])
def test_without_a_whole_control_file_all_is_as_ever(shim: Shim, tmp_path: Path, content: bytes | None) -> None:
    control, file = tmp_path / "control", tmp_path / "file"
    file.write_bytes(b"data")
    if content is not None:
        control.write_bytes(content)
    with started(["env", f"LD_PRELOAD={shim.library}", f"{CONTROL}={control}"]) as process:
        assert process.ask(f"connected(socket.AF_INET, {HOST!r}, {NOBODY})") == [errno.ECONNREFUSED, 0]
        assert process.ask(f"synced(os.fdatasync, {str(file)!r})") < 10
    assert content is None or control.read_bytes() == content


# Syncs.


@pytest.fixture(params=["fdatasync", "fsync"])
def call(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def fault(shim: Shim, call: str) -> Iterator[SyncFault]:
    found: SyncFault = getattr(shim.control("one"), call)
    yield found
    found.heal()


def test_the_next_syncs_fail_and_no_others(process: Process, fault: SyncFault, call: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"data")
    synced = f"synced(os.{call}, {str(tmp_path / 'file')!r})"
    hit, calls = fault.hit, fault.calls
    fault.set(Effect.FAILS, calls=2, error=errno.EIO)
    assert [process.ask(synced) for _ in range(2)] == [errno.EIO, errno.EIO]
    assert process.ask(synced) < 10
    assert (fault.hit - hit, fault.calls - calls, fault.left) == (2, 3, 0)


def test_threads_take_what_is_left_of_a_fault_once_each(process: Process, fault: SyncFault, call: str) -> None:
    hit = fault.hit
    fault.set(Effect.FAILS, calls=20, error=errno.ENOSPC)
    found = process.ask(f"at_once(32, lambda: synced(os.{call}, sys.executable))")
    assert sorted(one == errno.ENOSPC for one in found) == [False] * 12 + [True] * 20
    assert fault.hit - hit == 20


def test_a_sync_that_stalls_takes_longer_and_is_done(
    process: Process, fault: SyncFault, call: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"data")
    fault.set(Effect.STALLS, seconds=0.2)
    took = process.ask(f"synced(os.{call}, {str(tmp_path / 'file')!r})")
    assert isinstance(took, float) and took >= 0.2


def test_a_sync_that_hangs_goes_on_when_it_is_healed(
    process: Process, fault: SyncFault, call: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"data")
    hit = fault.hit
    fault.set(Effect.HANGS)
    process.begin(f"at_once(2, lambda: synced(os.{call}, {str(tmp_path / 'file')!r}))")
    wait_until(lambda: fault.hit - hit == 2, "both threads to hang")
    fault.heal()
    assert all(isinstance(took, float) for took in process.answer())
    assert process.ask(f"synced(os.{call}, {str(tmp_path / 'file')!r})") < 10
    assert fault.hit - hit == 2


def test_a_new_hang_does_not_keep_those_of_the_one_before(process: Process, fault: SyncFault, call: str) -> None:
    hit = fault.hit
    fault.set(Effect.HANGS)
    process.begin(f"synced(os.{call}, sys.executable)")
    wait_until(lambda: fault.hit > hit, "the sync to hang")
    fault.heal()
    fault.set(Effect.HANGS)
    assert process.answer() is not None


def test_a_directory_is_hit_and_a_pipe_is_not(process: Process, shim: Shim, tmp_path: Path) -> None:
    fault = shim.control("one").fsync
    fault.set(Effect.FAILS, error=errno.EIO)
    try:
        calls = fault.calls
        assert process.ask(f"synced(os.fsync, {str(tmp_path)!r})") == errno.EIO
        assert process.ask("ctypes.CDLL(None, use_errno=True).fsync(os.pipe()[0])") == -1
        assert fault.calls - calls == 1
    finally:
        fault.heal()


def test_one_call_fails_and_the_other_does_not(process: Process, shim: Shim) -> None:
    shim.control("one").fsync.set(Effect.FAILS, error=errno.EIO)
    try:
        assert process.ask("synced(os.fdatasync, sys.executable)") < 10
    finally:
        shim.control("one").fsync.heal()


def test_a_write_that_is_synced_is_hit_and_another_one_is_not(process: Process, shim: Shim, tmp_path: Path) -> None:
    path, fault = tmp_path / "file", shim.control("one").fdatasync
    path.touch()
    try:
        calls = fault.calls
        fault.set(Effect.FAILS, calls=1, error=errno.ENOSPC)
        assert process.ask(f"written({str(path)!r})") == 11
        assert process.ask(f"written({str(path)!r}, os.RWF_DSYNC)") == -errno.ENOSPC
        assert process.ask(f"written({str(path)!r}, os.RWF_DSYNC)") == 11
        assert (fault.calls - calls, path.read_bytes()) == (2, b"synced data")
    finally:
        fault.heal()


def test_a_removal_stalls_or_fails_and_the_name_is_there_meanwhile(
    process: Process, shim: Shim, tmp_path: Path
) -> None:
    path, fault = tmp_path / "file", shim.control("one").unlink
    path.touch()
    try:
        fault.set(Effect.FAILS, calls=1, error=errno.EIO)
        assert process.ask(f"removed({str(path)!r})") == errno.EIO
        hit = fault.hit
        fault.set(Effect.HANGS)
        process.begin(f"removed({str(path)!r})")
        wait_until(lambda: fault.hit > hit, "the removal to hang")
        assert path.exists()
        fault.heal()
        assert process.answer() == 0
        assert not path.exists()
    finally:
        fault.heal()


# The build.


def test_the_library_is_built_once_for_one_source(shim: Shim) -> None:
    built = shim.library.stat().st_mtime_ns
    assert build.build(shim.library.parent) == shim.library
    assert shim.library.stat().st_mtime_ns == built


def test_a_source_that_does_not_compile_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "shim.c"
    source.write_text("int connect(")
    monkeypatch.setattr(build, "SOURCE", source)
    with pytest.raises(RuntimeError, match=r"does not build shim\.c"):
        build.build(tmp_path)
    assert list(tmp_path.iterdir()) == [source]


def test_without_a_compiler_the_reason_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    assert "no C compiler is on PATH (cc, gcc, clang)" in str(build.why_no_shim())
    with pytest.raises(RuntimeError, match="no C compiler"):
        build.build(tmp_path)
