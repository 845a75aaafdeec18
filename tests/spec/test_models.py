"""The specification through TLC: a short scope of each model that is short, and that TLC would notice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spec.models import FOLDER, MODELS
from spec.run import check, why_no_tlc

MODEL = next(model for model in MODELS if model.name == "allocation, short")


@pytest.fixture(autouse=True)
def tlc() -> None:
    """Whoever lacks Java or TLC is told so."""
    if (missing := why_no_tlc()) is not None:
        pytest.skip(missing)


def test_no_id_is_given_twice_in_any_order_of_events() -> None:
    found = check(MODEL)
    assert found.violation is None
    assert found.distinct > 10_000


def test_a_leader_that_forgets_what_it_has_handed_out_is_noticed(tmp_path: Path) -> None:
    for module in FOLDER.glob("*.tla"):
        shutil.copy(module, tmp_path)
    allocation = (tmp_path / "Allocation.tla").read_text()
    forgetful = allocation.replace("LET first == NextId(Applied(c))", "LET first == 0")
    assert forgetful != allocation
    (tmp_path / "Allocation.tla").write_text(forgetful)
    violation = check(MODEL, tmp_path).violation
    assert violation is not None
    assert "Invariant S1 is violated" in violation or "Invariant NoIdTwice is violated" in violation
