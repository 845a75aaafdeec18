"""A slice of `python -m tests.mutants.run`: the harness does what it says, and the catalogue fits the code."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from tests.mutants.anchors import PatchError
from tests.mutants.edits import replace
from tests.mutants.hunting import CONTROL, run_planted
from tests.mutants.mutating import Explanation, Score, Target, explained, explanations, targets
from tests.mutants.operators import mutants, mutated
from tests.mutants.planted import ROOT, Planted, catalogue, patched, why_unseen

SURE = ("commit-by-a-minority", "append-without-sync", "answered-at-propose")
"""One of the core, one of the disk, one of the answers; each shows within a few seeds."""


def why_unfit(bug: Planted) -> str:
    """Why `bug` cannot be planted; empty if it can."""
    try:
        patched(bug, ROOT)
    except PatchError as error:
        return str(error)
    return ""


def test_every_planted_bug_still_fits_the_code() -> None:
    bugs = catalogue()
    assert len({bug.name for bug in bugs}) == len(bugs) >= 25
    assert [why for bug in bugs if (why := why_unfit(bug))] == []
    for bug in bugs:
        assert all((ROOT / test.partition("::")[0]).exists() for test in bug.directed), bug.name
        assert not (bug.unseen or bug.needs) or bug.directed, f"{bug.name}: nobody looks for it"


@pytest.mark.timeout(300)
def test_the_simulator_catches_planted_bugs_and_nothing_else() -> None:
    bugs = [bug for bug in catalogue() if bug.name in SURE]
    assert len(bugs) == len(SURE)
    control, *found = run_planted([CONTROL, *bugs], jobs=1, seeds=8)
    assert (control.caught, control.seeds, control.found) == (False, None, None)
    for row in found:
        assert row.caught, row
        assert row.seeds is not None, row
        assert row.found, row


def test_directed_tests_are_asked_where_the_simulator_sees_nothing() -> None:
    hidden = next(bug for bug in catalogue() if bug.name == "block-that-starts-at-the-highest-id-taken")
    harmless = Planted("longer-constant", "", "", (replace("broker_agent", "NO_ID", "-1", "1 - 2"),))
    harmless = msgspec.structs.replace(harmless, directed=hidden.directed, unseen=hidden.unseen)
    seen, unseen = run_planted([hidden, harmless], jobs=1)
    assert (seen.caught, seen.seeds, seen.directed) == (True, None, True)
    assert (unseen.caught, unseen.seeds, unseen.directed) == (False, None, False)


def test_a_bug_that_needs_a_fault_is_simulated_once_there_is_one() -> None:
    bug = Planted("late", "", "", (), needs="power_cut")
    assert why_unseen(bug, ROOT) == ""
    assert why_unseen(msgspec.structs.replace(bug, needs="meteorite"), ROOT) == "its nemesis throws no meteorite"
    assert why_unseen(msgspec.structs.replace(bug, unseen="dark"), ROOT) == "dark"


SOURCE = '''
LIMIT = 3

class Box:
    """A docstring."""

    def fits(self, size: int = 0) -> bool:
        """Another."""
        self.asked += 1
        if size < LIMIT and not self.full:
            return True
        raise ValueError(f"{size} of {1 + 1}")
'''


def test_mutants_are_named_and_made() -> None:
    found = mutants("box.py", SOURCE)
    assert {one.function for one in found} == {"box.Box.fits"}
    assert [(one.line, one.code, one.mutation) for one in found] == [
        (9, "self.asked += 1", "deleted"),
        (9, "self.asked += 1", "+ -> -"),
        (9, "self.asked += 1", "1 -> 2"),
        (9, "self.asked += 1", "1 -> 0"),
        (10, "size < LIMIT and (not self.full)", "and -> or"),
        (10, "size < LIMIT", "< -> <="),
        (10, "not self.full", "not removed"),
        (11, "return True", "returns None"),
        (11, "return True", "True -> False"),
        (12, "raise ValueError(f'{size} of {1 + 1}')", "deleted"),
    ]
    original = compile(SOURCE, "box.py", "exec")
    codes = {mutated(SOURCE, one.number, "box.py") for one in found}
    assert len(codes) == len(found)
    assert original not in codes


def test_assertions_are_not_mutated() -> None:
    source = "def f(a):\n    assert a > 1, g(a)\n    if a > 2:\n        raise InvariantViolation('R1', a)\n"
    found = [(one.code, one.mutation) for one in mutants("box.py", source)]
    assert found == [
        ("a > 2", "> -> >="),
        ("a > 2", "2 -> 3"),
        ("a > 2", "2 -> 1"),
        ("raise InvariantViolation('R1', a)", "deleted"),
    ]


def test_every_explanation_is_about_a_mutant_that_exists() -> None:
    said = explanations()
    assert {one.target for one in said} <= {target.name for target in targets()}
    for target in targets():
        every = [one for file in target.files for one in mutants(file, (ROOT / file).read_text(encoding="utf-8"))]
        result = explained(target, every, said)
        assert result.unfit == []
        assert len(result.known) == sum(one.target == target.name for one in said)


TARGET = Target("box", ("box.py",), ())
FULL = Explanation("box", "Box.fits", "size < LIMIT", "< -> <=", "harmless", "there is room")


def test_an_explanation_outlives_a_move_and_a_new_layout() -> None:
    moved = SOURCE.replace("class Box", "LOWEST = 1\n\nclass Crate:\n    pass\n\nclass Box").replace(
        "if size < LIMIT and not self.full", "if (\n            size\n            < LIMIT and not self.full\n        )"
    )
    for file, source in (("box.py", SOURCE), ("boxes/all.py", moved)):
        result = explained(TARGET, mutants(file, source), [FULL])
        assert result.unfit == []
        assert [one.why for one in result.known.values()] == ["there is room"]


def test_an_explanation_that_fits_no_mutant_says_where_its_code_may_be() -> None:
    twice = mutants("box.py", SOURCE) + mutants("crate.py", SOURCE)
    assert explained(TARGET, twice, [FULL]).unfit == [
        "box | Box.fits | size < LIMIT | < -> <=: the function may be box.Box.fits or crate.Box.fits: name more of it"
    ]
    grown = mutants("box.py", SOURCE.replace("size < LIMIT", "size < self.LIMIT"))
    assert explained(TARGET, grown, [FULL]).unfit == [
        "box | Box.fits | size < LIMIT | < -> <=: box.Box.fits has no such mutant: it has ['size < self.LIMIT']"
    ]
    renamed = mutants("box.py", SOURCE.replace("fits", "takes"))
    assert "no function is called that: ['box.Box.takes'] has one" in explained(TARGET, renamed, [FULL]).unfit[0]
    with pytest.raises(ValueError, match=r"explains twice: box \| Box.fits"):
        explained(TARGET, mutants("box.py", SOURCE), [FULL, FULL])


PROGRAM = """
import sys, msgspec
from tests.mutants.mutating import Target, run_mutation
target = Target("quorum", ("controller/raft/quorum.py",), ("tests/unit/controller/raft/test_quorum.py",))
sys.stdout.buffer.write(msgspec.json.encode(run_mutation(target, jobs=1)))
"""


def test_mutants_of_one_module_are_caught_by_its_tests() -> None:
    # In a process of its own: this one has imported the module that is to be changed.
    output = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, check=True, capture_output=True).stdout
    score = msgspec.json.decode(output, type=Score)
    assert score.mutants > 20
    assert score.caught > 0.8 * score.mutants
    assert score.caught + score.timed_out + len(score.survivors) == score.mutants
