"""Stepping through a trace, with the answers typed beforehand."""

from __future__ import annotations

import io

import pytest

from tests.simulation.cluster import simulate
from tests.simulation.stepping import HELP, Quit, Stepper

LINES = [f"line {number}" for number in range(1, 13)]


def shown(answers: str) -> tuple[list[str], int, bool]:
    """The lines that were shown, how often it stopped, and whether it was quit."""
    out = io.StringIO()
    stepper, quit_early = Stepper(io.StringIO(answers), out), False
    for line in LINES:
        try:
            stepper(line)
        except Quit:
            quit_early = True
            break
    text = out.getvalue()
    assert text.startswith(HELP)
    lines = [line.removeprefix("> ") for line in text.splitlines()[1:]]
    return [line for line in lines if line], text.count("> "), quit_early


@pytest.mark.parametrize(
    ("answers", "lines", "stops", "quit_early"),
    [
        ("q\n", 1, 1, True),
        ("", 1, 1, True),
        ("\n\nq\n", 3, 3, True),
        ("5\nq\n", 6, 2, True),
        ("c\n", 12, 1, False),
        ("line 9\n\nq\n", 10, 3, True),
        ("nowhere\n", 12, 1, False),
    ],
)
def test_every_answer(answers: str, lines: int, stops: int, quit_early: bool) -> None:
    assert shown(answers) == (LINES[:lines], stops, quit_early)


def test_a_seed_stops_where_it_is_told_to() -> None:
    out = io.StringIO()
    with pytest.raises(Quit):
        simulate(7, trace=Stepper(io.StringIO("is leader\n2\nq\n"), out))
    lines = out.getvalue().splitlines()
    assert "is leader" in lines[-4]
    assert sum("is leader" in line for line in lines) == 1
