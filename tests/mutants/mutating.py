"""Mutation testing of the pure packages: every mutant against the tests that execute its line."""

from __future__ import annotations

import difflib
import os
import random
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from tests.mutants.anchors import is_suffix
from tests.mutants.forked import WALL_FACTOR, Plan, fork_tests, measured, warm_up
from tests.mutants.operators import Mutant, mutants
from tests.mutants.planted import ROOT, copy_tree

EXPLANATIONS: Final = Path(__file__).with_name("survivors.toml")
QUICK_SHARE: Final = 0.1
QUICK_SEED: Final = 1
MutantKey = tuple[str, str, str, int]
Fate = Literal["caught", "timed out", "survived"]


class Target(msgspec.Struct, frozen=True):
    """Files to mutate, and the tests that answer for them."""

    name: str
    files: tuple[str, ...]
    tests: tuple[str, ...]


def targets() -> list[Target]:
    """What is mutated: the consensus core, the replicated state, the pure part of the migration, the leader's side of a
    member, who gives way at a listener, the reserve and the prefetch policy."""
    return [
        Target("raft", _sources("controller/raft"), ("tests/unit/controller/raft", "tests/raft_paper")),
        Target("state", _sources("controller/state"), ("tests/unit/controller/state",)),
        Target(
            "migration",
            ("controller/migration/claims.py", "controller/migration/steps.py", "controller/migration/znode.py"),
            _tests(
                "controller/migration",
                ("claims", "claims_interrupted", "member_side", "migration_model", "steps", "znode"),
            ),
        ),
        Target(
            "node",
            tuple(
                f"controller/node/{name}.py"
                for name in ("founding_gate", "leadership", "decider", "own_ids_duty", "proposals", "snapshot_due")
            ),
            _tests(
                "controller/node",
                ("founding_gate_alone", "leadership", "decider", "own_ids_duty", "proposals", "snapshot_due"),
            ),
        ),
        Target(
            "listeners",
            tuple(f"service/{name}.py" for name in ("patience", "places", "shared_bytes")),
            ("tests/unit/service/test_places.py",),
        ),
        Target(
            "agent",
            ("broker_agent/backoff.py", "broker_agent/ids/reserve.py", "broker_agent/ids/prefetch.py"),
            _tests("broker_agent", ("reserve", "prefetch")),
        ),
    ]


def _sources(folder: str) -> tuple[str, ...]:
    return tuple(str(path.relative_to(ROOT)) for path in sorted((ROOT / folder).rglob("*.py")))


def _tests(folder: str, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"tests/unit/{folder}/test_{name}.py" for name in names)


class Explanation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a mutant survives. `kind`: "equivalent", no test can tell it; "harmless", it breaks no promise.

    `function` is a dotted suffix of the mutant's that is unique in the target; `code`, `mutation` and `occurrence` are
    the mutant's (`operators.Mutant`).
    """

    target: str
    function: str
    code: str
    mutation: str
    kind: Literal["equivalent", "harmless"]
    why: str
    occurrence: int = 1

    @property
    def place(self) -> str:
        """What it is about, for reading."""
        number = "" if self.occurrence == 1 else f" #{self.occurrence}"
        return f"{self.target} | {self.function} | {self.code} | {self.mutation}{number}"


class Explained(msgspec.Struct, frozen=True):
    """The explanations of one target: by the key of their mutant, and, with the reason, those that have none."""

    known: dict[MutantKey, Explanation]
    unfit: list[str]


def explained(target: Target, every: Iterable[Mutant], said: Iterable[Explanation]) -> Explained:
    """What is `said` of `every` mutant of `target`. Raises ValueError if it is said twice."""
    keys = {mutant.key for mutant in every}
    functions = {key[0] for key in keys}
    known: dict[MutantKey, Explanation] = {}
    unfit = []
    for one in said:
        if one.target != target.name:
            continue
        found = sorted(name for name in functions if is_suffix(one.function, name))
        key = (found[0] if found else "", one.code, one.mutation, one.occurrence)
        if len(found) > 1:
            unfit.append(f"{one.place}: the function may be {' or '.join(found)}: name more of it")
        elif key not in keys:
            where = f"{found[0]} has no such mutant" if found else "no function is called that"
            unfit.append(f"{one.place}: {where}: {_similar(key, keys)}")
        elif key in known:
            raise ValueError(f"{EXPLANATIONS.name} explains twice: {one.place}")
        else:
            known[key] = one
    return Explained(known, unfit)


def explanations() -> list[Explanation]:
    """What survivors.toml says."""
    data = tomllib.loads(EXPLANATIONS.read_text(encoding="utf-8"))
    return msgspec.convert(data.get("survivor", []), list[Explanation])


def _similar(key: MutantKey, keys: Iterable[MutantKey]) -> str:
    """Where the code of an explanation may be now."""
    function, code, mutation, _ = key
    there = {other[1] for other in keys if other[0] == function and other[2] == mutation}
    elsewhere = {other[0] for other in keys if other[1:3] == (code, mutation)}
    near = difflib.get_close_matches(code, there, n=3, cutoff=0.4)
    hints = [f"it has {near}"] if near else []
    hints += [f"{sorted(elsewhere)} has one: has the code moved?"] if elsewhere else []
    return "; ".join(hints) or "drop the explanation, or write it anew"


class Survivor(msgspec.Struct, frozen=True):
    """A mutant that no test noticed. `tests`: how many executed its line."""

    file: str
    line: int
    function: str
    code: str
    mutation: str
    tests: int
    kind: str
    why: str


class Score(msgspec.Struct):
    """The outcome for one target. `equivalent` and `harmless` are the explained survivors; `stale` explanations are
    about mutants that do not exist or were caught."""

    target: str
    mutants: int
    caught: int
    timed_out: int
    equivalent: int
    harmless: int
    survivors: list[Survivor]
    stale: list[str]
    seconds: float

    @property
    def score(self) -> float:
        """Caught mutants (those that ran out of time included) of all that are not equivalent."""
        total = self.mutants - self.equivalent
        return (self.caught + self.timed_out) / total if total else 1.0


def run_mutation(target: Target, *, jobs: int, quick: bool = False) -> Score:
    """Run the mutants of `target`, or a seeded sample of them if `quick`."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder).resolve()
        copy_tree(ROOT, tree)
        warm_up(tree)
        return _run_mutation(tree, target, jobs, quick)


