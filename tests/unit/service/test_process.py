"""How a service's process starts, what ends it, and with which exit code."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import unittest
from collections.abc import Iterator

import pytest

from pidkeeper.service.process import Ending, on_violation

PROGRAM = """
import asyncio, concurrent.futures, contextlib, logging, resource, sys, threading
from pidkeeper.service.process import Ending, ServiceError, on_stop_signal, on_violation, run_module, run_service
from pidkeeper.service.settings import SettingsError

def say(text):
    print(text, flush=True)

@contextlib.asynccontextmanager
async def service(how):
    ending = Ending()
    on_stop_signal(ending.request_stop)
    loop = asyncio.get_running_loop()
    on_violation(ending.fail)
    if how in {"hang", "fail and hang"}:
        asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    if how in {"hang in a pool", "fail and hang"}:
        pool = concurrent.futures.ThreadPoolExecutor(1)
        pool.submit(threading.Event().wait)
    if how == "fail and hang":
        loop.call_later(0.01, ending.fail, OSError("the disk"))
    if how == "refuse":
        raise ServiceError("no room")
    if how == "invariant":
        loop.call_later(0.01, lambda: loop.call_exception_handler({"message": "m", "exception": AssertionError("R7")}))
    say(f"started {type(loop).__module__} {resource.getrlimit(resource.RLIMIT_NOFILE)[0]}")
    yield ending
    if how == "linger":
        say("stopping")
        await asyncio.sleep(60)
    if how == "hang in a pool":
        pool.shutdown()
    say("stopped gracefully")

def run(how):
    if how == "settings":
        raise SettingsError("no such key")
    own, seconds = logging.getLogger("own"), 0.2 if "hang" in how else 60
    log = {"log_level": "info", "log_format": "text"}
    return run_service(lambda: service(how), logger=own, **log, open_files=300, stop_seconds=seconds)

resource.setrlimit(resource.RLIMIT_NOFILE, (256, 4096))
sys.exit(run_module(str, run))
"""


STARTED: list[subprocess.Popen[str]] = []


def start(how: str, *options: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, *options, "-c", PROGRAM, how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    STARTED.append(process)
    return process


@pytest.fixture(autouse=True)
def _no_process_outlives_its_test() -> Iterator[None]:
    yield
    while STARTED:
        with STARTED.pop() as process:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_gracefully(number: signal.Signals) -> None:
    process = start("serve")
    assert process.stdout is not None
    assert process.stdout.readline() == "started uvloop 300\n"
    process.send_signal(number)
    out, log = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "stopped gracefully\n")
    assert log.endswith("INFO own stopped\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(number: signal.Signals) -> None:
    process = start("linger")
    assert process.stdout is not None
    assert process.stdout.readline() == "started uvloop 300\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "stopping\n"
    process.send_signal(number)
    out, log = process.communicate(timeout=30)
    assert (process.returncode, out) == (1, "")
    assert log.endswith("told to stop for a second time: leaving at once\n")


@pytest.mark.parametrize(("how", "said"), [("hang", "stopped gracefully\n"), ("hang in a pool", "")])
def test_a_thread_that_hangs_holds_up_a_stop_for_a_bounded_time(how: str, said: str) -> None:
    process = start(how)
    assert process.stdout is not None
    assert process.stdout.readline() == "started uvloop 300\n"
    process.send_signal(signal.SIGTERM)
    out, log = process.communicate(timeout=30)
    assert (process.returncode, out) == (1, said)
    assert log.endswith(
        "CRITICAL own not stopped within 0.2 s, something hangs: this process leaves as if it had crashed\n"
    )


def test_a_thread_that_hangs_does_not_hide_a_fault() -> None:
    process = start("fail and hang")
    _, log = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "CRITICAL own this process stops: OSError: the disk\n" in log


def test_a_start_that_cannot_be_is_one_line_and_exit_code_1() -> None:
    process = start("refuse")
    out, log = process.communicate(timeout=30)
    assert (process.returncode, out) == (1, "")
    assert log.endswith("CRITICAL own no room\n")
    assert len(log.splitlines()) == 1


def test_a_violated_invariant_ends_it_with_1_and_its_traceback() -> None:
    process = start("invariant")
    out, log = process.communicate(timeout=30)
    assert (process.returncode, out) == (1, "started uvloop 300\n")
    assert "CRITICAL own this process stops: AssertionError: R7\n" in log
    assert "Traceback" in log


def test_unusable_settings_end_it_with_2() -> None:
    process = start("settings")
    assert process.communicate(timeout=30) == ("", "no such key\n")
    assert process.returncode == 2


def test_it_does_not_run_without_assertions() -> None:
    process = start("serve", "-O")
    _, log = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "does not run with assertions switched off" in log


async def test_a_violated_invariant_alone_is_a_fault(caplog: pytest.LogCaptureFixture) -> None:
    """Not another error, nor a library's assertion, which whoever calls might cause."""
    loop, ending = asyncio.get_running_loop(), Ending()
    on_violation(ending.fail)
    loop.call_soon(int, "no number")
    loop.call_soon(unittest.TestCase().fail, "a library's")
    await asyncio.sleep(0)
    assert not ending.ended.done()
    error = AssertionError("A1: 5 does not rise")
    loop.call_exception_handler({"message": "a handler failed", "exception": error})
    assert await asyncio.wait_for(ending.ended, 10) is error
    ending.request_stop()
    assert ending.ended.result() is error, "the first word counts"
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 3
