"""The specification through TLC: the short scope of each model that has one, and that TLC would notice a mistake."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spec.models import FOLDER, MODELS, Model
from spec.run import check, why_no_tlc

SHORT = {model.module: model for model in MODELS if model.name.endswith(", short")}


@pytest.fixture(autouse=True)
def tlc() -> None:
    """Whoever lacks Java or TLC is told so."""
    if (missing := why_no_tlc()) is not None:
        pytest.skip(missing)


@pytest.mark.parametrize("model", SHORT.values(), ids=SHORT)
def test_what_must_hold_holds_in_every_state_of_a_short_scope(model: Model) -> None:
    found = check(model)
    assert found.violation is None
    assert found.distinct > 10_000


@pytest.mark.parametrize(
    ("module", "right", "wrong", "broken"),
    [
        ("Allocation", "LET first == NextId(Applied(c))", "LET first == 0", {"S1", "NoIdTwice"}),
        (
            "Consensus",
            '(vote[i] = Nobody /\\ following[i] = Nobody /\\ role[i] # "leader")',
            '(following[i] = Nobody /\\ role[i] # "leader")',
            {"R14"},
        ),
        ("Transactions", "ELSE <<current[1], current[2] + 1>>", "ELSE current", {"T4", "OnePairOneInstance"}),
        ("Migration", "THEN Max(next, block.last + 1)", "THEN next", {"NoIdTwice"}),
        ("Succession", "!.next = Max(state.next, place[live].floor)", "!.next = @", {"F6", "NoIdTwice"}),
    ],
)
def test_a_mistake_in_a_rule_is_noticed(tmp_path: Path, module: str, right: str, wrong: str, broken: set[str]) -> None:
    for each in FOLDER.glob("*.tla"):
        shutil.copy(each, tmp_path)
    text = (tmp_path / f"{module}.tla").read_text()
    assert right in text
    (tmp_path / f"{module}.tla").write_text(text.replace(right, wrong))
    violation = check(SHORT[module], tmp_path).violation
    assert violation is not None
    assert any(f"Invariant {name} is violated" in violation or f'"{name}: ' in violation for name in broken)