def _run_mutation(tree: Path, target: Target, jobs: int, quick: bool) -> Score:
    started = time.monotonic()
    plan = measured(tree, target.files, target.tests)
    sources = {file: (tree / file).read_text(encoding="utf-8") for file in target.files}
    every = [mutant for file, source in sources.items() for mutant in mutants(file, source)]
    chosen = every
    if quick:
        chosen = random.Random(QUICK_SEED).sample(every, max(1, int(len(every) * QUICK_SHARE)))
    fates: dict[MutantKey, Fate] = {}
    survivors = []
    known, unfit = msgspec.structs.astuple(explained(target, every, explanations()))
    for done, (mutant, fate, tests) in enumerate(_run_all(tree, chosen, sources, plan, jobs), 1):
        fates[mutant.key] = fate
        if fate == "survived":
            survivors.append(_survivor(mutant, tests, known.get(mutant.key)))
        if done % 100 == 0:
            print(f"{target.name}: {done} of {len(chosen)}, {len(survivors)} survived", file=sys.stderr, flush=True)
    kinds = [survivor.kind for survivor in survivors]
    values = list(fates.values())
    return Score(
        target=target.name,
        mutants=len(chosen),
        caught=values.count("caught"),
        timed_out=values.count("timed out"),
        equivalent=kinds.count("equivalent"),
        harmless=kinds.count("harmless"),
        survivors=sorted(survivors, key=lambda one: (one.file, one.line, one.mutation)),
        stale=unfit + [known[key].place for key, fate in fates.items() if key in known and fate != "survived"],
        seconds=round(time.monotonic() - started, 1),
    )


def _survivor(mutant: Mutant, tests: int, explanation: Explanation | None) -> Survivor:
    return Survivor(
        file=mutant.file,
        line=mutant.line,
        function=mutant.function,
        code=mutant.code,
        mutation=mutant.mutation,
        tests=tests,
        kind="" if explanation is None else explanation.kind,
        why="" if explanation is None else explanation.why,
    )


class _Running(msgspec.Struct):
    """A child and when it has to be done."""

    mutant: Mutant
    tests: int
    deadline: float


def _run_all(
    tree: Path, chosen: Sequence[Mutant], sources: dict[str, str], plan: Plan, jobs: int
) -> Iterator[tuple[Mutant, Fate, int]]:
    running: dict[int, _Running] = {}
    for mutant in chosen:
        tests = plan.tests_of(mutant.file, mutant.first, mutant.last)
        if not tests:
            yield mutant, "survived", 0
            continue
        pid = fork_tests(tree, mutant, sources[mutant.file], tests, plan)
        running[pid] = _Running(mutant, len(tests), time.monotonic() + WALL_FACTOR * plan.limit(*tests))
        while len(running) >= jobs:
            yield from _ended(running)
    while running:
        yield from _ended(running)


def _ended(running: dict[int, _Running]) -> Iterator[tuple[Mutant, Fate, int]]:
    """The children that have ended, after a moment if none has."""
    ended = False
    for pid, child in list(running.items()):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            ended = True
            del running[pid]
            yield child.mutant, _fate(child.mutant, os.waitstatus_to_exitcode(status)), child.tests
        elif time.monotonic() > child.deadline:
            os.kill(pid, signal.SIGKILL)
    if not ended:
        time.sleep(0.005)


def _fate(mutant: Mutant, code: int) -> Fate:
    """Pytest's exit code, or the signal that ended the child."""
    if code == 0:
        return "survived"
    if code == 5:
        raise RuntimeError(f"no test was collected for {mutant}")
    return "timed out" if code in {-signal.SIGPROF, -signal.SIGXCPU, -signal.SIGKILL} else "caught"
