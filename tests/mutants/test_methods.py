"""What every method is asked about fits the code and the specification as they are."""

from __future__ import annotations

import pytest

from spec.models import FOLDER
from tests.mutants.methods import METHODS, Answer, Outcome, row
from tests.mutants.planted import ROOT, catalogue, patched
from tests.mutants.protocol_bugs import PROTOCOL_BUGS, ProtocolBug

PLANTED = {bug.name: bug for bug in catalogue()}


@pytest.mark.parametrize("bug", PROTOCOL_BUGS, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted_in_the_code_and_in_the_specification(bug: ProtocolBug) -> None:
    assert patched(PLANTED[bug.name], ROOT)
    if bug.rule is not None:
        assert (FOLDER / f"{bug.rule.module}.tla").read_text().count(bug.rule.right) == 1
        assert bug.rule.right != bug.rule.wrong


def test_a_method_that_was_not_asked_is_told_from_one_that_noticed_nothing() -> None:
    answers: dict[str, Answer | None] = dict.fromkeys(METHODS)
    outcome = Outcome("a-bug", {**answers, "explorer": Answer("R7", 1.2), "simulator": Answer(None, 60.0)})
    assert row(outcome) == "| a-bug |  | 1 s |  | no |  |  |"
    assert outcome.noticed
    assert not Outcome("a-bug", {**answers, "simulator": Answer(None, 60.0)}).noticed
