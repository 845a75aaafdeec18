"""The specification through TLC: the short scope of each model that has one, and that TLC would notice a mistake."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spec import groups_models
from spec.groups_models import FLAWED_GROUPS, GROUPS_MODELS
from spec.logs_models import FLAWED, LOGS_MODELS, RULES
from spec.models import FOLDER, MODELS, Model
from spec.run import Checked, check, is_wrong, why_no_tlc

SHORT = {model.module: model for model in (*MODELS, *LOGS_MODELS, *GROUPS_MODELS) if model.name.endswith(", short")}


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
        ("Logs", "last.number >= o.name[4] ELSE", "last.number = o.name[4] ELSE", {"DeletedForEver"}),
        ("Groups", "counts == isCommit /\\ held # NoOffset", "counts == held # NoOffset", {"ExactlyOnce"}),
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


def test_each_rule_of_the_logs_is_taken_away_once() -> None:
    """`make spec` has TLC find what each breaks, and here it finds one."""
    assert sorted(model.name.removeprefix("logs, without: ") for model in FLAWED) == sorted(RULES)
    assert f"AllRules == {{{', '.join(map(repr, RULES))}}}".replace("'", '"') in " ".join(
        (FOLDER / "Logs.tla").read_text().split()
    )
    (model,) = [one for one in FLAWED if one.name.endswith("put first")]
    assert not is_wrong(model, check(model))


def test_each_rule_of_groups_is_taken_away_and_each_invariant_broken() -> None:
    rules, broken = groups_models.RULES, groups_models.INVARIANTS
    assert {model.name.rpartition("without: ")[2] for model in FLAWED_GROUPS} == set(rules)
    assert {model.broken for model in FLAWED_GROUPS} == set(broken)
    assert f"AllRules == {{{', '.join(map(repr, rules))}}}".replace("'", '"') in " ".join(
        (FOLDER / "Groups.tla").read_text().split()
    )
    (model,) = [one for one in FLAWED_GROUPS if one.name == "groups, ExactlyOnce without: compare and swap"]
    assert not is_wrong(model, check(model))


def test_a_missing_rule_that_breaks_nothing_or_something_else_is_wrong() -> None:
    (model,) = [one for one in FLAWED if one.name.endswith("put first")]
    nothing, other = (Checked(model.name, 1, 1, 1, 0.0, said) for said in (None, "Invariant Contiguous is violated."))
    assert is_wrong(model, nothing)
    assert is_wrong(model, other)
