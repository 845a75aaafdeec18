"""The judgement of witnesses: only what is the same, or differs as it is stated, passes."""

from __future__ import annotations

import pytest

from tests.witnesses.judgement import MAX_SHOWN, Known, Outcome, Outcomes, faults, judge, left_out, passed
from tests.witnesses.judgement import failed as broken

KNOWN = Known("it is not served", "UNSERVED")


@pytest.mark.parametrize(
    ("kafka", "ours", "known", "kind"),
    [
        (passed("a"), passed("a"), None, "same"),
        (passed("a"), passed("b"), None, "differs"),
        (passed("a"), broken("x"), None, "differs"),
        (broken("x"), passed("x"), None, "differs"),
        (broken("x"), broken("x"), None, "differs"),
        (passed("a"), None, None, "differs"),
        (None, passed("a"), None, "differs"),
        (passed("a"), broken("UNSERVED: 3"), KNOWN, "known"),
        (passed("a"), broken("another reason"), KNOWN, "differs"),
        (passed("a"), passed("a UNSERVED"), KNOWN, "differs"),
        (broken("x"), broken("UNSERVED"), KNOWN, "differs"),
        (None, None, KNOWN, "differs"),
        (passed("a"), passed("b"), Known("", "b", ours="passed"), "known"),
    ],
)
def test_a_case_is_the_same_or_differs_as_stated(
    kafka: Outcome | None, ours: Outcome | None, known: Known | None, kind: str
) -> None:
    def seen(outcome: Outcome | None) -> Outcomes:
        return {} if outcome is None else {"case": outcome}

    stated = {} if known is None else {"case": known}
    (verdict,) = judge("witness", seen(kafka), seen(ours), stated)
    assert (verdict.witness, verdict.name, verdict.kind) == ("witness", "case", kind)
    assert (faults([verdict]) == [verdict]) == (kind == "differs")
    assert verdict.why or kind in {"same", "known"}


def test_what_is_left_out_says_why_and_is_no_fault() -> None:
    (verdict,) = left_out("witness", {"case": "it needs a group"})
    assert (verdict.kind, verdict.why) == ("left out", "it needs a group")
    assert not faults([verdict])


def test_what_is_shown_is_bounded_and_a_reason_keeps_its_end() -> None:
    long = "x" * MAX_SHOWN
    assert passed("a" + long).shown == "a" + long[1:]
    assert broken(long + "a").shown == long[1:] + "a"
