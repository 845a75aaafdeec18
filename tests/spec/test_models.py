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
def test_no_id_is_given_twice_in_any_order_of_events(model: Model) -> None:
    found = check(model)
    assert found.violation is None
    assert found.distinct > 10_000


@pytest.mark.parametrize(
    ("module", "right", "wrong", "broken"),
    [
        ("Allocation", "LET first == NextId(Applied(c))", "LET first == 0", {"S1", "NoIdTwice"}),
        ("Succession", "!.next = Max(state.next, place[live].floor)", "!.next = @", {"F6", "NoIdTwice"}),
    ],
)
def test_a_quorum_that_forgets_what_was_handed_out_is_noticed(
    tmp_path: Path, module: str, right: str, wrong: str, broken: set[str]
) -> None:
    for each in FOLDER.glob("*.tla"):
        shutil.copy(each, tmp_path)
    text = (tmp_path / f"{module}.tla").read_text()
    assert right in text
    (tmp_path / f"{module}.tla").write_text(text.replace(right, wrong))
    violation = check(SHORT[module], tmp_path).violation
    assert violation is not None
    assert any(f"Invariant {name} is violated" in violation for name in broken)
