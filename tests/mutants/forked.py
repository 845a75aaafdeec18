"""Runs one mutant's tests in a forked child: the mutated module by an import hook, pytest in process.

The parent has imported everything that does not depend on the code under test, so a child starts in milliseconds.
"""

from __future__ import annotations

import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import math
import os
import resource
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, Final

import hypothesis
import msgspec
import pytest

import pidkeeper
from tests.mutants.operators import Mutant, mutated

_OPTIONS: Final = (
    *("-x", "-q", "--assert=plain", "--tb=no", "--show-capture=no"),
    *("-p", "no:cacheprovider", "-p", "no:unraisableexception", "-p", "no:threadexception"),
)
_SHARED: Final = (
    "_hypothesis_pytestplugin",
    "asyncio",
    "google_crc32c",
    "hypothesis.stateful",
    "hypothesis.strategies",
    "pidkeeper.protocol.errors",
    "pidkeeper.protocol.ids",
    "pidkeeper.protocol.messages",
    "pidkeeper.protocol.records",
    "pytest_asyncio.plugin",
    "pytest_timeout",
    "pidkeeper.snapshots.image",
)
"""What all children need and no mutant changes."""

_MUTATED: Final = ("pidkeeper.broker_agent", "pidkeeper.controller")

NAMESPACE: Final = "pidkeeper"
"""The folder of links under which the top-level folders are imported."""

MEMORY_BYTES: Final = 2 * 1024**3
"""A mutant in an endless loop that appends is stopped by this before the machine feels it."""

LEAST_CPU_SECONDS: Final = 2.0
CPU_FACTOR: Final = 5
"""An endless loop is told from a slow test by this: no mutant that ends makes a test five times as slow."""

WALL_FACTOR: Final = 10
"""A child may take this many times its CPU limit by the clock: the machine has other work, and a child may sleep."""


class Plan(msgspec.Struct):
    """What the tests do as they are.

    `seconds`: the CPU time of each test. `lines`: the tests that execute a line of a file, by file and line.
    """

    seconds: dict[str, float]
    lines: dict[str, dict[int, set[str]]]

    def tests_of(self, file: str, first: int, last: int) -> list[str]:
        """The tests that execute any of these lines, the fastest first."""
        reached = self.lines.get(file, {})
        tests = set().union(*(reached.get(line, ()) for line in range(first, last + 1)))
        return sorted(tests, key=lambda test: (self.seconds[test], test))

    def limit(self, *tests: str) -> float:
        """The CPU seconds that `tests` may take with a mutant."""
        return LEAST_CPU_SECONDS + CPU_FACTOR * sum(self.seconds[test] for test in tests)


class _Selection:
    """Runs just the wanted tests, in the wanted order. One that takes far more CPU than it should ends the process."""

    def __init__(self, tests: Sequence[str], plan: Plan) -> None:
        self._tests = tests
        self._plan = plan

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        found = {item.nodeid: item for item in items}
        items[:] = [found[test] for test in self._tests if test in found]

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        signal.setitimer(signal.ITIMER_PROF, self._plan.limit(item.nodeid))


class _Tracing:
    """Notes which lines of the files every test executes, and how long it takes; without files just the latter."""

    def __init__(self, files: Iterable[str]) -> None:
        self._files = {str(Path.cwd() / NAMESPACE / file): file for file in files}
        self._test = ""
        self._hits: set[tuple[str, int]] = set()
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._hits = set()
        started = time.process_time()
        if self._files:
            sys.settrace(self._call)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            self.seconds[item.nodeid] = time.process_time() - started
            for file, line in self._hits:
                self.lines[self._files[file]][line].append(item.nodeid)

    def _call(self, frame: FrameType, event: str, arg: object) -> Callable[..., Any] | None:
        file = frame.f_code.co_filename
        if file not in self._files:
            return None
        hits = self._hits

        def line(frame: FrameType, event: str, arg: object) -> Callable[..., Any]:
            hits.add((file, frame.f_lineno))
            return line

        hits.add((file, frame.f_lineno))
        return line


class _Hook(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives the module `name` other code."""

    def __init__(self, name: str, code: CodeType) -> None:
        self._name = name
        self._code = code

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(name, self._code.co_filename, loader=self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, module.__dict__)


def module_name(file: str) -> str:
    """The module that is kept in `file`."""
    return f"{NAMESPACE}.{file.removesuffix('.py').replace('/', '.')}"


def warm_up(tree: Path) -> None:
    """Import what the children share, and let them take everything else from the copy `tree`. Before any fork.

    Raises RuntimeError if this process has imported what is to be mutated: its children would never see a mutant.
    """
    loaded = [name for name in sys.modules if name.startswith(_MUTATED)]
    if loaded:
        raise RuntimeError(f"mutants need a process that has not imported {loaded[0]}")
    sys.pycache_prefix, sys.dont_write_bytecode = str(tree / ".compiled"), False
    for name in _SHARED:
        importlib.import_module(name)
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile(
        "mutants", database=None, derandomize=True, deadline=None, phases=phases, report_multiple_bugs=False
    )
    gc.collect()
    gc.freeze()


def fork_tests(tree: Path, mutant: Mutant, source: str, tests: Sequence[str], plan: Plan) -> int:
    """Start the child that runs `tests`, in this order, with `mutant` of a module's `source`; its process id.

    It exits with pytest's code, or is killed by SIGPROF, SIGXCPU or the caller.
    """
    pid = os.fork()
    if pid:
        return pid
    code_of_exit = 3
    try:
        _limit(math.ceil(plan.limit(*tests)))
        _enter(tree)
        code = mutated(source, mutant.number, str(tree / NAMESPACE / mutant.file))
        sys.meta_path.insert(0, _Hook(module_name(mutant.file), code))
        code_of_exit = _pytest(sorted({test.partition("::")[0] for test in tests}), [_Selection(tests, plan)])
    finally:
        os._exit(code_of_exit)


def measured(tree: Path, files: Sequence[str], paths: Sequence[str]) -> Plan:
    """Run all tests in `paths`, and see how long each takes and which lines of `files` it executes.

    Raises RuntimeError if they do not pass as they are.
    """
    lines = _measured_child(tree, files, paths).lines
    if not lines:
        raise RuntimeError(f"the tests in {' '.join(paths)} execute nothing of {' '.join(files)}")
    return Plan(_measured_child(tree, (), paths).seconds, lines)


def _measured_child(tree: Path, files: Sequence[str], paths: Sequence[str]) -> Plan:
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reader)
        code = 3
        try:
            _enter(tree)
            tracing = _Tracing(files)
            code = _pytest(list(paths), [tracing])
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(json.dumps({"seconds": tracing.seconds, "lines": tracing.lines}).encode())
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise RuntimeError(f"the tests in {' '.join(paths)} do not pass without a mutation: run them by pytest")
    return msgspec.json.decode(data, type=Plan)


def _pytest(paths: list[str], plugins: list[object]) -> int:
    hypothesis.settings.load_profile("mutants")
    return int(pytest.main([*_OPTIONS, *paths], plugins=plugins))


def _limit(cpu_seconds: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)


def _enter(tree: Path) -> None:
    """Work in the copy, and silently."""
    os.chdir(tree)
    sys.path.insert(0, str(tree))
    # The package itself was imported by the parent, with what no mutant changes.
    pidkeeper.__path__ = [str(tree / NAMESPACE)]
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
